#!/bin/sh
# Runs every fuzz target for the given seconds from its seeds (tests/fuzz/seeds/<target>/, may be missing), as many at once as there are
# processors. A finding is left as build/fuzz-findings/<target>-* and fails.
#   run.sh SECONDS | one SECONDS TARGET
set -u
cd "$(dirname "$0")/../.."
B=${B:-build}

one() { # seconds, target
    name=$(basename "$2")
    corpus="$B/fuzz-corpus/$name" log="$B/fuzz-findings/$name.log" seeds=
    mkdir -p "$corpus"
    [ -d "tests/fuzz/seeds/$name" ] && seeds="tests/fuzz/seeds/$name"
    # shellcheck disable=SC2086
    if "$2" -max_total_time="$1" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$B/fuzz-findings/$name-" "$corpus" $seeds >"$log" 2>&1; then
        echo "fuzz $name: $(sed -n 's/stat::number_of_executed_units: *//p' "$log") runs in $1 s, no finding"
    else
        tail -n 40 "$log"
        echo "fuzz $name: FOUND something, see $B/fuzz-findings/"
        return 1
    fi
}

if [ "${1:-}" = one ]; then
    one "$2" "$3"
    exit
fi
mkdir -p "$B/fuzz-findings"
for f in "$B"/clang/fuzz/*; do echo "$f"; done | xargs -P "$(nproc)" -I '{}' sh tests/fuzz/run.sh one "${1:-20}" '{}'
