#!/bin/sh
# llama.cpp's own compare-llama-bench.py reads files of hone bench and prints its table: from JSON, CSV, JSON lines and SQLite, also when a test of
# them failed. bench/compare.sh takes the script; without a network and without it in the cache this is skipped.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
hone=$B/hone
[ -x "$hone" ] || { echo "$hone is not built"; exit 77; }
rc=0
tool=$(sh bench/compare.sh --script) || rc=$?
[ $rc = 0 ] || { echo "compare: SKIPPED: the script is not to be had (exit code $rc)"; exit 77; }
PYTHONPATH=$(echo "$tool" | sed -n 1p) python=$(echo "$tool" | sed -n 2p) script=$(echo "$tool" | sed -n 3p)
export PYTHONPATH
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$hone" synth llama3.2-1b Q4_0 "$dir/tiny.gguf" --layers 2 --width 128 --vocab 320 >/dev/null 2>&1
bench="$hone bench -m $dir/tiny.gguf --no-journal --no-roof --no-verify -r 2 -p 8 -n 4 -d 0,16"

rename() { # file: its rows' commit, whatever the format
    sed -i 's/"build_commit": "[0-9a-z]*"/"build_commit": "0123456789ab"/; s/^"[0-9a-f]\{12\}"/"0123456789ab"/; s/VALUES (.[0-9a-z]*./VALUES ('\''0123456789ab'\''/' "$1"
}

# Two files of one build; the second says that it is of another, as it would be after a commit.
for format in json jsonl csv sql; do
    # shellcheck disable=SC2086
    for f in a b; do $bench -o $format >"$dir/$f.$format" 2>"$dir/err" || { cat "$dir/err"; exit 1; }; done
    rename "$dir/b.$format"
done
commit=$(sed -n 's/.*"build_commit": "\([0-9a-z]*\)".*/\1/p' "$dir/a.json" | head -n 1)
cat "$dir/a.jsonl" "$dir/b.jsonl" >"$dir/both.jsonl"
"$python" - "$dir" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/both.sqlite")
for name in "ab":
    db.executescript(open(f"{sys.argv[1]}/{name}.sql").read())
END

failed=0
check() { # what, then the script's arguments
    what=$1
    shift
    (cd "$dir" && "$python" "$script" -t llama-bench -b "$commit" -c 0123456789ab "$@") >"$dir/table" 2>&1 || { echo "compare: $what: the script fails"; cat "$dir/table"; failed=1; }
    for test in 'pp8 ' 'tg4 ' 'pp8@d16' 'tg4@d16'; do
        grep -q "^| .* $test *|.*|.*|.*|$" "$dir/table" || { echo "compare: $what: no row for $test"; cat "$dir/table"; failed=1; }
    done
    [ "$(grep -c '^| ' "$dir/table")" = 5 ] || { echo "compare: $what: not four rows"; cat "$dir/table"; failed=1; }
}
check JSON -i a.json -i b.json
cat "$dir/table"
check CSV -i a.csv -i b.csv
check 'JSON lines' -i both.jsonl
check SQLite -i both.sqlite

# The same with a test in each that failed.
for f in a b; do
    for format in json csv; do
        rc=0
        $hone bench -m "$dir/none.gguf,$dir/tiny.gguf" --no-journal --no-roof --no-verify -r 2 -p 8 -n 4 -d 0,16 -o $format >"$dir/$f.$format" 2>/dev/null || rc=$?
        [ $rc = 1 ] || { echo "compare: a failed test gives exit code $rc"; failed=1; }
        [ $f = a ] || rename "$dir/$f.$format"
    done
done
check 'JSON with a failed test' -i a.json -i b.json
check 'CSV with a failed test' -i a.csv -i b.csv

# And through bench/compare.sh, which needs no other commit.
cp "$dir/a.json" "$dir/c.json"
sh bench/compare.sh "$dir/a.json" "$dir/c.json" >"$dir/table" 2>&1 || failed=1
grep -q 'tg4@d16.*1\.00' "$dir/table" || { echo "compare: bench/compare.sh"; cat "$dir/table"; failed=1; }
exit $failed
