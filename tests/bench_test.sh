#!/bin/sh
# hone bench from the command line, on a tiny synthetic model: every format is read by a parser that is not ours, a failed test is a row and exit
# code 1, every flag of llama-bench is known, and what is refused is refused by name. No figure is looked at, only that there is one.
. "$(dirname "$0")/script.sh"
dir=$tmp
mkdir "$HONE_CACHE"
expect() { # exit code, pattern in what is printed ("": any), arguments of bench...
    code=$1 pattern=$2
    shift 2
    rc=0
    timeout 120 "$hone" bench "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ "$rc" = "$code" ] || fail "exit code $rc, not $code: $*: $(tail -n 3 "$dir/err")"
    cat "$dir/out" "$dir/err" | grep -q -e "$pattern" || fail "no '$pattern' from: $*: $(head -c 300 "$dir/out"; head -c 300 "$dir/err")"
}
"$hone" synth llama3.2-1b Q4_0 "$dir/tiny.gguf" --layers 2 --width 128 --vocab 320 >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
model=$dir/tiny.gguf
quick="-m $model --no-journal --no-roof -r 2 -p 4 -n 2"

# Every format, read by others. quick is split into words on purpose.
# shellcheck disable=SC2086
expect 0 'quality-equal\|token-identical' $quick
# shellcheck disable=SC2086
for format in json jsonl csv sql md; do
    expect 0 '' $quick -pg 4,2 -d 0,8 -o $format
    cp "$dir/out" "$dir/rows.$format"
done
python3 - "$dir" <<'END' || failed=1
import csv, json, sqlite3, sys
d = sys.argv[1]
rows = json.load(open(d + "/rows.json"))
lines = [json.loads(line) for line in open(d + "/rows.jsonl")]
table = list(csv.DictReader(open(d + "/rows.csv")))
db = sqlite3.connect(":memory:")
db.row_factory = sqlite3.Row
db.executescript(open(d + "/rows.sql").read())
sql = [dict(r) for r in db.execute("SELECT * FROM llama_bench")]
tests = ["pp4", "tg2", "pp4+tg2", "pp4 @ d8", "tg2 @ d8", "pp4+tg2 @ d8"]
for name, list_ in ("json", rows), ("jsonl", lines), ("csv", table), ("sql", sql):
    assert [r["test"] for r in list_] == tests, name
    assert [list(r) for r in list_] == [list(rows[0])] * 6, name + ": other fields"
hashes = [r["output_hash"] for r in rows]
assert len(set(hashes)) == 6
for other in lines, table, sql:  # the same build and recipe: the same bits
    assert [r["output_hash"] for r in other] == hashes
for r in rows:
    assert r["status"] == "done" and r["error"] is None and r["schema_version"] == 1
    assert len(r["samples_ns"]) == 2 and r["avg_ns"] == sum(r["samples_ns"]) // 2
    assert abs(r["total_ts"] - 2e9 * (r["n_prompt"] + r["n_gen"]) / sum(r["samples_ns"])) < 1e-6 * r["total_ts"]
    assert r["verdict"] != "different" and r["correctness"]["positions"] > 0 and r["deterministic"] is True
    assert r["kernels"] and r["peak_memory"]["cpu"] > 0 and r["bytes"]["weights"] > 0
    assert r["roof_share"] is None
md = [line for line in open(d + "/rows.md") if line.startswith("|")]
assert len(md) == 8 and len({line.count("|") for line in md}) == 1
END
expect 0 '"roof_share": [0-9]' -m "$model" --no-journal -r 1 -p 4 -n 0 -o jsonl -t 1

# A recipe's threads and types stand in for what the command line does not say.
printf 'threads=1\ntype_k=q8_0\n' >"$dir/t.recipe"
expect 0 '"type_k": "q8_0", "type_v": "f16"' -m "$model" --no-journal --no-verify --no-roof -r 1 -p 4 -n 0 -o jsonl --recipe "$dir/t.recipe"
grep -q '"n_threads": 1,' "$dir/out" || { echo "bench: the recipe's threads were not taken"; failed=1; }
expect 0 '"n_threads": 2,' -m "$model" --no-journal --no-verify --no-roof -r 1 -p 4 -n 0 -o jsonl -t 2 --recipe "$dir/t.recipe"

