#!/bin/sh
# Plug-ins from the command line: the example builds from its own folder with nothing but hone_kernel.h, and check, trace, eval and
# ladder treat its kernel like a built-in one; exit codes of what goes wrong.
. "$(dirname "$0")/script.sh"

mkdir "$tmp/example" "$tmp/include"
cp examples/kernel/Makefile examples/kernel/*.c "$tmp/example"
cp include/hone_kernel.h "$tmp/include"
make -s -C "$tmp/example" HONE="$tmp/include" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
so=$tmp/example/q4_0.so
gate=kernel.mul_mat.q4_0=q4_0_lanes

expect 0 '^1 kernels: [1-9][0-9]* ok, 0 faults' "$hone" check --plugin "$so" --kernel q4_0_lanes
expect 3 'No such file' "$hone" check --plugin "$tmp/nowhere.so"
expect 3 'invalid ELF header' "$hone" eval -m /dev/null --tokens 1 --plugin README.md
cc -shared -fPIC -Iinclude -DFAULT_crash tests/plugins/fault.c -o "$tmp/crash.so"
expect 3 'crash.so: it crashed' "$hone" eval -m /dev/null --tokens 1 --plugin "$tmp/crash.so"

model=${HONE_DATA:-../shared/data}/quants/llama-Q4_0.gguf
if [ ! -r "$model" ]; then
    echo "plugin: no test data at $model: what needs a model is left out"
    [ $failed = 0 ] && exit 77
    exit 1
fi
expect 0 'cpu_mul_mat_q4_0_lanes' "$hone" eval -m "$model" --tokens 1,2,3 --plugin "$so" --set $gate --strict
expect 0 "runs only where a gate names it" "$hone" trace -m "$model" --plan --plugin "$so"
if "$hone" eval -m "$model" --tokens 1,2,3 --plugin "$so" | grep -q lanes; then
    fail "a plug-in's kernel ran without a gate"
fi
expect 0 'cpu_mul_mat_q4_0_lanes' "$hone" trace -m "$model" --nodes --plugin "$so" --set $gate
expect 2 'gate .*src\[0\] is q6_K, not q4_0' "$hone" eval -m "$model" --tokens 1 --plugin "$so" --set kernel.mul_mat=q4_0_lanes --strict
"$hone" ladder -m "$model" --plugin "$so" --set $gate --texts 1 --seconds 0.02 --no-cache >"$tmp/out" 2>&1 || true
grep '^mul_mat ' "$tmp/out" | grep -q 'cpu_mul_mat_q4_0_lanes' || fail "the ladder's mul_mat does not run the plug-in: $(cat "$tmp/out")"
grep '^reference ' "$tmp/out" | grep -q lanes && fail "the ladder's reference runs the plug-in"
# The fusions take in every product of this model, so its nodes are there without them.
expect 0 'q4_0_lanes' "$hone" tune -m "$model" --plugin "$so" --set fuse=off
expect 2 'fusions alone' "$hone" tune -m "$model" --set kernel=ref
finish 'check, trace, eval, ladder and tune treat it like a built-in'
