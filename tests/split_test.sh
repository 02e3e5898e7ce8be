#!/bin/sh
# -sm, -ts and -dev: what asks for a split and gets none, or names what there is not, is refused by name; nothing of it is ignored in silence.
. "$(dirname "$0")/script.sh"
if "$hone" bench --list-devices | grep -qv '^cpu:'; then
    echo 'split: SKIPPED: with devices other words are right'
    exit 77
fi
"$hone" synth smollm2-135m Q4_0 "$tmp/m.gguf" --layers 2 --width 64 --vocab 400 >"$tmp/out" 2>&1
cd "$tmp"
eval_with() { # options
    "$hone" eval -m m.gguf --tokens 1,2 -t 2 "$@"
}
for split in '' '-sm tensor'; do
    # shellcheck disable=SC2086
    {
        expect 2 "^hone: -ts ''" eval_with $split -dev cpu:1,cpu:1 -ts ''
        expect 2 "^hone: -dev ''" eval_with $split -ts 1/1 -dev ''
    }
done
expect 2 "^hone: -sm ''" eval_with -sm ''
expect 2 '^hone: -sm rows' eval_with -sm rows
for mode in '' '-sm none'; do
    for rest in '' '-ngl 0' '--set kernel=ref'; do
        # shellcheck disable=SC2086
        {
            expect 2 "no device 'gpu7'" eval_with $mode $rest -dev gpu7
            expect 2 "no device 'cpux'" eval_with $mode $rest -dev cpux
            expect 2 "no device 'cpu:x'" eval_with $mode $rest -dev cpu:x
            expect 2 '-dev cpu:1,cpu:1: groups of threads' eval_with $mode $rest -dev cpu:1,cpu:1
            expect 2 '-dev cpu:2: groups of threads' eval_with $mode $rest -dev cpu:2
            expect 2 '^hone: -ts 1/x' eval_with $mode $rest -ts 1/x
            expect 2 '^hone: -ts -1' eval_with $mode $rest -ts -1
        }
    done
    # shellcheck disable=SC2086
    expect 2 '^hone: -ts 1/1: 2 shares' eval_with $mode -ts 1/1
done
expect 2 'groups of threads' eval_with -sm layer -dev cpu:2
# What is no split asks for none, and what is one is one.
for words in '-dev cpu' '-dev none' '-dev auto' '-ts 1' '-ts 0' '-sm none' '-sm layer -ts 1' '-ts 3/1 -ngl 0' '-ts 3/1 --set kernel=ref'; do
    # shellcheck disable=SC2086
    expect 0 '"kernels"' eval_with $words
    grep -q 'split over' err && fail "$words splits the model"
done
for words in '-sm layer -ts 1/1' '-sm tensor -ts 1/1' '-sm tensor -dev cpu:1,cpu:1' '-sm layer -dev cpu:1,cpu:1'; do
    # shellcheck disable=SC2086
    expect 0 'split over 2 devices' eval_with $words
done
# Layers on devices where there is none.
if "$hone" bench --list-devices 2>/dev/null | grep -qiE 'cuda|opencl'; then
    echo "split: skipped: -ngl without a device (there is one)"
else
    expect 0 '^hone: warning: -ngl 20: there is no GPU here' eval_with -ngl 20
    expect 2 '^hone: -ngl 20: there is no GPU here' eval_with -ngl 20 --strict
    expect 0 '"kernels"' eval_with -ngl 0 --strict
    grep -q 'no GPU' err && fail "-ngl 0 asks for none"
fi
# Commands that split nothing say so.
expect 2 '-ts has no place here' "$hone" tune -m m.gguf -ts 1/1
expect 2 '-sm has no place here' "$hone" check --op add -sm layer
expect 2 '-ts 1.00/1.00: -sm none splits nothing' "$hone" bench -m m.gguf -sm none -ts 1/1
expect 2 '-dev cpu:1/cpu:1: -sm none splits nothing' "$hone" bench -m m.gguf -sm none -dev cpu:1/cpu:1
expect 2 "arm: nothing behind '-sm='" "$hone" ab -m m.gguf --b '-sm='
finish 'every word of a split is taken or refused'
