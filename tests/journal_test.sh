#!/bin/sh
# The journal from the command line: what check, trace, ladder and bench leave in it; list, show, compare, regress, plot, note, verify,
# export and import; --no-journal; exit codes; and that an export's chain can be checked with sha256sum alone.
. "$(dirname "$0")/script.sh"
skipped=
"$hone" synth llama3.2-1b Q4_0 "$tmp/m.gguf" --layers 2 --width 256 --vocab 512 --seed 7 >/dev/null

# ---- what commands leave
expect 3 'there is no journal' "$hone" journal list
expect 0 'node' "$hone" trace -m "$tmp/m.gguf" -r 5 --hypothesis 'two layers are quick' --expect 3
expect 0 '0 faults' "$hone" check --op add
expect 0 '0 faults' "$hone" check -m "$tmp/m.gguf" --shadow --n-prefill 4 --n-decode 1
"$hone" ladder -m "$tmp/m.gguf" --texts 1 --greedy 4 --prompt-tokens 4 --seconds 0.01 --no-cache >"$tmp/ladder" 2>&1 || true
expect 0 'two layers are quick' "$hone" journal list
[ "$("$hone" journal list -o jsonl | wc -l)" = 4 ] || fail "not four runs: $("$hone" journal list)"
trace=$("$hone" journal list --kind trace -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
ladder=$("$hone" journal list --kind ladder -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
checked=$("$hone" journal list --kind check --model llama -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
expect 0 'decode d0 step us  *5 ' "$hone" journal show "$trace"
expect 0 'expected gain *+3 %' "$hone" journal show "$trace"
expect 0 'it is the one that was recorded' "$hone" journal show "$checked"
expect 0 'it is the one that was recorded' "$hone" journal show "$ladder"
expect 0 'rung reference decode t/s' "$hone" journal show "$ladder"
expect 0 '"series": "decode d0 step us"' "$hone" journal show "$trace" -o json
# The command line is kept as a shell would take it.
"$hone" trace -m "$tmp/m.gguf" -r 5 --hypothesis "it's quick" >/dev/null
"$hone" journal list --limit 1 | grep -q "it's quick" || fail "the newest run is not the last"
words=$("$hone" journal list --limit 1 -o jsonl | sed -n 's/.*"command":"\(.*\)","hypothesis".*/\1/p' | sed 's/\\\\/\\/g')
[ "$(eval "set -- $words"; for w; do last=$w; done; echo "$last")" = "it's quick" ] || fail "the command line is $words"

# ---- switched off, and not to be had
before=$("$hone" journal verify | head -n 1)
expect 0 'node' "$hone" trace -m "$tmp/m.gguf" -r 2 --no-journal
[ "$("$hone" journal verify | head -n 1)" = "$before" ] || fail "--no-journal records"
expect 4 'no-journal does without' "$hone" trace -m "$tmp/m.gguf" -r 2 --journal "$tmp/no/where.db"
expect 3 'not an SQLite database' "$hone" check --op add --journal README.md
expect 2 'expect x: a gain in percent' "$hone" check --op add --expect x
expect 4 'give --journal FILE or --no-journal' env -u HOME -u HONE_JOURNAL "$hone" check --op add
expect 0 '0 faults' env -u HONE_JOURNAL HOME="$tmp/home" "$hone" check --op add
[ -s "$tmp/home/.local/share/hone/journal.db" ] || fail "no journal in the user's data folder"
expect 0 '0 faults' env -u HONE_JOURNAL XDG_DATA_HOME="$tmp/data" "$hone" check --op add
[ -s "$tmp/data/hone/journal.db" ] || fail "no journal in XDG_DATA_HOME"

# ---- looking
second=$("$hone" journal list --kind trace --limit 1 -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
expect 0 'the runs differ in nothing' "$hone" journal compare "$trace" "$second"
expect 0 'decode d0 step us' "$hone" journal compare "$trace" "$second"
expect 0 'no series in common' "$hone" journal compare "$checked" "$second"
expect 0 '"log_ratio"' "$hone" journal compare "$trace" "$second" -o json
expect 0 'too few for a change' "$hone" journal regress --series 'decode*'
expect 0 '"changes": \[\]' "$hone" journal regress --series 'decode*' -o json
expect 3 'no run in .* has such a series' "$hone" journal regress --series nope
expect 3 'no run in .* has such a series' "$hone" journal regress --series nope -o json
expect 0 'no run in .* is like that' "$hone" journal list --kind bench
expect 0 'noted' "$hone" journal note "$trace" --outcome lost 'slower, in truth'
expect 0 'lost: slower, in truth' "$hone" journal list --kind trace
expect 0 'noted' "$hone" journal note "$second" --supersedes "$trace" 'threads were wrong'
[ "$("$hone" journal list --kind trace -o jsonl | wc -l)" = 1 ] || fail "a superseded run is listed"
[ "$("$hone" journal list --kind trace --all -o jsonl | wc -l)" = 2 ] || fail "--all does not list a superseded run"
expect 2 'note what' "$hone" journal note "$trace"
for word in win loss noted ''; do
    expect 2 'kept, lost and inconclusive' "$hone" journal note "$trace" --outcome "$word" 'by hand'
done
expect 0 'noted' "$hone" journal note "$trace" --outcome inconclusive
expect 2 "names no run" "$hone" journal show x
expect 2 "names no run" "$hone" journal show last+1
expect 2 "names no run" "$hone" journal show last-
expect 3 "no run last-999" "$hone" journal show last-999
expect 0 '^run  *[0-9]' "$hone" journal show last
expect 2 'argument' "$hone" journal show
expect 2 "no 'burn'" "$hone" journal burn
expect 2 'a date' "$hone" journal list --since yesterday
expect 3 'is a sample, not a run' "$hone" journal show $((trace + 1))
expect 3 'there is no record' "$hone" journal show 999999
expect 0 'id' "$hone" journal list --since 1h
# No byte of a note reaches the terminal unlooked at.
"$hone" journal note "$second" "$(printf 'a\033[31mb\302\233c')" >/dev/null
"$hone" journal show "$second" >"$tmp/out"
LC_ALL=C grep -q "$(printf '\033')" "$tmp/out" && fail 'an escape of a note reaches the terminal'

# ---- plots
if command -v gnuplot >/dev/null; then
    expect 0 'decode d0 step us' "$hone" journal plot "$trace" "$second" --height 12
    expect 0 'rung reference decode t/s' "$hone" journal plot --kind ladder --series 'rung reference *'
else
    skipped="$skipped; no gnuplot: no plots"
fi
expect 4 'install it' env PATH=/nowhere "$hone" journal plot "$trace"
expect 0 '"median"' env PATH=/nowhere "$hone" journal plot --series 'decode*' -o json

# ---- a change over time, as regress finds it: an imported history, one run slower from the 13th on
cat >"$tmp/history.py" <<'END'
import hashlib, json, sys
chain, previous, n = "f" * 32, "0" * 64, 0
def add(**fields):
    global previous, n
    n += 1
    body = fields.pop("body")
    line = json.dumps(dict(chain=chain, number=n, at=1764504000000 + 60000 * n, **fields, body=body, previous=previous), separators=(",", ":"))
    previous = hashlib.sha256(line.encode()).hexdigest()
    print(line[:-1] + ',"hash":"%s"}' % previous)
for run in range(20):
    add(kind="run", name="bench", body={"command": "hone bench"})
    at = n
    for k in range(5):
        add(kind="sample", run=at, name="tg8 t/s", value=(100 if run < 12 else 96) + 0.125 * ((run * 5 + k * 3) % 7), body={})
print('{"records":%d}' % n)
END
if command -v python3 >/dev/null; then
    python3 "$tmp/history.py" >"$tmp/history.jsonl"
    expect 0 '120 records added, 0 were there' "$hone" journal import "$tmp/history.jsonl" --journal "$tmp/h.db"
    expect 1 'WORSE' "$hone" journal regress --journal "$tmp/h.db"
    expect 1 'from run 73 on' "$hone" journal regress --journal "$tmp/h.db"
    expect 0 'WORSE' "$hone" journal regress --journal "$tmp/h.db" --margin 10
    expect 1 '"worse": true' "$hone" journal regress --journal "$tmp/h.db" -o json
else
    skipped="$skipped; no python3: no history"
fi

# ---- the chain, and files of it
expect 0 'every link in place' "$hone" journal verify
head=$("$hone" journal verify | sed -n 's/^head //p')
expect 0 'every link' "$hone" journal verify "$head"
expect 1 'not the journal that had this head' "$hone" journal verify "$(printf %064d 7)"
expect 2 'no SHA-256' "$hone" journal verify cafe
expect 0 'exported' "$hone" journal export --out "$tmp/one.jsonl"
expect 0 '0 were there' "$hone" journal import "$tmp/one.jsonl" --journal "$tmp/two.db"
expect 0 '^0 records added' "$hone" journal import "$tmp/one.jsonl" --journal "$tmp/two.db"
"$hone" journal export --journal "$tmp/two.db" 2>/dev/null | cmp - "$tmp/one.jsonl" || fail 'an export of an import differs'
"$hone" journal export "$second" 2>/dev/null | "$hone" journal import - --journal "$tmp/three.db" >/dev/null || fail 'one run from stdin'
expect 0 "it's quick" "$hone" journal list --journal "$tmp/three.db"
sed '3s/"at":1/"at":2/' "$tmp/one.jsonl" >"$tmp/edited.jsonl"
expect 3 'line 3: record 3: its content has another SHA-256' "$hone" journal import "$tmp/edited.jsonl" --journal "$tmp/four.db"
head -n 5 "$tmp/one.jsonl" >"$tmp/cut.jsonl"
expect 3 'the file was cut' "$hone" journal import "$tmp/cut.jsonl" --journal "$tmp/four.db"
expect 3 'No such file' "$hone" journal import "$tmp/nowhere.jsonl" --journal "$tmp/four.db"
# What is refused leaves no journal behind, and none is made to be asked for what cannot be there.
expect 2 'names no run' "$hone" journal note nonsense text --journal "$tmp/four.db"
expect 2 'names no run' "$hone" journal note 1 text --supersedes nonsense --journal "$tmp/four.db"
expect 3 'there is no journal' "$hone" journal note 1 text --journal "$tmp/four.db"
expect 2 'names no run' "$hone" journal show nonsense --journal "$tmp/none/four.db"
[ -z "$(find "$tmp" -name 'four.db*')" ] || fail "a refused command leaves $(find "$tmp" -name 'four.db*')"
# By hand: a line without its own hash has the hash that the next line calls previous.
for n in 1 2 3 4; do
    sum=$(sed -n "${n}p" "$tmp/one.jsonl" | sed 's/,"hash":"[0-9a-f]*"}$/}/' | tr -d '\n' | sha256sum | cut -d ' ' -f 1)
    sed -n "$((n + 1))p" "$tmp/one.jsonl" | grep -q "\"previous\":\"$sum\"" || fail "line $n does not have the hash that line $((n + 1)) carries"
done
[ -e /dev/full ] && expect 4 'cannot write' sh -c "'$hone' journal export >/dev/full"

# ---- an edit, as someone with sqlite3 would make it
if command -v sqlite3 >/dev/null; then
    sqlite3 "$tmp/j.db" 'UPDATE record SET value = 1' 2>"$tmp/err" && fail 'an update went through'
    grep -q 'only added to' "$tmp/err" || fail "an update is refused otherwise: $(cat "$tmp/err")"
    [ "$(sqlite3 "$tmp/j.db" "SELECT count(*) FROM samples WHERE run = $trace")" = 5 ] || fail 'the view of samples'
    trigger=$(sqlite3 "$tmp/j.db" "SELECT sql FROM sqlite_schema WHERE name = 'record_no_update'")
    sqlite3 "$tmp/j.db" "DROP TRIGGER record_no_update; UPDATE record SET value = value * 0.9 WHERE id = $((trace + 1)); $trigger"
    expect 1 "record $((trace + 1)) (sample): its content does not have its hash" "$hone" journal verify
    expect 3 'was edited, and is not exported' "$hone" journal export --out "$tmp/edited.jsonl"
    [ -e "$tmp/edited.jsonl.partial" ] && fail 'a failed export leaves a file'
else
    skipped="$skipped; no sqlite3: no edit"
fi

[ -z "$skipped" ] || echo "journal: left out$skipped"
finish 'recorded, read, compared, exported, and edits seen'
