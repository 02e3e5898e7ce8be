#!/bin/sh
# cuda.sh [STEP...]: everything that a GPU is needed for, in one call on a machine that has one: the devices, every CUDA kernel against its
# reference, whole models' logits against the CPU's references, decode and prefill of the shapes that docs/cuda.md has goals for. A short table
# comes last; each step has its own time limit, and one that fails does not stop the others.
#
#   make B=build-cuda CUDA=1 LINK_STATIC=1 build-cuda/hone      where nvcc is; the binary needs no library of hone's on the other machine
#   HONE=./hone OUT=results bench/cuda.sh                       all steps, with the logs in OUT
#   bench/cuda.sh devices check logits 1b 8b trace 27b          some
#
# MODELS (default /dev/shm/hone-models) takes the synthetic models, 25 GB for all steps. LIMIT=480 seconds in all.
set -u
cd "$(dirname "$0")/.."
hone=${HONE:-${B:-build}/hone}
out=${OUT:-$(mktemp -d)}
models=${MODELS:-/dev/shm/hone-models}
limit=${LIMIT:-480}
data=${HONE_DATA:-$PWD/../shared/data}
steps=${*:-devices check logits 1b 8b trace shadow 27b}
began=$(date +%s)
export HONE_JOURNAL="$out/journal.db"
mkdir -p "$out" "$models"
: >"$out/table"

"$hone" devices 2>/dev/null | grep -q '^cuda' || { echo "cuda.sh: no CUDA device here: SKIPPED"; exit 0; }

# Runs a command within its own limit and what is left of the whole; its output goes to a log.
run() { # log seconds command...
    log=$out/$1 most=$2
    shift 2
    left=$((limit - $(date +%s) + began))
    [ "$most" -lt "$left" ] || most=$left
    [ "$most" -gt 0 ] || { echo "no time left for: $*" | tee -a "$out/table"; return 124; }
    timeout -k 5 "$most" "$@" >"$log" 2>"$log.err"
    rc=$?
    [ $rc = 0 ] || { echo "exit code $rc: $*"; tail -n 3 "$log.err"; } >>"$out/failures"
    return $rc
}
note() { echo "$*" | tee -a "$out/table"; }

model() { # shape type [option...]: its path
    path=$models/$1-$2.gguf
    shape=$1 type=$2
    shift 2
    [ -s "$path" ] || run "synth-$shape-$type" 150 "$hone" synth "$shape" "$type" "$path" "$@" >&2 || return 1
    echo "$path"
}

step_devices() {
    run devices 60 "$hone" devices
    cat "$out/devices"
    grep -A 4 '^cuda' "$out/devices" | grep -E '^cuda|read' >>"$out/table"
}

step_check() {
    run check.jsonl 180 "$hone" check --kernel 'cuda_*' --seed 1 -o jsonl
    python3 bench/cuda_table.py check "$out/check.jsonl" | tee "$out/check.txt"
    head -n 1 "$out/check.txt" >>"$out/table"
    grep '^  fault' "$out/check.txt" | head -n 40 >>"$out/table"
}

# A model on the references, on the GPU, and the difference.
logits() { # name path tokens
    run "logits-$1.ref" 120 "$hone" eval -m "$2" --tokens "$3" -ngl 0 --set kernel=ref --logits-out "$out/$1.ref.bin" -c 256 &&
        run "logits-$1.gpu" 60 "$hone" eval -m "$2" --tokens "$3" -ngl -1 --logits-out "$out/$1.gpu.bin" -c 256 -v
    note "logits $1: $(python3 bench/cuda_table.py logits "$out/$1.ref.bin" "$out/$1.gpu.bin" "$out/logits-$1.ref" 2>&1 | tail -n 1)"
    grep -h 'runs on the host\|captured' "$out/logits-$1.gpu.err" 2>/dev/null | sort | uniq -c | sort -rn | head -n 3
    rm -f "$out/$1.ref.bin" "$out/$1.gpu.bin"
}
step_logits() {
    tokens=$(seq -s , 11 37 1800)
    for spec in 'smollm2-135m Q4_0' 'smollm2-135m Q4_K_M' 'smollm2-135m Q8_0' 'smollm2-135m F16' 'gemma3-270m Q4_0'; do
        # shellcheck disable=SC2086
        set -- $spec
        path=$(model "$1" "$2") && logits "$1-$2" "$path" "$tokens"
    done
    path=$(model qwen3.5-0.8b Q4_0 --layers 8) && logits qwen3.5-0.8b-Q4_0 "$path" "$tokens"
    for path in "$data"/archs/*.gguf; do
        [ -f "$path" ] && logits "$(basename "$path" .gguf)" "$path" "11,48,85,122,159,36,73,110,147,24,61,98,135,12,49,86,123,0,37,74,111,148,25,62"
    done
}

# Decode and prefill as llama-bench has them.
speed() { # name path seconds
    run "bench-$1.jsonl" "$3" "$hone" bench -m "$2" -ngl -1 -p 512 -n 128 -r 5 --no-roof ${VERIFY---no-verify} -o jsonl
    python3 bench/cuda_table.py speed "$1" "$out/bench-$1.jsonl" | tee -a "$out/table"
    tail -n 2 "$out/bench-$1.jsonl.err"
}
step_1b() { path=$(model llama3.2-1b Q4_0) && speed llama3.2-1b-Q4_0 "$path" 90; }
step_8b() { path=$(model llama3.1-8b Q4_K_M) && speed llama3.1-8b-Q4_K_M "$path" 120; }
step_27b() { path=$(model qwen3.6-27b Q4_0) && speed qwen3.6-27b-Q4_0 "$path" 200; }
step_trace() {
    for spec in ${TRACE:-llama3.2-1b:Q4_0}; do
        path=$(model "${spec%%:*}" "${spec#*:}") || continue
        run "trace-${spec%%:*}" 90 "$hone" trace -m "$path" -d 64 -r 5
        head -n 30 "$out/trace-${spec%%:*}"
        run "trace-${spec%%:*}-prefill" 90 "$hone" trace -m "$path" -p 512 -r 3
        head -n 20 "$out/trace-${spec%%:*}-prefill"
    done
}
step_shadow() {
    path=$(model smollm2-135m Q4_0) || return
    run shadow 100 "$hone" check --shadow -m "$path" -c 256
    tail -n 12 "$out/shadow"
}

for step in $steps; do
    echo "== $step ($(($(date +%s) - began)) s)"
    "step_$step"
done
echo "== what failed"
[ ! -f "$out/failures" ] || tail -n 30 "$out/failures"
echo "== results"
cat "$out/table"