# What fails is a row, the sweep goes on, the code says so, and JSON stays JSON.
expect 1 '' -m "$dir/none.gguf,$model" --no-journal --no-roof -r 1 -p 4 -n 0 -d 0,2000000000 -o json
python3 - "$dir/out" <<'END' || failed=1
import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["status"] for r in rows] == ["failed", "failed", "done", "failed"]
assert "none.gguf" in rows[0]["error"] and "KV cache" in rows[3]["error"] and rows[0]["avg_ts"] is None
END
grep -q '3 of 4 tests failed' "$dir/err" || fail "stderr does not count what failed"

# A kernel that is wrong (tests/poison): the figures are there, the verdict says different, and the code is 1.
if cc -shared -fPIC -Iinclude -o "$dir/poison.so" tests/poison/attention.c -lm 2>"$dir/log"; then
    # shellcheck disable=SC2086
    {
        expect 1 '"verdict": "different"' $quick --plugin "$dir/poison.so" --set kernel.attention=last_token_missed -o jsonl
        expect 0 '"kernel":"plugin_attention_right"\|attention_right' $quick --plugin "$dir/poison.so" --set kernel.attention=right -o jsonl
    }
else
    fail "the poisoned kernel does not build: $(head -n 3 "$dir/log")"
fi

# Verdict and warm-up can be left out, visibly; references show as fallbacks.
# shellcheck disable=SC2086
{
    expect 0 '"verdict": "unverified"' $quick --no-verify -o jsonl
    expect 0 '"warmup": null' $quick --no-warmup -o jsonl
    expect 0 '"fallbacks": \[{"step":"prefill"' $quick --set kernel=ref -o jsonl
    expect 0 'nodes ran on a reference' $quick --set kernel=ref
    expect 0 'processors' $quick -t 64 --no-verify
    expect 0 '^{"build_commit"' $quick -o none -oe jsonl
    expect 0 'test 1 of 2: warm-up' $quick --progress
    expect 0 '"cpu_strict": true' $quick -C 0x1 --cpu-strict 1 -t 1,2 -o jsonl --no-verify
}

# Every flag of `llama-bench --help`: what makes sense here runs.
# shellcheck disable=SC2086
expect 0 '' $quick --delay 0 --prio 0 --numa numactl --offline -ngl 0 -ncmoe 0 -sm layer -mg 0 -nkvo 1 -fa on -dev none -lm mmap -lzm on -embd 0 \
    -ts 1 -ot '' -nopo 1 --no-host 1 --repack 1 -fitt 0 -fitc 0 -b 64 -ub 32 -ctk f16 -ctv f16 -C 0x0 --cpu-strict 0 --poll 50 -t 1 --progress
