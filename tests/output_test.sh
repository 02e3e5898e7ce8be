#!/bin/sh
# Output files are put in place whole, and only where a regular file may stand: a pipe, a device or a folder is refused and stays what it is, a
# link is followed, an attacker's link at the temporary name is not; a queue refuses what it could not show again.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
HONE_JOURNAL=$tmp/j.db
export HONE_JOURNAL
failed=0
fail() {
    echo "output: $*"
    failed=1
}
expect() { # exit code, command...
    code=$1
    shift
    rc=0
    "$@" >"$tmp/out" 2>&1 || rc=$?
    [ "$rc" = "$code" ] || fail "exit code $rc, not $code: $*: $(tail -n 2 "$tmp/out")"
}
expect 0 "$hone" check --op add --case one
run=$("$hone" journal list -o jsonl | sed -n 's/.*"id":\([0-9]*\).*/\1/p' | head -n 1)
[ -n "$run" ] || fail "no run in the journal"

mkfifo "$tmp/pipe"
mkdir "$tmp/folder"
for target in pipe folder; do
    expect 2 "$hone" journal export --out "$tmp/$target"
    expect 2 "$hone" report --out "$tmp/$target"
done
[ -p "$tmp/pipe" ] || fail "the pipe is gone"
# Nor over the journal or the model.
expect 2 "$hone" journal export --out "$HONE_JOURNAL"
expect 2 "$hone" report --out "$HONE_JOURNAL"
expect 0 "$hone" journal verify
"$hone" synth smollm2-135m Q4_0 "$tmp/m.gguf" --layers 1 --vocab 512 >/dev/null 2>&1
before=$(cksum <"$tmp/m.gguf")
expect 2 "$hone" eval -m "$tmp/m.gguf" --tokens 1 --save-session "$tmp/m.gguf"
expect 2 "$hone" tune -m "$tmp/m.gguf" --out "$tmp/m.gguf"
expect 2 "$hone" perplexity -m "$tmp/m.gguf" -f README.md --kl-base-save "$tmp/m.gguf"
[ "$(cksum <"$tmp/m.gguf")" = "$before" ] || fail "the model was written over"
expect 2 "$hone" perplexity -m /nowhere.gguf -f README.md --kl-base-save "$tmp/pipe"

echo kept >"$tmp/real"
ln -s "$tmp/real" "$tmp/link"
expect 0 "$hone" journal export --out "$tmp/link"
[ -L "$tmp/link" ] || fail "the link was replaced"
grep -q '"kind"' "$tmp/real" || fail "what the link names was not written"
echo mine >"$tmp/victim"
ln -s "$tmp/victim" "$tmp/export.partial"
expect 0 "$hone" journal export --out "$tmp/export"
grep -q mine "$tmp/victim" || fail "a link at a temporary name was followed"
[ -z "$(find "$tmp" -name '*.partial' ! -name export.partial)" ] || fail "a temporary file was left"

expect 0 "$hone" queue add --queue "$tmp/q.db" good
expect 2 "$hone" queue add --queue "$tmp/q.db" "$(printf 'bad\377')"
HONE_WORKER=$(printf 'w\377') expect 2 "$hone" queue take --queue "$tmp/q.db"
expect 0 "$hone" queue list --queue "$tmp/q.db"
[ $failed = 0 ] && echo 'output: files whole or not at all, nothing else replaced'
exit $failed
