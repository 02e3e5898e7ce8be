#!/bin/sh
# One measurement of a machine at a time: who waits says for whom, a killed holder is no holder, --no-lock and children of a holder go on.
. "$(dirname "$0")/script.sh"
cd "$tmp"
"$hone" synth llama3.2-1b Q4_0 m.gguf --layers 2 --width 256 --vocab 512 --seed 7 >/dev/null
short='-m m.gguf -p 0 -n 2 -r 1 --no-roof --no-verify --no-warmup -o none'
until_true() { # what it is about, command...
    what=$1 tries=0
    shift
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries != 2400 ] || { fail "$what"; return; }
        sleep 0.05
    done
}
is_held() { ! flock -n "$HONE_LOCK" true; }

# shellcheck disable=SC2086
expect 0 '' "$hone" bench $short
[ -f lock ] || fail "no lock file was made"
(umask 077 && HONE_LOCK=$tmp/strict "$hone" bench $short >/dev/null 2>&1)
[ "$(stat -c %a strict)" = 644 ] || fail "others cannot read the lock: $(stat -c %a strict)"

# ---- another hone measures
"$hone" bench -m m.gguf -p 0 -n 64 -r 1000000 --no-roof --no-verify --no-warmup --no-journal -o none >/dev/null 2>&1 &
holder=$!
: >ab.err
until_true "a bench does not take the machine" is_held
("$hone" ab -m m.gguf -t 1 --b fuse.mlp=off --blocks 8 -n 2 -r 1 --no-journal >ab.out 2>ab.err || true; echo ended >ab.end) &
until_true "it does not say what it waits for: $(cat ab.err)" grep -q "waiting: process $holder (hone bench) measures on this machine" ab.err
expect 0 '' "$hone" bench $short --no-lock
expect 130 'waiting' timeout --preserve-status -s INT 1 "$hone" bench $short
expect 130 'waiting' timeout --preserve-status -s INT 1 env HONE_MEASURES=$holder "$hone" bench $short # it is no ancestor
[ ! -f ab.end ] || fail "it did not wait: $(cat ab.out ab.err)"
kill -9 $holder
wait $holder 2>/dev/null || true
# ab's own fresh processes measure under the lock that it has.
until_true "a killed holder is still waited for, or ab for itself" test -f ab.end
grep -q '^B: ' ab.out || fail "ab came to no verdict: $(cat ab.out ab.err)"
until_true "the lock stays" flock -n "$HONE_LOCK" true

# ---- no place for a lock
expect 0 'warning: .*others may measure' env HONE_LOCK="$tmp" "$hone" bench $short
expect 0 'warning: .*others may measure' env HONE_LOCK=no/where "$hone" bench $short
finish 'one measures at a time'
