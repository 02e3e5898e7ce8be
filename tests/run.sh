#!/bin/sh
# Runs the tests and closes with one line: N passed, N failed, N skipped. A test is an executable (tests/test_*.c, built with
# cmocka) or a script (tests/*_test.sh; tests/*_soak.sh). Exit code 77 is a visible skip.
#   run.sh units | scripts | tsan TEST... | all | soak
set -u
cd "$(dirname "$0")/.."
B=${B:-build}
export B
# Where the independent test data lies; tests that need it say so when it is missing.
HONE_DATA=${HONE_DATA:-$PWD/../shared/data}
export HONE_DATA
# The real models, fetched once; tests that need one say so when it is missing.
models() {
    for name in smollm2 gemma3; do
        path=$(sh examples/fetch.sh $name) && HONE_MODELS=$(dirname "$path") || echo "== $name: SKIPPED by the tests that need it"
    done
    export HONE_MODELS
}
HONE_MODELS=${HONE_MODELS:-}
# Published chat templates, fetched once; their test says so when they are missing.
templates() {
    HONE_TEMPLATES=$(sh tests/golden/templates.sh) || echo "== chat templates: SKIPPED by the test that needs them"
    export HONE_TEMPLATES
}
# What tests measure is recorded in a journal of their own.
journal=$(mktemp -d)
trap 'rm -rf "$journal"' EXIT
HONE_JOURNAL=$journal/journal.db
export HONE_JOURNAL
passed=0 failed=0 skipped=0 failures=

count() { # name, exit code, seconds
    case $2 in
    0)
        passed=$((passed + 1))
        [ "$3" -lt 10 ] || printf '== %s: %d s\n' "$1" "$3"
        ;;
    77)
        skipped=$((skipped + 1))
        printf '== %s: SKIPPED\n' "$1"
        ;;
    *)
        failed=$((failed + 1))
        failures="$failures $1"
        printf '== %s: FAILED (exit code %d, %d s)\n' "$1" "$2" "$3"
        ;;
    esac
}

run() { # name command...
    name=$1
    shift
    printf '== %s\n' "$name"
    start=$(date +%s)
    "$@"
    count "$name" $? $(($(date +%s) - start))
}

# One test a processor at a time, since one alone leaves the others idle for most of its time. What each says is shown when all are done.
side_by_side() { # tests, a line each in $journal/order
    HONE_OUTPUTS=$journal xargs -P "$(nproc)" -I '{}' sh tests/run.sh one '{}' <"$journal/order"
    sort "$journal/order" >"$journal/told"
    while read -r t; do
        name=$(basename "$t" .sh)
        printf '== %s\n' "$name"
        cat "$journal/$name.out"
        read -r rc spent <"$journal/$name.rc" || { rc=1 spent=0; }
        count "$name" "$rc" "$spent"
    done <"$journal/told"
}
# Every unit test, the long ones first, lest one of them runs by itself at the end; then one by one those that look at the clock.
units_side_by_side() {
    long='test_archs test_arch_types test_hybrid test_float_kernels test_malformed test_shard'
    timed='test_check test_engine'
    for name in $long; do [ ! -x "$B/tests/$name" ] || echo "$B/tests/$name"; done >"$journal/order"
    for t in "$B"/tests/test_*; do
        case " $long $timed " in *" $(basename "$t") "*) continue ;; esac
        case $t in *.o | *.d) ;; *) echo "$t" ;; esac
    done >>"$journal/order"
    side_by_side
    for name in $timed; do [ ! -x "$B/tests/$name" ] || run "$name" "$B/tests/$name"; done
}
# The scripts, in the same way; by themselves those whose processes wait for one another by spinning.
scripts_side_by_side() {
    long='ab iterate cuda_emulated tier bench ladder'
    spinning='mpi processes shard_mpi collectives'
    for name in $long; do echo "tests/${name}_test.sh"; done >"$journal/order"
    for t in tests/*_test.sh; do
        case " $long $spinning " in *" $(basename "$t" _test.sh) "*) ;; *) echo "$t" ;; esac
    done >>"$journal/order"
    side_by_side
    for name in $spinning; do run "${name}_test" sh "tests/${name}_test.sh"; done
}

case ${1:-all} in
self) # what tests/run_test.sh looks at: one of each outcome
    run good true
    run bad false
    run missing sh -c 'exit 77'
    ;;
one) # for side_by_side
    name=$(basename "$2" .sh) start=$(date +%s) rc=0
    case $2 in *.sh) set -- one sh "$2" ;; esac
    shift
    "$@" >"$HONE_OUTPUTS/$name.out" 2>&1 || rc=$?
    echo "$rc $(($(date +%s) - start))" >"$HONE_OUTPUTS/$name.rc"
    exit 0
    ;;
units) units_side_by_side ;;
scripts) scripts_side_by_side ;;
tsan)
    shift
    for t; do echo "$t"; done >"$journal/order"
    side_by_side
    ;;
all)
    models
    templates
    run deps sh tests/deps.sh
    units_side_by_side
    scripts_side_by_side
    run asan make --no-print-directory asan
    run tsan make --no-print-directory tsan
    run fuzz make --no-print-directory fuzz FUZZ_SECONDS="${FUZZ_SECONDS:-20}"
    ;;
soak)
    models
    HONE_SOAK=1
    export HONE_SOAK
    run test_real "$B/tests/test_real"
    for t in tests/*_soak.sh; do run "$(basename "$t" .sh)" sh "$t"; done
    run fuzz make --no-print-directory fuzz FUZZ_SECONDS=300
    ;;
*)
    echo "usage: run.sh units|scripts|tsan TEST...|all|soak" >&2
    exit 2
    ;;
esac
[ -z "$failures" ] || printf 'failed:%s\n' "$failures"
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
