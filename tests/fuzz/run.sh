#!/bin/sh
# Runs every fuzz target for the given seconds from its seeds (tests/fuzz/seeds/<target>/, may be missing). A finding is left as
# build/fuzz-findings/<target>-* and fails.
set -u
cd "$(dirname "$0")/../.."
B=${B:-build}
seconds=${1:-20}
rc=0
mkdir -p "$B/fuzz-findings"
for f in "$B"/clang/fuzz/*; do
    name=$(basename "$f")
    corpus="$B/fuzz-corpus/$name"
    mkdir -p "$corpus"
    seeds=
    [ -d "tests/fuzz/seeds/$name" ] && seeds="tests/fuzz/seeds/$name"
    # shellcheck disable=SC2086
    if "$f" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$B/fuzz-findings/$name-" "$corpus" $seeds >"$B/fuzz-findings/$name.log" 2>&1; then
        runs=$(sed -n 's/stat::number_of_executed_units: *//p' "$B/fuzz-findings/$name.log")
        echo "fuzz $name: $runs runs in $seconds s, no finding"
    else
        tail -n 40 "$B/fuzz-findings/$name.log"
        echo "fuzz $name: FOUND something, see $B/fuzz-findings/"
        rc=1
    fi
done
exit $rc
