#!/bin/sh
# cuda.sh [STEP...]: everything that a GPU is needed for, in one call on a machine that has one. A line for each thing that must hold comes last,
# with what was measured; the exit code is 1 if one of them does not. Each step has its own time limit, and one that fails does not stop the others.
#
#   make B=build-cuda CUDA=1 LINK_STATIC=1 build-cuda/hone      where nvcc is; the binary needs no library of hone's on the other machine
#   HONE=./hone OUT=results bench/cuda.sh                       all steps, with the logs in OUT
#   HONE=./hone OUT=results bench/cuda.sh devices check same    some of them:
#
#   devices       what there is, and how fast it reads
#   check         every kernel against its reference on every case, launched late and early; collectives with several ranks on one card
#   streamed      products whose weights come by bulk copies (HONE_CUDA_STREAM)
#   memcheck racecheck synccheck initcheck
#                 compute-sanitizer over prefill and decode of small models of every architecture
#   archs         the models of ../shared/data/archs: logits against those of an independent implementation, each kernel in the running graph against its
#                 reference, and what would run on the host
#   agree         SmolLM2's own weights: how often the likeliest token is the CPU reference's, a prompt at once and a token at a time
#   ladder        from all references to the whole graph on the GPU
#   same          the same bits in 20 runs, and from a second request
#   allocations   what a decode step asks the system for
#   1b 8b 27b     decode and prefill of 512 tokens with a verdict (VERIFY=--no-verify: without); deep: the 27B at depth 32,768
#   trace shadow  where a step's time goes; each kernel of whole models beside its reference
#
# MODELS (default /dev/shm/hone-models) takes the synthetic models, 25 GB for all steps. LIMIT=540 seconds in all, JOBS=4 processes at once,
# HONE_DATA the folder of the test data, SMOLLM2 the model's file, COUNTER a built tests/allocations.c where there is no compiler.
set -u
cd "$(dirname "$0")/.." || exit 2
hone=${HONE:-${B:-build}/hone}
case $hone in /*) ;; *) hone=$PWD/$hone ;; esac
out=${OUT:-$(mktemp -d)}
models=${MODELS:-/dev/shm/hone-models}
limit=${LIMIT:-540}
jobs=${JOBS:-4}
data=${HONE_DATA:-$PWD/../shared/data}
cache=${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}
smollm2=${SMOLLM2:-$cache/SmolLM2-135M-Instruct.Q4_1.gguf}
began=${CUDA_SH_BEGAN:-$(date +%s)}
tokens=11,48,85,122,159,36,73,110,147,24,61,98,135,12,49,86,123,0,37,74,111,148,25,62 # of the test data, and below any vocabulary
export HONE_JOURNAL="$out/journal.db" HONE_CACHE="$models/cache" HONE="$hone" OUT="$out" MODELS="$models" HONE_DATA="$data" CUDA_SH_BEGAN="$began" LIMIT="$limit"
table() { python3 bench/cuda_table.py "$@"; }

# Runs a command within its own limit and what is left of the whole; its output goes to a log.
run() { # log seconds command...
    log=$out/$1 most=$2
    shift 2
    left=$((limit - $(date +%s) + began))
    [ "$most" -lt "$left" ] || most=$left
    [ "$most" -gt 0 ] || { echo "no time left for: $*" >>"$out/failures"; return 124; }
    timeout -s INT -k 5 "$most" "$@" >"$log" 2>"$log.err" # then it tells what it has
    rc=$?
    [ $rc = 0 ] || { echo "exit code $rc: $*"; tail -n 2 "$log.err"; } >>"$out/failures"
    return $rc
}
note() { # ok, FAIL, skip or a dash; what; words
    printf '%-4s %-12s %s\n' "$1" "$2" "$3" | tee -a "$out/table"
}

model() { # shape type [option...]: its path
    path=$models/$1-$2.gguf
    shape=$1 type=$2
    shift 2
    [ -s "$path" ] || run "synth-$shape-$type" 150 "$hone" synth "$shape" "$type" "$path" "$@" || return 1
    echo "$path"
}

# Small models in the shapes of real ones, for what takes long: heads of 64, 128 and 256, dense and gated, a name a line.
narrow() {
    while read -r name shape type more; do
        path=$models/narrow-$name.gguf
        # shellcheck disable=SC2086
        [ -s "$path" ] || "$hone" synth "$shape" "$type" "$path" --no-vocab --vocab 512 $more >/dev/null 2>>"$out/failures" || continue
        echo "$path"
    done <<'END'
heads64 smollm2-135m Q4_K_M --layers 2
heads128 llama3.1-8b Q4_0 --layers 2 --width 512
gemma3 gemma3-270m Q5_K_M --layers 6
qwen35 qwen3.5-0.8b Q4_0 --layers 4
END
}
small_models() {
    narrow
    ls "$data"/archs/*.gguf 2>/dev/null
}
each_small() { # function folder [word]: for every small model, several at once
    mkdir -p "$out/$2"
    small_models | xargs -P "$jobs" -I '{}' sh bench/cuda.sh --one "$1" '{}' "${3:-}"
}

step_devices() {
    run devices 60 "$hone" devices
    cat "$out/devices"
    note - devices "$("$hone" --version); $(grep -A 4 '^cuda' "$out/devices" | grep -E '^cuda|read' | tr -s ' \n' ' ')"
}

check_with() { # log, kernels, an environment variable or nothing
    # shellcheck disable=SC2086
    run "$1.jsonl" 60 env ${3:-} "$hone" check --kernel "$2" --seed 1 --jobs "${CHECK_JOBS:-1}" --time-limit 10 -o jsonl
    table check "$out/$1.jsonl" "${3:+with $3}" >"$out/$1.txt"
    head -n 1 "$out/$1.txt" | tee -a "$out/table"
    tail -n +2 "$out/$1.txt" | head -n 40
}
step_check() {
    check_with check 'cuda_*'
    check_with check-early 'cuda_*' HONE_CUDA_OVERLAP=1
}
step_streamed() { check_with check-streamed 'cuda_*m*_s32' HONE_CUDA_STREAM=1; } # products, with and without norms

sanitizer() {
    for at in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
        [ ! -x "$at" ] || { echo "$at"; return; }
    done
    return 1
}
one_sanitize() { # model tool: a prefill of 16 tokens, steps of one (the first are launched, the later ones replayed), and a second request
    name=$(basename "$1" .gguf) log=$out/$2/$(basename "$1" .gguf)
    job='{"tokens": ['$tokens'], "prefill": 16, "greedy": 3}'
    printf '%s\n%s\n' "$job" "$job" |
        timeout -k 5 "${SANITIZE_LIMIT:-150}" "$(sanitizer)" --tool "$2" --error-exitcode 9 "$hone" eval -m "$1" -t 2 -c 64 --jobs - >"$log" 2>&1
    echo "exit code $?" >>"$log"
}
sanitize() {
    [ -n "$(sanitizer)" ] || { note skip "$1" "no compute-sanitizer here"; return; }
    each_small sanitize "$1" "$1"
    table sanitize "$1" "$out/$1" | tee -a "$out/table"
}
step_memcheck() { sanitize memcheck; }
step_racecheck() { sanitize racecheck; }
step_synccheck() { sanitize synccheck; }
step_initcheck() { sanitize initcheck; }

one_arch() { # model: half of its tokens at once, the others one by one; the kernels of its graph; what its plan says
    log=$out/archs/$(basename "$1" .gguf)
    echo '{"tokens": ['"$(sed -n 's/.*"tokens":\[\([0-9,]*\)\].*/\1/p' "${1%.gguf}.json")"'], "prefill": 12, "from": 0, "logits": "'"$log.f32"'"}' |
        timeout -k 5 60 "$hone" eval -m "$1" -t 2 -c 64 --jobs - >"$log.eval" 2>&1
    timeout -k 5 90 "$hone" check --shadow -m "$1" -t 2 -c 64 -o json >"$log.shadow" 2>"$log.shadow.err"
    timeout -k 5 60 "$hone" trace -m "$1" -t 2 -c 64 -r 3 -o json >"$log.trace" 2>"$log.trace.err"
}
step_archs() {
    ls "$data"/archs/*.gguf >/dev/null 2>&1 || { note skip archs "no models in $data/archs"; return; }
    mkdir -p "$out/archs"
    for path in "$data"/archs/*.gguf; do echo "$path"; done | xargs -P "$jobs" -I '{}' sh bench/cuda.sh --one arch '{}'
    table archs "$out/archs" "$data/archs" >"$out/archs.txt"
    cat "$out/archs.txt"
    tail -n 3 "$out/archs.txt" >>"$out/table"
    rm -f "$out"/archs/*.f32
}

step_agree() {
    [ -r "$smollm2" ] || { note skip agree "no SmolLM2 at $smollm2"; return; }
    run agree.jsonl 120 python3 bench/agree.py "$hone" "$smollm2" "$models/agree" gpu
    table agree "$out/agree.jsonl" | tee -a "$out/table"
}

step_ladder() {
    path=$smollm2
    [ -r "$path" ] || path=$(model smollm2-135m Q4_0) || return
    for path in "$path" "$(narrow | grep qwen35)" "$(narrow | grep gemma3)"; do
        name=$(basename "$path" .gguf)
        run "ladder-$name" 60 "$hone" ladder -m "$path" --texts 2 --greedy 16 --seconds 0.1 --no-cache
        run "place-$name" 30 "$hone" trace -m "$path" -r 3 -o json
        table ladder "$name" "$out/ladder-$name" "$out/place-$name" | tee -a "$out/table"
    done
}

one_same() { # model number: the hashes of two requests
    job='{"tokens": ['$tokens'], "prefill": 16, "from": 0, "greedy": 32}'
    printf '%s\n%s\n' "$job" "$job" | timeout -k 5 60 "$hone" eval -m "$1" -t 2 -c 128 --jobs - 2>&1 | grep -o '"logits_hash": *"[^"]*"\|^hone.*' \
        >"$out/same/$(basename "$1" .gguf).$2"
}
step_same() {
    mkdir -p "$out/same"
    for path in $(narrow | grep -e heads64 -e qwen35) "$(model llama3.2-1b Q4_0)"; do
        rm -f "$out/same/$(basename "$path" .gguf)".*
        seq 20 | xargs -P "$jobs" -I '{}' sh bench/cuda.sh --one same "$path" '{}'
        note "$([ "$(cat "$out/same/$(basename "$path" .gguf)".* | sort -u | wc -l)" = 1 ] &&
            [ "$(cat "$out/same/$(basename "$path" .gguf)".* | grep -c logits_hash)" = 40 ] && echo ok || echo FAIL)" same \
            "$(basename "$path" .gguf): $(cat "$out/same/$(basename "$path" .gguf)".* | sort | uniq -c | tr -s ' \n' ' ')of 20 runs of two requests each"
    done
}

step_allocations() {
    for path in $(narrow | grep -e heads64 -e qwen35); do
        run "allocations-$(basename "$path" .gguf)" 90 sh bench/allocations.sh "$path" -t 2
        case $? in 0) how=ok ;; 77) how=skip ;; *) how=FAIL ;; esac
        note $how allocations "$(basename "$path" .gguf): $(cat "$out/allocations-$(basename "$path" .gguf)")"
    done
}

# Decode and prefill as llama-bench has them. The references' logits, which take the host long, are made before and kept; where they do not come
# in time the figures stand without a verdict, and the line says so.
speed() { # shape type seconds decode prefill: the last two are what is asked for
    path=$(model "$1" "$2") || return
    verify=${VERIFY:-}
    if [ -z "$verify" ]; then
        run "reference-$1" "${REFERENCE_LIMIT:-100}" "$hone" bench -m "$path" -p 0 -n 1 -r 1 --no-warmup --no-roof --no-journal
        [ $? != 124 ] || verify=--no-verify # another output than the references' is a verdict too
    fi
    # shellcheck disable=SC2086
    run "bench-$1.jsonl" "$3" "$hone" bench -m "$path" -p 512 -n 512 -r 5 $verify -o jsonl
    table speed "$1" "$out/bench-$1.jsonl" "$4" "$5" | tee -a "$out/table"
}
step_1b() { speed llama3.2-1b Q4_0 90 1700 0; }
step_8b() { speed llama3.1-8b Q4_K_M 120 480 15000; }
step_27b() { speed qwen3.6-27b Q4_0 200 180 6000; }
step_deep() {
    path=$(model qwen3.6-27b Q4_0) || return
    run bench-deep.jsonl 120 "$hone" bench -m "$path" -p 0 -n 64 -d 0,32768 -r 3 --no-verify -o jsonl
    table deep "$out/bench-deep.jsonl" 0.8 | tee -a "$out/table"
}
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
    for spec in ${SHADOW:-smollm2-135m:Q4_0}; do
        path=$(model "${spec%%:*}" "${spec#*:}") || continue
        how=FAIL
        # shellcheck disable=SC2086
        run "shadow-${spec%%:*}" 120 "$hone" check --shadow -m "$path" -c 256 ${SHADOW:+--n-prefill 2 --n-decode 1} && how=ok
        note $how shadow "${spec%%:*}: $(tail -n 1 "$out/shadow-${spec%%:*}")"
    done
}

if [ "${1:-}" = --one ]; then
    shift
    # A queue a stream is for ranks that share a card; twelve processes that each ask the driver for as many take more than 6 s to begin, with two 3 s.
    export CUDA_DEVICE_MAX_CONNECTIONS=2
    word=$1
    shift
    [ "$(date +%s)" -lt $((began + limit)) ] && "one_$word" "$@"
    exit 0
fi
[ -x "$hone" ] || { echo "cuda.sh: no hone at $hone: build it, or name it by HONE=" >&2; exit 2; }
steps=${*:-devices check streamed 1b 8b 27b deep archs agree ladder same allocations memcheck racecheck shadow trace}
for step in $steps; do
    grep -q "^step_$step()" bench/cuda.sh && continue
    echo "cuda.sh: no step '$step'; there are:$(sed -n 's/^step_\([a-z0-9]*\)().*/ \1/p' bench/cuda.sh | tr -d '\n')" >&2
    exit 2
done
"$hone" devices 2>/dev/null | grep -q '^cuda' || { echo "cuda.sh: no CUDA device here, or a build without CUDA: SKIPPED"; exit 0; }
mkdir -p "$out" "$models/cache"
rm -f "$out/table" "$out/failures"
for step in $steps; do
    echo "== $step ($(($(date +%s) - began)) s)"
    "step_$step"
done
"$hone" journal export --out "$out/journal.jsonl" >/dev/null 2>&1
echo "== what failed"
[ ! -f "$out/failures" ] || tail -n 30 "$out/failures"
echo "== results, after $(($(date +%s) - began)) s"
cat "$out/table"
! grep -q '^FAIL' "$out/table"
