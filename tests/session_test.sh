#!/bin/sh
# Sessions in files on the command line: a text, a token list and a conversation go on behind a saved session as they would have in one go, with
# every KV format; a file that is none, broken, of another model or with other formats is an error that loses nothing; what is there is
# replaced by a whole file or not at all.
. "$(dirname "$0")/script.sh"
ids() { # a member of the JSON on stdin, on one line
    tr -d ' \n' | sed -n "s/.*\"$1\":\[\([0-9,]*\)\].*/\1/p"
}

"$hone" synth smollm2-135m F16 "$tmp/m.gguf" --layers 2 --width 64 --vocab 400 --seed 1 >"$tmp/out" 2>&1
"$hone" synth smollm2-135m F16 "$tmp/other.gguf" --layers 2 --width 64 --vocab 400 --seed 2 >"$tmp/out" 2>&1
"$hone" synth qwen3.5-0.8b Q8_0 "$tmp/hybrid.gguf" --layers 4 --width 64 --vocab 400 --seed 1 >"$tmp/out" 2>&1
cd "$tmp"

# A text: eight tokens in one go, or three and then five.
for m in m hybrid; do
    for types in '' '-ctk q8_0 -ctv q4_0' '-ctk bf16 -ctv q5_1'; do
        # shellcheck disable=SC2086
        run() { "$hone" run -m $m.gguf -t 2 $types --raw --ignore-eos --temp 0 -o json "$@" 2>err || { cat err; fail "run $m $types $*"; }; }
        whole=$(run -p 'abc de' -n 8 | ids tokens)
        first=$(run -p 'abc de' -n 3 --save-session s | ids tokens)
        for request in 1 2; do # the file is not used up
            rest=$(run -p '' -n 5 --load-session s --save-session t | ids tokens)
            [ "$whole" = "$first,$rest" ] || fail "$m $types, request $request: $whole, but in parts $first,$rest"
        done
        third=$(run -p '' -n 2 --load-session t | ids tokens)
        ten=$(run -p 'abc de' -n 10 | ids tokens)
        [ "$ten" = "$whole,$third" ] || fail "$m $types: the second session gives $third behind $whole, not $ten"
    done
done

# Token ids; the file may be the one that is read.
want=$("$hone" eval -m m.gguf --tokens 1,2,3,4,5,6 --greedy 4 | ids greedy)
"$hone" eval -m m.gguf --tokens 1,2 --save-session e >out
"$hone" eval -m m.gguf --tokens 3,4 --load-session e --save-session e >out
got=$("$hone" eval -m m.gguf --tokens 5,6 --greedy 4 --load-session e --logits-out a.logits | ids greedy)
[ "$got" = "$want" ] || fail "eval: $got behind a session, $want in one go"
"$hone" eval -m m.gguf --tokens 5,6 --load-session e --logits-out b.logits >out
cmp -s a.logits b.logits || fail "eval: the second request has other logits"
[ "$(wc -c <a.logits)" = 3200 ] || fail "eval: logits of more than the two tokens"
"$hone" eval -m m.gguf --tokens 1,2,3 --greedy 3 --save-session e >out
got=$("$hone" eval -m m.gguf --tokens 9 --greedy 2 --load-session e | ids greedy)
want=$("$hone" eval -m m.gguf --tokens "1,2,3,$(ids greedy <out),9" --greedy 2 | ids greedy)
[ "$got" = "$want" ] || fail "eval: the last greedy token got lost: $got, not $want"
expect 2 '--jobs says' "$hone" eval -m m.gguf --jobs out --load-session e

# A model with factors of its own for long contexts turns all keys of a session by one kind, and goes on with no other's.
if [ -f "${HONE_DATA:-}/archs/phi3.gguf" ]; then
    far() { "$hone" eval -m "$HONE_DATA/archs/phi3.gguf" "$@" --greedy 4; }
    far -c 512 --tokens 3,4,5 --save-session near >out
    far -c 4096 --tokens 3,4,5 --save-session beyond >said
    expect 3 'its keys are turned for contexts up to 1024 positions' far -c 4096 --tokens 7 --load-session near
    expect 3 'its keys are turned for contexts beyond 1024 positions' far -c 512 --tokens 7 --load-session beyond
    want=$(far -c 4096 --tokens "3,4,5,$(ids greedy <said),7" | ids greedy)
    got=$(far -c 2048 --tokens 7 --load-session beyond | ids greedy)
    [ "$got" = "$want" ] || fail "long factors: $got behind a session, $want in one go"
else
    echo "session: skipped: factors for long contexts (no test data)"
fi

