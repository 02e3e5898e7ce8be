#!/bin/sh
# allocations.sh [MODEL [OPTION...]]: what a decode step asks the system for: calls of the allocator, of mmap, and of ioctl, which is how a GPU's
# driver is asked for memory of the card (tests/allocations.c counts them, loaded before hone). One line: three numbers a step; exit code 0 if all
# are zero, 1 if not, 77 where they cannot be counted. The options are those of `hone bench`, for instance -ngl 0.
#
# Four runs, of few and many samples and of few and many steps each: what a sample costs by itself (JSON, the journal) falls out of the difference
# of differences. What is left over is the lengths of numbers in text, far below one call in a hundred steps. Without MODEL a small synthetic one.
set -eu
hone=${HONE:-$(dirname "$0")/../${B:-build}/hone}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ $# = 0 ]; then
    "$hone" synth smollm2-135m Q4_0 "$tmp/model.gguf" --layers 2 --vocab 1000 >/dev/null
    set -- "$tmp/model.gguf"
fi
if [ -n "${COUNTER:-}" ]; then
    cp "$COUNTER" "$tmp/count.so"
else
    cc=$(command -v cc || command -v gcc || command -v clang) || { echo "allocations: no C compiler for the counter"; exit 77; }
    "$cc" -O1 -shared -fPIC "$(dirname "$0")/../tests/allocations.c" -o "$tmp/count.so" -ldl
fi
! "$hone" --version | grep -q sanitize || { echo "allocations: a sanitized build has an allocator of its own"; exit 77; }

counts() { # samples steps
    rm -f "$tmp/n"
    LD_PRELOAD="$tmp/count.so" ALLOCATIONS="$tmp/n" timeout 120 "$hone" bench -m "$@" -p 0 --no-journal --no-verify --no-roof --no-warmup \
        -o jsonl >"$tmp/log" 2>&1 || { tail -n 3 "$tmp/log" >&2; return 1; }
    sort -n "$tmp/n" | tail -n 1 # of the process itself: children that it made have counted less
}
a=$(counts "$@" -r 2 -n 32) b=$(counts "$@" -r 10 -n 32) c=$(counts "$@" -r 2 -n 160) d=$(counts "$@" -r 10 -n 160)
echo "$a $b $c $d" | awk '{
    steps = (10 - 2) * (160 - 32)
    for (i = 1; i <= 3; i++) {
        x = ($(i + 9) - $(i + 6) - $(i + 3) + $i) / steps
        n[i] = x; bad += x > 0.01 || x < -0.01
    }
    printf "allocations %.4f, mmap %.4f, ioctl %.4f a decode step (over %d steps; %d, %d and %d calls in all)\n", n[1], n[2], n[3], steps, $10, $11, $12
    exit bad > 0
}'
