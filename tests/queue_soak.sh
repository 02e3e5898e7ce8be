#!/bin/sh
# 8 workers and 200 tasks with workers killed at random: three rounds of processes that use the library, and one of shell scripts that use the
# command line, as people's workers do. Each task is done exactly once, none is lost, none is stuck past its lease.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
HONE_SOAK=1 "$B/tests/test_queue" 2>&1 | grep -e 'tasks, ' -e PASSED -e FAILED
HONE_SOAK=1
tmp=$(mktemp -d)
workers=
trap 'for p in $workers; do kill -9 $p 2>/dev/null || true; done; wait 2>/dev/null || true; rm -rf "$tmp"' EXIT
export HONE_QUEUE="$tmp/queue.db"
unset HONE_ROLE HONE_TOKEN HONE_WORKER || true
hone=$B/hone
for i in $(seq 200); do "$hone" queue add "task $i" --priority $((i % 3)) >/dev/null; done
cat >"$tmp/worker.sh" <<'WORKER'
while :; do
    line=$("$1" queue take --worker "$2" --lease 2 -o jsonl 2>/dev/null) || { sleep 0.1; continue; }
    id=$(echo "$line" | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
    token=$(echo "$line" | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
    "$1" queue done "$id" --token "$token" -o jsonl >"$3/$id.$token.said" 2>/dev/null && echo "$id" >>"$3/done.log"
done
WORKER
start() { sh "$tmp/worker.sh" "$hone" "w$1" "$tmp" & }
for i in 1 2 3 4 5 6 7 8; do start $i; workers="$workers $!"; done
kills=0 left=200 n=0
while [ "$left" -gt 0 ] && [ $n -lt 600 ]; do
    n=$((n + 1))
    sleep 0.2
    # The one that has waited longest is killed, a new one takes its place.
    set -- $workers
    kill -9 "$1" 2>/dev/null || true
    kills=$((kills + 1))
    shift
    start $kills
    workers="$* $!"
    left=$((200 - $("$hone" queue list --status done -o jsonl 2>/dev/null | wc -l)))
done
[ "$left" = 0 ] || { echo "queue_soak: $left tasks are left"; exit 1; }
twice=$(sort "$tmp/done.log" | uniq -d | wc -l)
[ "$twice" = 0 ] || { echo "queue_soak: $twice tasks were done twice"; exit 1; }
echo "command line: 200 tasks, 8 workers, $kills killed: each done once"
