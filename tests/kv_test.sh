#!/bin/sh
# -ctk, -ctv and -fa on the command line: what no model could make right is refused before one is opened, the rest by name and reason.
. "$(dirname "$0")/script.sh"
"$hone" synth smollm2-135m Q8_0 "$tmp/m.gguf" --layers 2 --width 64 --vocab 400 >"$tmp/out" 2>&1
m=$tmp/m.gguf

for type in f99 q4_K iq4_nl i32 ''; do
    expect 2 'a cache.* may be f32, f16' "$hone" run -m /nowhere.gguf -p x -ctk "$type"
    expect 2 'a cache.* may be f32, f16' "$hone" perplexity -m /nowhere.gguf -f README.md -ctv "$type"
done
expect 2 '-ctk q4_K: no format for a cache' "$hone" bench -m /nowhere.gguf -ctk q4_K
expect 2 'on, off or auto' "$hone" run -m /nowhere.gguf -p x -fa maybe
expect 2 'no place here' "$hone" ladder -m /nowhere.gguf -fa on
expect 2 'no place here' "$hone" tune -m /nowhere.gguf -fa on
expect 2 'never stores' "$hone" bench -m /nowhere.gguf -fa off

for type in f32 F16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0; do
    expect 0 '"greedy"' "$hone" eval -m "$m" --tokens 1,2,3 --greedy 2 -ctk $type -ctv q5_0 --strict
done
expect 4 'F16 and Q4_0.*enough for a context of [0-9]* (-c)' "$hone" run -m "$m" --raw -p x -c 1073741824 -ctk f16 -ctv q4_0
fast=$("$hone" devices -o json | grep -q '"features": "avx2' && echo yes || echo no)
expect 0 'cpu_attention_ref' "$hone" eval -m "$m" --tokens 1,2,3 -fa off
expect 0 'slow' "$hone" eval -m "$m" --tokens 1,2,3 -fa off
expect 0 'kernel.attention=ref' "$hone" eval -m "$m" --tokens 1,2,3 -fa off
expect 2 'fa on: node .* is left to the reference: kernel=ref' "$hone" eval -m "$m" --tokens 1,2,3 -fa on --set kernel=ref
expect 2 'fa on: node .* is left to the reference: the device lacks' "$hone" eval -m "$m" --tokens 1,2,3 -fa on --mask none
if [ $fast = yes ]; then
    expect 0 'cpu_attention_avx' "$hone" eval -m "$m" --tokens 1,2,3 -fa on -ctk q4_1 -ctv q5_1
    expect 0 'cpu_attention_avx' "$hone" eval -m "$m" --tokens 1,2,3 -fa off --set kernel.attention=avx2 # the later gate wins
fi
finish 'refused at once, or it runs'
