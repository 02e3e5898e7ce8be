#!/bin/sh
# hone against llama.cpp, interleaved: the same file, threads, depth and minute. A round is one process of each, in turns first; the ratio
# of a round is one sample, so the machine's drift falls out. The read roof is measured by hone between the samples.
#
#   bench/peer.sh [MODEL...]     ROUNDS=9 THREADS=2 DEPTH=64 STEPS=32 PREFILL=128 BUSY=yes
#
# Without a model: synthetic llama3.2-1b in Q4_0 and Q4_K_M, and SmolLM2. The peer is PyPI's llama-cpp-python at the version below, built
# natively from source into the cache folder on the first run (some ten minutes).
set -eu
cd "$(dirname "$0")/.."
version=0.3.36
hone=${B:-build}/hone
CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
rounds=${ROUNDS:-9} threads=${THREADS:-2} depth=${DEPTH:-64} steps=${STEPS:-32} prefill=${PREFILL:-128}
python=${PEER_PYTHON:-$CACHE/peer-$version/bin/python}

if [ ! -x "$python" ]; then
    echo "bench: building llama-cpp-python $version natively (once)" >&2
    python3 -m venv "$CACHE/peer-$version"
    CMAKE_ARGS="-DGGML_NATIVE=ON" CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
        "$CACHE/peer-$version/bin/pip" install -q --no-binary llama-cpp-python "llama-cpp-python==$version" >&2
fi

# What spoils figures, said before they are taken.
awk '$1 == "cpu" && $9 > 0 && $9 / ($2 + $3 + $4 + $5 + $9) > 0.02 { print "bench: warning: the host has stolen " int(100 * $9 / ($2 + $3 + $4 + $5 + $9)) " % of the time since boot" }' /proc/stat >&2
load=$(cut -d ' ' -f 1 /proc/loadavg)
if [ "$(printf '%.0f' "$load")" -gt 0 ]; then
    echo "bench: warning: load average $load before the first sample; figures taken beside other work mean little" >&2
fi
grep -qE '\[(always|madvise)\]' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || echo "bench: warning: no huge pages" >&2
"$hone" --version | grep -q -- '-O0\|sanitize' && echo "bench: warning: a debug build" >&2

if [ $# = 0 ]; then
    for type in Q4_0 Q4_K_M; do
        [ -f "$CACHE/synth-1b-$type.gguf" ] || "$hone" synth llama3.2-1b $type "$CACHE/synth-1b-$type.gguf" >&2
    done
    set -- "$CACHE/synth-1b-Q4_0.gguf" "$CACHE/synth-1b-Q4_K_M.gguf" "$(sh examples/fetch.sh smollm2)"
fi

for model in "$@"; do
    samples=$(mktemp)
    i=0
    while [ $i -lt "$rounds" ]; do
        order="hone peer"
        [ $((i % 2)) = 0 ] || order="peer hone"
        for engine in $order; do
            if [ $engine = peer ]; then
                "$python" bench/peer.py "$model" "$threads" "$steps" "$depth" "$prefill" 3 | sed "s/^{/{\"round\": $i, /"
            else
                "$hone" trace -m "$model" -t "$threads" -d "$depth" -r "$steps" -o jsonl |
                    sed "s/^{/{\"engine\": \"hone\", \"kind\": \"decode\", \"round\": $i, /"
                "$hone" trace -m "$model" -t "$threads" -p "$prefill" -r 3 -o jsonl |
                    sed "s/^{/{\"engine\": \"hone\", \"kind\": \"prefill\", \"round\": $i, /"
            fi
        done >>"$samples"
        i=$((i + 1))
    done
    "$python" bench/peer_table.py "$model" "$samples"
    rm -f "$samples"
done
