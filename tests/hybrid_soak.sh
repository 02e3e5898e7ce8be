#!/bin/sh
# Four layers of the 27B hybrid in every weight type: each runs, on fast kernels alone where the processor has them. A few gigabytes of disk and
# memory at a time, some minutes in all.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
types=$("$hone" synth 2>&1 | sed -n 's/.*TYPE (\([^)]*\)).*/\1/p' | tr -d ,)
[ -n "$types" ] || { echo "hybrid_soak: no types" >&2; exit 1; }
fast=$("$hone" devices -o json | grep -q '"features": "avx2' && echo yes || echo no)
for type in $types; do
    "$hone" synth qwen3.6-27b "$type" "$folder/model.gguf" --layers 4 --vocab 1000 >/dev/null
    answer=$("$hone" eval -m "$folder/model.gguf" --tokens 1,2,3,4,5,6,7 --greedy 4 --strict)
    case $answer in
    *'"greedy"'*) ;;
    *) echo "hybrid_soak: $type: $answer" >&2 && exit 1 ;;
    esac
    case $fast$answer in
    yes*_ref\"*) echo "hybrid_soak: $type: a node stays on a reference: $answer" >&2 && exit 1 ;;
    esac
    echo "$type runs"
    rm "$folder/model.gguf"
done
