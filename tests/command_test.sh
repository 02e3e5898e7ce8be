#!/bin/sh
# What all commands promise alike: token lists, defaults in the help, names of output files, and how they end at a signal.
. "$(dirname "$0")/script.sh"

"$hone" synth smollm2-135m F16 "$tmp/m.gguf" --layers 2 --width 64 --vocab 400 >"$tmp/out" 2>&1
m=$tmp/m.gguf
for list in '1,2' '1 2/3' '[1, 2]' ' 1,2 ' '[1 2]'; do
    expect 0 '"greedy"' "$hone" eval -m "$m" --tokens "$list"
done
for list in '1,,2' ',1' '1,' '[1,2' '[1,2]3' '1 , , 2' '1,-2' '1.5' '+1' 'x' '1//2' '[]]'; do
    expect 3 'is not a token id' "$hone" eval -m "$m" --tokens "$list"
done
expect 3 'empty' "$hone" eval -m "$m" --tokens '[]'

# Defaults, whatever stands beside --help, and in the manual.
for page in "run --help" "run --temp 0 --help" "manual run"; do
    # shellcheck disable=SC2086
    expect 0 '(default 0.8)' "$hone" $page
    grep -q '(default 40)' "$tmp/out" || fail "no default of --top-k in hone $page"
done
expect 3 'No such file' "$hone" run -m "$tmp/none" -p --help # a prompt, no wish for help

# An output without a name is refused before the work, and what is there stays.
expect 2 'no file name' "$hone" quantize "$m" '' Q8_0
expect 2 'not a regular file' "$hone" quantize "$m" "$tmp" Q8_0
expect 2 'no file name' "$hone" synth smollm2-135m F16 '' --layers 2 --width 64 --vocab 400

# A signal: code 130, nothing half-written.
interrupt() { # signal, command...
    signal=$1
    shift
    "$@" >"$tmp/out" 2>&1 &
    pid=$!
    sleep 0.5
    kill -s "$signal" $pid 2>/dev/null || { wait $pid || true; echo "command: $1 $2 was done before $signal came: not judged"; return 0; }
    rc=0
    wait $pid || rc=$?
    [ $rc = 130 ] || fail "exit code $rc, not 130, at $signal: $*: $(tail -n 1 "$tmp/out")"
    [ -z "$(find "$tmp" -name '*.partial')" ] || fail "a partial file is left at $signal: $*"
}
for signal in TERM HUP; do
    interrupt $signal "$hone" synth llama3.2-1b F16 "$tmp/big.gguf"
    [ ! -e "$tmp/big.gguf" ] || fail "a file is left at $signal"
done
"$hone" synth llama3.2-1b F16 "$tmp/half.gguf" --layers 4 --width 1024 --vocab 20000 >"$tmp/out" 2>&1
interrupt HUP "$hone" quantize "$tmp/half.gguf" "$tmp/q.gguf" Q3_K_M -t 1
interrupt TERM "$hone" tune -m "$m" -r 1000
interrupt TERM "$hone" devices
expect 2 "those of --links" "$hone" devices --way mapped
# Under nohup a closed terminal ends nothing.
trap '' HUP
"$hone" quantize "$m" "$tmp/q8.gguf" Q8_0 >"$tmp/out" 2>&1 &
pid=$!
trap - HUP
kill -s HUP $pid
wait $pid || fail "a hang-up ended what ignores it: $(cat "$tmp/out")"
finish 'lists, defaults, output names and signals are as promised'
