#!/bin/sh
# shard_soak.sh [threads|processes|archs]...: the whole of what the suite takes a part of (without words all three): SmolLM2 and Gemma 3 270M over
# two, three and four groups of threads, even and uneven, with 20 repeats of each split; the same over as many processes, with the same bits; and every
# model of the test data over processes, with as many repeats.
set -u
cd "$(dirname "$0")/.."
B=${B:-build}
HONE_SOAK=1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export HONE_SOAK OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
not() { failed=$((failed + 1)); echo "shard_soak: $*"; tail -n 20 "$dir/err" | sed 's/^/    /'; }

processes() {
    fused='fuse.all_reduce_add=on;fuse.all_reduce_get_rows=on'
    for model in "${HONE_MODELS:-}"/SmolLM2-135M-Instruct.Q4_1.gguf "${HONE_MODELS:-}"/gemma-3-270m-q4_k_m.gguf; do
        [ -f "$model" ] || { echo "shard_soak: $model SKIPPED: not in HONE_MODELS"; continue; }
        command -v mpirun >/dev/null 2>&1 || { echo "shard_soak: no mpirun: processes SKIPPED"; break; }
        tokens=$("$B/hone" tokenize -m "$model" 'The three primary colours are red, yellow and blue. Mixing two of them gives' | tr -d '[] \n')
        for shares in 1/1 3/1 1/1/1 2/1/1 1/1/1/1 3/1/2/1; do
            n=$(echo "$shares" | tr / '\n' | wc -l)
            ask="eval -m $model --tokens $tokens --greedy 24 -sm tensor -ts $shares"
            # shellcheck disable=SC2086
            "$B/hone" $ask -t "$n" --logits-out "$dir/threads.f32" >"$dir/threads" 2>"$dir/err" && ok || not "$model, $shares threads: exit code $?"
            for gates in fuse.all_reduce_add=off "$fused"; do
                # shellcheck disable=SC2086
                timeout 300 mpirun -np "$n" "$B/hone" $ask -t 1 --set "$gates" --logits-out "$dir/mpi.f32" >"$dir/mpi" 2>"$dir/err" && ok || not "$model, $shares processes: exit code $?"
                cmp -s "$dir/threads.f32" "$dir/mpi.f32" && ok || not "$model, $shares, $gates: processes give other bits than groups of threads"
                python3 -c 'import json, sys; a, b = (json.load(open(p))["greedy"] for p in sys.argv[1:]); sys.exit(a != b or len(a) != 24)' "$dir/threads" "$dir/mpi" &&
                    ok || not "$model, $shares, $gates: processes say other tokens than groups of threads"
            done
        done
    done
}

for part in ${*:-threads processes archs}; do
    : >"$dir/err"
    case $part in
    threads) "$B/tests/test_shard_real" && ok || not "real models over groups of threads" ;;
    processes) processes ;;
    archs) sh tests/shard_mpi_test.sh || [ $? = 77 ] && ok || not "the models of the test data over processes" ;;
    *) echo "shard_soak: no part '$part'" >&2; exit 2 ;;
    esac
done
echo "shard_soak: $passed passed, $failed failed"
[ $failed = 0 ]
