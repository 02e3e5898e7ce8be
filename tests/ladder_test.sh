#!/bin/sh
# The ladder to its end on the Gated DeltaNet hybrids: a synthetic qwen35 of four layers, and the tiny files of the test data (qwen35,
# the mixtures qwen35moe and qwen3next). Each must end all local: every op and fusion that the model has, no rung taken back, no
# node on a reference. Without AVX2 there is nothing to climb.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
HONE_CACHE=$tmp
export HONE_CACHE
"$hone" devices -o json | grep -q '"features": "[^"]*avx2' || { echo 'ladder: SKIPPED: no AVX2'; exit 77; }

climb() { # model texts
    "$hone" ladder -m "$1" -t 2 --texts "$2" --prompt-tokens 16 --greedy 8 --seconds 0.01 --no-cache >"$tmp/out" 2>&1 || {
        cat "$tmp/out"
        echo "ladder: $1 does not end all local"
        exit 1
    }
    tail -n 1 "$tmp/out" | grep -q '^all local' || { cat "$tmp/out" && exit 1; }
    ! grep 'TAKEN BACK' "$tmp/out" || exit 1
    for rung in gated_delta_rule ssm_conv l2_norm fuse.gated_delta_net fuse.ssm_conv_silu; do
        grep "^$rung " "$tmp/out" | grep -q 'cpu_' || { cat "$tmp/out" && echo "ladder: $rung brought no kernel" && exit 1; }
    done
    echo "ladder: $(basename "$1"): $(grep -c 'cpu_' "$tmp/out") rungs with kernels, all local"
}

"$hone" synth qwen3.5-0.8b Q4_0 "$tmp/qwen35-synth.gguf" --layers 4 --width 256 --vocab 1000 >/dev/null
climb "$tmp/qwen35-synth.gguf" 4
for name in qwen35 qwen35moe qwen3next; do
    [ -f "${HONE_DATA:-}/archs/$name.gguf" ] || { echo "ladder: $name: SKIPPED, HONE_DATA has no archs/$name.gguf"; continue; }
    climb "$HONE_DATA/archs/$name.gguf" 2
done

# Over two devices: the same rungs, and one device with all their threads beside.
"$hone" synth llama3.2-1b Q4_0 "$tmp/llama.gguf" --layers 2 --width 256 --vocab 1000 >/dev/null
"$hone" ladder -m "$tmp/llama.gguf" -t 2 -sm tensor -ts 1/1 --texts 1 --prompt-tokens 8 --greedy 4 --seconds 0.01 --no-cache --no-journal -o jsonl >"$tmp/out" 2>"$tmp/err" || {
    cat "$tmp/out" "$tmp/err"
    echo "ladder: over two devices it does not end all local"
    exit 1
}
grep '"rung":"all local"' "$tmp/out" | grep -q '"devices":2' || { cat "$tmp/out" && echo "ladder: all local did not run on two devices" && exit 1; }
tail -n 1 "$tmp/out" | grep '"rung":"one device"' | grep '"kind":"one device"' | grep -q '"devices":1' || { cat "$tmp/out" && echo "ladder: no one device beside two" && exit 1; }
grep '"rung":"fuse.all_reduce_get_rows"' "$tmp/out" >"$tmp/rung" || { echo "ladder: no rung of fused collectives" && exit 1; }
! grep -q 'never fires' "$tmp/rung" || { echo "ladder: collectives were not there to be fused" && exit 1; }
echo "ladder: over two devices: all local, with one device beside"
