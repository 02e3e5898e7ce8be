#!/bin/sh
# hone plan: rows for growing numbers of devices from a trace made here and from one in a file, the point where more stop paying, and refusals.
set -u
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
expect() { # code words... : the exit code, and what must stand in the output (stdout and stderr)
    code=$1 want=$2
    shift 2
    "$hone" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    if [ $rc = "$code" ] && cat "$dir/out" "$dir/err" | grep -q -- "$want"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "plan_test: hone $*: exit code $rc, not $code, or no '$want':"
        cat "$dir/out" "$dir/err" | head -n 5
    fi
}
"$hone" synth smollm2-135m Q4_0 "$dir/m.gguf" --layers 2 --vocab 1000 >/dev/null || exit 1
file="-m $dir/m.gguf" m="-m $dir/m.gguf -t 1"
# shellcheck disable=SC2086
{
    expect 0 'assumed:' plan $m --devices 8 --link 3us,12GB/s
    expect 0 'stop paying' plan $m --devices 256 --link 500us,1GB/s
    expect 0 'link: ' plan $m --devices 2
    "$hone" trace $m -o json --no-journal >"$dir/trace.json"
    expect 0 '"enough"' plan $file --trace "$dir/trace.json" --devices 256 --link 40us,10Gb/s -o json
    python3 - "$dir/out" <<'EOT' && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "plan_test: the rows do not hold together"; }
import json, sys
p = json.load(open(sys.argv[1]))
rows = p["rows"]
most = p["most_splittable"]
assert [r["devices"] for r in rows] == [n for n in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256] if n < most] + [most], rows
assert rows[0]["sums_ns"] == 0 and rows[0]["speedup"] == 1
for a, b in zip(rows, rows[1:]):
    assert b["compute_ns"] <= a["compute_ns"] and b["sums_ns"] > a["sums_ns"]
    assert abs(b["step_ns"] - b["compute_ns"] - b["sums_ns"] - b["gather_ns"]) < 1
assert p["sums"] == 4 and p["sum_bytes"] == 4 * 576
assert 1 <= p["enough"] <= most <= 256 and p["more_stop_paying"] and len(p["assumptions"]) == 4
EOT
    "$hone" synth smollm2-135m Q4_0 "$dir/other.gguf" --layers 2 --vocab 1000 --seed 2 >/dev/null
    expect 3 'a trace of another model' plan -m "$dir/other.gguf" --trace "$dir/trace.json" --link 1us,1GB/s
    "$hone" synth smollm2-135m Q4_0 "$dir/small.gguf" --layers 2 --width 64 --vocab 320 >/dev/null
    expect 0 'nothing of this model can be split over more than [1-9]' plan -m "$dir/small.gguf" -t 1 --devices 256 --link 3ms,10Mb/s
    expect 0 'link: 3.00 ms and 1.25 MB/s' plan -m "$dir/small.gguf" -t 1 --link 3ms,10Mb/s
    expect 2 '-t has no place here' plan $m --trace "$dir/trace.json"
    expect 2 '-sm has no place here' plan $m -sm tensor
    expect 2 "LATENCY,BANDWIDTH" plan $m --link fast
    expect 2 'devices' plan $m --devices 0
    echo '{' >"$dir/broken.json"
    expect 3 'broken.json:' plan $file --trace "$dir/broken.json" --link 1us,1GB/s
    echo '{}' >"$dir/empty.json"
    expect 3 'no nodes' plan $file --trace "$dir/empty.json" --link 1us,1GB/s
    expect 3 'nothing.json' plan $file --trace "$dir/nothing.json" --link 1us,1GB/s
    expect 2 'no option' plan $m 7
}
echo "plan_test: $passed passed, $failed failed"
[ $failed = 0 ]
