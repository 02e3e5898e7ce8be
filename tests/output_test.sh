#!/bin/sh
# Output files are put in place whole, and only where a regular file may stand: a pipe, a device or a folder is refused and stays what it is, a
# link is followed, an attacker's link at the temporary name is not; nothing that is read, no other output and nothing that the lab keeps is
# written over; where one cannot write is said before the work. A queue refuses what it could not show again.
. "$(dirname "$0")/script.sh"
expect 0 '' "$hone" check --op add --case one
run=$("$hone" journal list -o jsonl | sed -n 's/.*"id":\([0-9]*\).*/\1/p' | head -n 1)
[ -n "$run" ] || fail "no run in the journal"

mkfifo "$tmp/pipe"
mkdir "$tmp/folder"
for target in pipe folder; do
    expect 2 'not a regular file' "$hone" journal export --out "$tmp/$target"
    expect 2 'not a regular file' "$hone" report --out "$tmp/$target"
done
[ -p "$tmp/pipe" ] || fail "the pipe is gone"

# Nor over what the lab keeps.
cp "$HONE_JOURNAL" "$tmp/queue.db"
echo 'tier any' >"$tmp/tiers"
for kept in "$HONE_JOURNAL" "$tmp/queue.db" "$tmp/tiers"; do
    expect 2 'that is' "$hone" journal export --out "$kept"
    expect 2 'that is' "$hone" report --out "$kept"
done
expect 0 '' "$hone" journal verify
rm "$tmp/queue.db"

# Nor over what is read, whichever option names it and whichever way it is named; nor one output over another.
"$hone" synth smollm2-135m Q4_0 "$tmp/m.gguf" --layers 1 --vocab 512 >/dev/null 2>&1
cd "$tmp"
echo text >pf
echo '[1, 2]' >ids
echo 'fuse=off' >r.recipe
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}{{ tools }}' >t.jinja
echo '[{"type": "function", "function": {"name": "f"}}]' >tools.json
cc -std=c11 -march=native -fPIC -shared -I"$root/include" "$root/examples/kernel/q4_0.c" -o k.so
ln -s m.gguf m.link
"$hone" eval -m m.gguf --tokens 1 --save-session s >/dev/null
inputs='m.gguf pf ids r.recipe t.jinja tools.json k.so s'
# shellcheck disable=SC2086
cksum $inputs >before
taken() { # the file that would be replaced, command...
    replaced=$1
    shift
    expect 2 'that is what --' "$@"
    # shellcheck disable=SC2086
    cksum $inputs | cmp -s - before || { fail "$replaced was written over by $*"; exit 1; }
}
ask="run -m m.gguf -f pf --recipe r.recipe --plugin k.so --chat-template-file t.jinja --tools tools.json -n 1"
for one in m.gguf m.link ./m.gguf "$tmp/m.gguf" pf r.recipe k.so t.jinja tools.json; do
    # shellcheck disable=SC2086
    taken "$one" "$hone" $ask --save-session "$one"
done
for one in m.gguf ids r.recipe s; do
    taken "$one" "$hone" eval -m m.gguf -f ids --recipe r.recipe --load-session s --logits-out "$one"
    [ "$one" = s ] || taken "$one" "$hone" eval -m m.gguf -f ids --recipe r.recipe --load-session s --save-session "$one"
