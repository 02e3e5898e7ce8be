#!/bin/sh
# tensor_parallel.sh [PART...]: what a model split over two one-thread devices of this machine brings, as comparisons of `hone ab`:
#
#   devices   one device of two threads against two devices of one (-sm tensor): the second at 0.95 of the first or more?
#   fused     plain collectives against all_reduce+add and +get_rows, and against +add+rms_norm
#   plan      one device of one thread against two of them, and beside it what `hone plan` says from the times of one
#
#   bench/tensor_parallel.sh                               all three on synthetic llama3.2-1b Q4_0
#   MODEL=model.gguf BLOCKS=24 bench/tensor_parallel.sh fused
#
# DEPTH=16 positions before the step; BLOCKS of each comparison (default: hone ab's); MORE: options for every `hone ab` (default --in-process: five
# minutes in all, where a process for each sample, MORE=, takes an hour). The
# samples of each part go to RESULTS/tensor_parallel_PART.jsonl (default docs/results), and from there into the journal; BLOCKS below the default are
# a try, and stay out of both unless RESULTS is given. A row for each comparison comes last. Exit code 1: a comparison gave no result.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
model=${MODEL:-$CACHE/synth-1b-Q4_0.gguf} depth=${DEPTH:-16} blocks=${BLOCKS:-0} plans=${PLANS:-5}
results=${RESULTS:-} more=${MORE---in-process}
[ -n "$results" ] || [ "$blocks" != 0 ] || results=docs/results
[ -f "$model" ] || [ -n "${MODEL:-}" ] || "$hone" synth llama3.2-1b Q4_0 "$model" >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
: >"$dir/rows"
: >"$dir/notes"
two='-sm=tensor -ts=1/1'

# The journal of a part begins empty, so that its export is the part and no more.
compare() { # part, hypothesis, option...
    part=$1 why=$2
    shift 2
    echo "== $part: $why" >&2
    rc=0
    # shellcheck disable=SC2086
    "$hone" ab -m "$model" -d "$depth" --blocks "$blocks" "$@" $more --journal "$dir/$part.db" --hypothesis "$why" -o jsonl >"$dir/$part.json" || rc=$?
    if [ $rc != 0 ]; then
        echo "$part: exit code $rc" | tee -a "$dir/notes" >&2
        failed=1
    fi
}

row() { # part, and for plan the file of predictions
    [ ! -s "$dir/$1.json" ] || python3 bench/tensor_parallel.py "$1" "$dir/$1.json" "${2:-}" >>"$dir/rows" 2>>"$dir/notes" || failed=1
    [ -n "$results" ] && [ -s "$dir/$1.db" ] || return 0
    mkdir -p "$results"
    "$hone" journal export --journal "$dir/$1.db" --out "$results/tensor_parallel_$1.jsonl"
    "$hone" journal import "$results/tensor_parallel_$1.jsonl" >&2
}

predict() { # how often: as many predictions, each from a trace and a link of its own
    for i in $(seq "$1"); do "$hone" plan -m "$model" -t 1 -d "$depth" --devices 2 -o jsonl >>"$dir/predicted"; done
}

for part in ${*:-devices fused plan}; do
    case $part in
    devices)
        compare devices 'two one-thread devices decode at 0.95 of one two-thread device or more' -t 2 --b "$two" --no-early --verify --expect -5
        row devices
        ;;
    fused)
        compare fused 'a sum that goes on in registers saves a pass over it and a meeting of threads' -t 2 --a "$two" \
            --b "$two fuse.all_reduce_add=on fuse.all_reduce_get_rows=on" \
            --b "$two fuse.all_reduce_add_rms_norm=on fuse.all_reduce_add=on fuse.all_reduce_get_rows=on" --expect 1
        row fused
        ;;
    plan) # half of the predictions before and half behind, so that what the machine does in between lies within them
        : >"$dir/predicted"
        predict $(((plans + 1) / 2))
        compare plan 'two one-thread devices decode as much faster than one as hone plan says' -t 1 --b "-t=2 $two" --no-early
        predict $((plans / 2))
        row plan "$dir/predicted"
        ;;
    *) echo "tensor_parallel: no part '$part'; devices, fused and plan are possible" >&2; exit 2 ;;
    esac
done
echo "| part | A | B | A t/s | B t/s | B : A | interval | blocks | verdict |"
echo "|---|---|---|---:|---:|---:|---|---:|---|"
cat "$dir/rows"
echo
cat "$dir/notes"
exit $failed
