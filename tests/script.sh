# What the script tests begin with; each sources it as its first line of work: . "$(dirname "$0")/script.sh"
#
# From then on a test stands in the repository's root ($root) and has $hone (absolute), a folder of its own ($tmp), and there a journal and a
# cache; it waits for no other program's measurements; nothing of its caller's environment reaches hone. It says what is wrong with fail and expect, and ends with finish.
set -eu
cd "$(dirname "$0")/.."
root=$PWD name=$(basename "$0" .sh)
name=${name%_test}
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
hone=$B/hone
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export HONE_CACHE="$tmp/cache" HONE_JOURNAL="$tmp/j.db" HONE_LOCK="$tmp/lock"
unset XDG_DATA_HOME HONE_ROLE HONE_TOKEN HONE_TASK HONE_QUEUE HONE_WORKER HONE_TIERS HONE_DENYLIST HONE_SET HONE_LOGS HONE_MEASURES || true
failed=0
fail() {
    echo "$name: $*"
    failed=1
}
# What was printed is in $tmp/out and $tmp/err; one of them has the pattern ('': whatever).
expect() { # exit code, pattern, command...
    code=$1 pattern=$2
    shift 2
    rc=0
    "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
    [ "$rc" = "$code" ] || fail "exit code $rc, not $code: $*: $(tail -n 9 "$tmp/out" "$tmp/err")"
    [ -z "$pattern" ] || cat "$tmp/out" "$tmp/err" | grep -q -e "$pattern" || fail "no '$pattern' from $*: $(head -n 15 "$tmp/out" "$tmp/err")"
}
finish() { # what holds
    [ $failed = 0 ] && echo "$name: $*"
    exit $failed
}