done
taken 'the other' "$hone" eval -m m.gguf --tokens 1 --save-session new --logits-out new
taken 'the other' "$hone" eval -m m.gguf --tokens 1 --save-session new --logits-out ./new
[ ! -e new ] || fail "one of two outputs of one name was written"
taken m.gguf "$hone" tune -m m.gguf --out m.gguf
taken pf "$hone" perplexity -m m.gguf -f pf --kl-base-save pf
taken m.gguf "$hone" perplexity -m m.gguf -f pf --kl-base-save m.gguf
taken k.so "$hone" tune -m m.gguf --plugin k.so --out k.so
taken m.gguf "$hone" check -m m.gguf --capture 'ffn_up-0' --case-file m.gguf
taken m.gguf "$hone" ladder -m m.gguf --jsonl m.gguf
taken k.so "$hone" ladder -m m.gguf --plugin k.so --resume k.so
expect 2 'that is what --file names' sh -c "'$hone' run -m m.gguf -f - --raw -n 1 --save-session pf <pf"
expect 2 'an input, too' "$hone" quantize m.gguf m.link Q8_0
expect 2 'an input, too' "$hone" quantize m-00001-of-00002.gguf m-00002-of-00002.gguf Q8_0
expect 2 'the journal' "$hone" synth smollm2-135m Q4_0 "$HONE_JOURNAL"
echo '{"tokens": [1], "logits": "m.gguf"}' >jobs
expect 2 'what --model names' "$hone" eval -m m.gguf --jobs jobs
# shellcheck disable=SC2086
cksum $inputs | cmp -s - before || fail "an input was written over"
expect 0 '' "$hone" eval -m m.gguf --tokens 1 --load-session s --save-session s # it goes on

# A link is followed, also one whose end is not there yet.
echo kept >real
ln -s real link
ln -s later dangling
mkdir deep
ln -s ../later2 deep/relative
ln -s deep/relative twice
ln -s no/where lost
for link in link dangling twice; do
    expect 0 '' "$hone" journal export --out $link
    [ -L $link ] || fail "the link $link was replaced"
    grep -q '"kind"' $link || fail "what $link names was not written"
    rm -f later2
done
[ -f later ] || fail "what the dangling link names is not there"
for how in "eval -m m.gguf --tokens 1 --save-session" "eval -m m.gguf --tokens 1 --logits-out" "quantize m.gguf" "synth smollm2-135m F16"; do
    rm -f later
    case $how in quantize*) type=Q8_0 ;; synth*) type='--layers 1 --vocab 512' ;; *) type= ;; esac
    # shellcheck disable=SC2086
    expect 0 '' "$hone" $how dangling $type
    [ -L dangling ] && [ -s later ] || fail "hone $how does not follow a link whose end is not there"
done
echo mine >victim
ln -s victim export.partial
expect 0 '' "$hone" journal export --out export
grep -q mine victim || fail "a link at a temporary name was followed"

# Where one cannot write: code 4, before anything is done.
for place in nowhere/x lost /proc/self/x; do
    expect 4 'cannot write there' "$hone" eval -m /nowhere.gguf --tokens 1 --save-session $place
    expect 4 'cannot write there' "$hone" eval -m /nowhere.gguf --tokens 1 --logits-out $place
    expect 4 'cannot write there' "$hone" perplexity -m /nowhere.gguf -f pf --kl-base-save $place
    expect 4 'cannot write there' "$hone" tune -m /nowhere.gguf --out $place
    expect 4 'cannot write there' "$hone" check -m /nowhere.gguf --capture x --case-file $place
    expect 4 'cannot write there' "$hone" quantize /nowhere.gguf $place Q8_0
    expect 4 'cannot write there' "$hone" synth smollm2-135m Q4_0 $place
    expect 4 'cannot write there' "$hone" report --journal /nowhere.db --out $place
    expect 4 'cannot write there' "$hone" journal export --journal /nowhere.db --out $place
done
[ -z "$(find . -name '*.partial' ! -name export.partial)" ] || fail "a temporary file was left"

expect 0 '' "$hone" queue add --queue "$tmp/q.db" good
expect 2 '' "$hone" queue add --queue "$tmp/q.db" "$(printf 'bad\377')"
HONE_WORKER=$(printf 'w\377') expect 2 '' "$hone" queue take --queue "$tmp/q.db"
expect 0 '' "$hone" queue list --queue "$tmp/q.db"
finish 'files whole or not at all, nothing else replaced'
