#!/bin/sh
# A decode step that meets a known plan asks nobody for memory: counted from outside (bench/allocations.sh), on a dense model and on one with
# recurrent layers; and the count sees what it is there to see.
. "$(dirname "$0")/script.sh"

"$hone" synth smollm2-135m Q4_0 "$tmp/dense.gguf" --layers 2 --no-vocab --vocab 512 >/dev/null
"$hone" synth qwen3.5-0.8b Q4_0 "$tmp/recurrent.gguf" --layers 4 --width 128 --no-vocab --vocab 512 >/dev/null
for model in dense recurrent; do
    rc=0
    HONE=$hone sh bench/allocations.sh "$tmp/$model.gguf" -t 1 -ngl 0 >"$tmp/out" 2>&1 || rc=$?
    [ $rc != 77 ] || { cat "$tmp/out"; exit 77; }
    [ $rc = 0 ] || fail "$model: $(cat "$tmp/out")"
    awk '{ exit !($13 > 0) }' FS='[;, ]+' "$tmp/out" || fail "$model: nothing was counted: $(cat "$tmp/out")"
done
finish 'a decode step allocates, maps and asks for nothing'