# A conversation.
talk() { "$hone" chat -m m.gguf -t 2 --chat-template chatml --ignore-eos --temp 0 -n 6 "$@" 2>err || { cat err; fail "chat $*"; }; }
printf 'one\ntwo\nthree\n' | talk >whole
printf 'one\ntwo\n' | talk --save-session c >parts
cp c before
printf 'three\n' | talk --load-session c --save-session c >>parts
cmp -s whole parts || fail "a conversation in two parts is another one"
! cmp -s c before || fail "the conversation was not saved again"
printf 'one\ntwo\n' | talk >whole
printf 'one\n' | talk --save-session d >parts
printf '/clear\none\ntwo\n' | talk --load-session d | tail -n +1 >cleared
cmp -s whole cleared || fail "/clear of a loaded conversation does not begin anew"
"$hone" run -m m.gguf -t 2 --chat-template chatml --ignore-eos --temp 0 -n 6 -p two --load-session d --save-session d >>parts 2>err || fail "$(cat err)"
cmp -s whole parts || fail "run does not go on where chat ended"
expect 2 'has begun' "$hone" chat -m m.gguf --chat-template chatml -sys S --load-session d
expect 2 'has begun' "$hone" run -m m.gguf --chat-template chatml -sys S -p x --load-session d
expect 2 'no conversation' "$hone" chat -m m.gguf --chat-template chatml --load-session e
expect 2 'no conversation' "$hone" run -m m.gguf --chat --chat-template chatml -p x --load-session e
expect 3 'another model' "$hone" run -m m.gguf --raw -p x --load-session t
expect 0 'stopped by' "$hone" run -m m.gguf --raw -p x -n 2 --load-session d

# What is no session of this model: an error, and nothing is lost.
"$hone" eval -m m.gguf --tokens 1,2,3,4 --save-session good >out
cp good kept
size=$(wc -c <good)
head -c $((size / 2)) good >cut
head -c 40 good >head
: >empty
cat good empty >long && echo x >>long
mkdir folder
mkfifo pipe
for at in 3 9 13 17 25 33 45 60 $((size / 2)) $((size - 40)); do
    cp good "flipped$at"
    byte=$(od -An -tu1 -j "$at" -N 1 good | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf %o $(((byte + 128) % 256)))" | dd of="flipped$at" bs=1 seek="$at" conv=notrunc 2>/dev/null
done
for bad in nowhere cut head empty long folder pipe m.gguf flipped*; do
    expect 3 '^hone: ' "$hone" eval -m m.gguf --tokens 5 --load-session "$bad" --save-session kept
    cmp -s good kept || fail "$bad: the file that was there is another now"
done
expect 3 'another model' "$hone" eval -m other.gguf --tokens 5 --load-session good --save-session kept
expect 3 '-ctk, -ctv' "$hone" eval -m m.gguf -ctk q8_0 --tokens 5 --load-session good --save-session kept
expect 3 'context of 3' "$hone" eval -m m.gguf -c 3 --tokens 5 --load-session good --save-session kept
expect 3 'context of 5' "$hone" eval -m m.gguf -c 5 --tokens 5,6 --load-session good --save-session kept
cmp -s good kept || fail "a refused session was saved"

# Where none can be saved: before the model is opened, and nothing takes another thing's place.
for place in folder pipe /dev/null ''; do
    expect 2 'save-session' "$hone" eval -m /nowhere.gguf --tokens 5 --save-session "$place"
done
expect 4 'save-session: nowhere/s: cannot write there' "$hone" eval -m /nowhere.gguf --tokens 5 --save-session nowhere/s
[ -p pipe ] || fail "the pipe is gone"
expect 4 'cannot write there' "$hone" eval -m /nowhere.gguf --tokens 5 --save-session /proc/self/s
if [ "$(id -u)" != 0 ]; then
    chmod 500 folder
    expect 4 'cannot write there' "$hone" eval -m /nowhere.gguf --tokens 5 --save-session folder/s
fi
ln -s good link
"$hone" eval -m m.gguf --tokens 7 --save-session link >out
[ -L link ] || fail "a link was replaced"
! cmp -s good kept || fail "what the link names was not written"
[ -z "$(find . -name '*.partial')" ] || fail "a partial file is left"

# Recurrent states that are kept.
expect 2 '1 to 64' "$hone" run -m hybrid.gguf --raw -p x --ctx-checkpoints 0
expect 0 'stopped by' "$hone" run -m hybrid.gguf --raw -p x -n 2 --ctx-checkpoints 64
for page in run chat eval; do
    expect 0 'load-session' "$hone" $page --help
    expect 0 'ctx.-checkpoints' "$hone" manual $page
done
finish 'goes on as in one go; what is broken loses nothing'