# ... a comma parts configurations, a slash the parts of one ...
# shellcheck disable=SC2086
{
    expect 0 '' $quick -ts 1,9 -o jsonl
    [ "$(wc -l <"$dir/out")" = 4 ] || fail "-ts 1,9 is not two configurations"
    expect 0 '' $quick -sm none,tensor -ts 1/1 -t 2 -o jsonl
    [ "$(wc -l <"$dir/out")" = 4 ] || fail "-sm none,tensor is not two configurations, of which one is that of one device"
    grep -q '"times_one_device": [0-9]' "$dir/out" || fail "one device that was asked for does not stand beside"
    # Over two devices one of them with all the threads stands beside, once for all splits of as many threads, before them.
    expect 0 '' $quick -sm tensor -ts 1/1,2/1 -t 2 -o jsonl
    python3 - "$dir/out" <<'ROWS' || failed=1
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [(r["test"], r["n_devices"], r["one_device"], r["tensor_split"]) for r in rows] == [
    ("pp4", 1, True, "0.00"), ("tg2", 1, True, "0.00"), ("pp4", 2, False, "1.00/1.00"), ("tg2", 2, False, "1.00/1.00"),
    ("pp4", 2, False, "2.00/1.00"), ("tg2", 2, False, "2.00/1.00")], [(r["test"], r["n_devices"], r["one_device"], r["tensor_split"]) for r in rows]
for r in rows:
    assert r["n_threads"] == 2 and r["verdict"] != "different"
    one = next(o for o in rows if o["one_device"] and o["test"] == r["test"])
    if r["one_device"]:
        assert r["split_mode"] == "none" and r["times_one_device"] is None and r["collectives"] is None
    else:
        assert abs(r["times_one_device"] - r["total_ts"] / one["total_ts"]) < 1e-6
        c = r["collectives"]
        assert c["transport"] == "local" and c["threads"] == [1, 1] and c["count"] >= 4 and c["bytes"] > 0
ROWS
    expect 0 'one device' $quick -sm tensor -dev cpu:1/cpu:1
    grep -q '| 2 local ' "$dir/out" && grep -q 'x one device' "$dir/out" || fail "no devices in the table: $(cat "$dir/out")"
    expect 0 '' $quick -sm tensor -dev cpu:1/cpu:1 -o jsonl --no-one-device
    [ "$(wc -l <"$dir/out")" = 2 ] || fail "--no-one-device leaves more than two rows"
    expect 0 '' $quick -sm layer -ts 1/1 -t 2 -o jsonl
    expect 2 '^hone: -ts' $quick -ts 1/x
}
# ... and the rest is refused by name.
while read -r words; do
    # shellcheck disable=SC2086
    expect 2 "^hone: ${words%% *}" $quick $words
done <<'END'
-ngl 99
-ncmoe 1
-sm row
-sm tensor
-mg 1
-fa off
-dev CUDA0/CUDA1
-lm dio
-lzm off
-mmp 0
-dio 1
-embd 1
-ot blk=CPU
--repack 0
-fitt 1024
-fitc 4096
-rpc localhost:1
-hf owner/model:Q4_K_M
-hff file.gguf
-hft token
--numa isolate
-ctk q7
-p 8-4
-pg 1
-o xml
-oe xml
-r 0
--prio 4
END
expect 2 'which model' -p 4
expect 2 'no tests' -m "$model" -p 0 -n 0
expect 0 '^cpu:0: ' --list-devices
expect 0 '^hone [0-9]' --version
for flag in --numa -r --prio --delay -o -oe --list-devices -v --progress --no-warmup -fitt -fitc -rpc -m -hf -hfr -hff -hft --offline -p -n -pg -d -b -ub \
    -ctk -ctv -t -C --cpu-strict --poll -ngl -ncmoe -sm -mg -nkvo -fa -dev -lm -lzm -embd -ts -ot -nopo --no-host --repack; do
    "$hone" bench --help | grep -q -e "^  \(.*, \)\?${flag}[ ,]" || fail "--help lacks $flag"
done

# Each row is a run of the journal, each sample in it.
expect 0 '' -m "$model" --no-roof -r 3 -p 4 -n 2
python3 - "$HONE_JOURNAL" <<'END' || failed=1
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute("SELECT count(*) FROM runs").fetchone()[0] == 2
assert db.execute("SELECT count(*) FROM samples").fetchone()[0] == 12
END

# Ctrl-C, once (without --foreground timeout sends it twice, and the second kills): a whole document with what was finished.
rc=0
# shellcheck disable=SC2086
timeout --foreground -s INT 2 "$hone" bench $quick -r 1000000 -o json >"$dir/out" 2>"$dir/err" || rc=$?
[ "$rc" = 124 ] || [ "$rc" = 130 ] || fail "Ctrl-C gives exit code $rc"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$dir/out" || fail "Ctrl-C leaves no JSON"

[ $failed = 0 ] && echo "bench: formats, failed rows, flags, journal: as they should be"
exit $failed
