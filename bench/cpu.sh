#!/bin/sh
# cpu.sh [MODEL...]: hone against llama.cpp (bench/peer.sh) on this CPU, interleaved: the same file, threads, depth and minute. A round is one
# process of each, in turns first; the ratio of a round is one sample, so the machine's drift falls out. hone measures the read
# roof between the samples.
#
#   bench/cpu.sh          synthetic llama3.2-1b in Q4_0 and Q4_K_M, and SmolLM2
#   ROUNDS=9 THREADS=2 DEPTH=64 STEPS=32 PREFILL=128 bench/cpu.sh model.gguf
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
rounds=${ROUNDS:-9} threads=${THREADS:-2} depth=${DEPTH:-64} steps=${STEPS:-32} prefill=${PREFILL:-128}
python=$(sh bench/peer.sh --python)

# What spoils figures, said before they are taken.
warn() { echo "cpu.sh: warning: $*" >&2; }
load=$(cut -d ' ' -f 1 /proc/loadavg)
[ "$(printf '%.0f' "$load")" = 0 ] || warn "load average $load before the first sample: figures taken beside other work mean little"
stolen=$(awk '$1 == "cpu" { print int(100 * $9 / ($2 + $3 + $4 + $5 + $9)) }' /proc/stat)
[ "$stolen" -lt 2 ] || warn "the host has taken $stolen % of the time since boot"
grep -qE '\[(always|madvise)\]' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || warn "no huge pages"
! "$hone" --version | grep -q -e '-O0' -e sanitize || warn "a debug build"
throttled=$(cat /sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count 2>/dev/null || echo 0)
[ "$throttled" = 0 ] || warn "the processor has throttled $throttled times"

if [ $# = 0 ]; then
    for type in Q4_0 Q4_K_M; do
        [ -f "$CACHE/synth-1b-$type.gguf" ] || "$hone" synth llama3.2-1b $type "$CACHE/synth-1b-$type.gguf" >&2
    done
    set -- "$CACHE/synth-1b-Q4_0.gguf" "$CACHE/synth-1b-Q4_K_M.gguf" "$(sh examples/fetch.sh smollm2)"
fi

hone_round() { # model round
    "$hone" trace -m "$1" -t "$threads" -d "$depth" -r "$steps" -o jsonl | sed "s/^{/{\"engine\": \"hone\", \"kind\": \"decode\", \"round\": $2, /"
    "$hone" trace -m "$1" -t "$threads" -p "$prefill" -r 3 -o jsonl | sed "s/^{/{\"engine\": \"hone\", \"kind\": \"prefill\", \"round\": $2, /"
}
peer_round() { # model round
    "$python" bench/peer.py "$1" -t "$threads" -d "$depth" -n "$steps" -p "$prefill" -r 3 | sed "s/^{/{\"engine\": \"peer\", \"round\": $2, /"
}

for model in "$@"; do
    samples=$(mktemp)
    i=0
    while [ $i -lt "$rounds" ]; do
        if [ $((i % 2)) = 0 ]; then
            hone_round "$model" $i && peer_round "$model" $i
        else
            peer_round "$model" $i && hone_round "$model" $i
        fi >>"$samples"
        i=$((i + 1))
    done
    "$python" bench/cpu_table.py "$model" "$samples"
    [ -z "${KEEP:-}" ] || cp "$samples" "$KEEP/$(basename "$model").jsonl"
    rm -f "$samples"
done
