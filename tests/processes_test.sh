#!/bin/sh
# Sessions over processes beyond their steps: a leader that waits for somebody to type, and one that is stopped meanwhile; what one rank declines; sessions
# saved and restored; what the lab measures over processes, and what it refuses.
set -u
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
command -v mpirun >/dev/null 2>&1 || { echo "processes: no mpirun (Debian: openmpi-bin libopenmpi-dev)"; exit 77; }
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
not() { failed=$((failed + 1)); echo "processes: $*"; sed 's/^/    /' "$dir/err" | head -n 20; }
: >"$dir/err"
"$hone" synth smollm2-135m Q4_0 "$dir/m.gguf" --layers 2 --vocab 1000 >/dev/null || not "no model"
timeout 60 mpirun -np 2 "$hone" eval -m "$dir/m.gguf" --tokens 1 -t 1 -sm tensor >"$dir/out" 2>"$dir/err" && ok || not "a model over 2 processes: exit code $?"
if grep -q "this build has no MPI" "$dir/err"; then echo "processes: built without MPI"; exit 77; fi
# What each rank keeps is told wherever it is.
sed -n 's/; in another process//; /^  device/p' "$dir/err" >"$dir/devices"
"$hone" eval -m "$dir/m.gguf" --tokens 1 -t 2 -sm tensor -ts 1/1 2>&1 >"$dir/out" | grep '^  device' | cmp -s - "$dir/devices" && ok ||
    not "processes tell of other memory than groups of threads: $(cat "$dir/devices")"

# A rank by its number, of the processes whose command line begins so.
rank_pid() { for p in $(pgrep -f "[h]one $2 -m $dir/m.gguf"); do tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q "^OMPI_COMM_WORLD_RANK=$1\$" && echo "$p"; done; }
# While the leader waits for somebody to type: longer than the limit and nothing is wrong; but one that is stopped is missed, and nobody stays.
mkfifo "$dir/typed"
talk="chat -m $dir/m.gguf -t 1 -sm tensor --chat-template chatml -n 4 --set comm.timeout=2"
# shellcheck disable=SC2086
timeout 60 mpirun -np 2 "$hone" $talk <"$dir/typed" >"$dir/out" 2>"$dir/err" &
job=$!
{ sleep 6; echo hello; } >"$dir/typed"
wait $job && ok || not "an idle leader: exit code $?"
for stopped in 0 1; do
    : >"$dir/stopped"
    # shellcheck disable=SC2086
    timeout 60 mpirun -np 2 "$hone" $talk <"$dir/typed" >"$dir/out" 2>"$dir/stopped" &
    job=$!
    sleep 40 >"$dir/typed" &
    typist=$!
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -q 'output.weight\|token_embd' "$dir/stopped" 2>/dev/null && break
        sleep 0.2
    done
    sleep 0.5
    pid=$(rank_pid $stopped chat)
    start=$(date +%s)
    [ -n "$pid" ] && kill -STOP "$pid" && ok || not "no rank $stopped to stop"
    wait $job
    rc=$?
    cp "$dir/stopped" "$dir/err"
    [ $rc != 0 ] && [ $rc != 124 ] && ok || not "rank $stopped stopped between orders: exit code $rc"
    grep -q "rank [01] waited 2 s at .* order for rank $stopped" "$dir/err" && ok || not "rank $stopped stopped between orders and nobody named it"
    [ $(($(date +%s) - start)) -le 20 ] && ok || not "rank $stopped stopped and the other took $(($(date +%s) - start)) s"
    [ -z "$(rank_pid 0 chat)$(rank_pid 1 chat)" ] && ok || not "rank $stopped stopped and somebody stays behind"
    kill $typist 2>/dev/null
done

# Ranks of one process that is stopped for longer than the limit did not wait for each other meanwhile.
timeout 60 "$hone" run -m "$dir/m.gguf" -t 2 -sm tensor -ts 1/1 -p x -n 4000 --ignore-eos -c 4096 --set comm.timeout=1 >"$dir/out" 2>"$dir/err" &
job=$!
sleep 0.7
pid=$(pgrep -f "[h]one run -m $dir/m.gguf" | tail -n 1)
kill -STOP "$pid" && sleep 1.7
kill -CONT "$pid"
wait $job && ok || not "a process that was stopped for a while: exit code $?"

# What one rank declines all leave out: else one brings a row to the last collective and the other all of them.
for declines in off on; do
    ask="run -m $dir/m.gguf --raw -p one,two,three,four -n 4 --temp 0 -t 1 -sm tensor --set fuse.all_reduce_get_rows=on --set comm.timeout=5 -o jsonl"
    # shellcheck disable=SC2086
    timeout 60 mpirun -np 1 "$hone" $ask : -np 1 env HONE_SET="decline.all_reduce_get_rows=$declines" "$hone" $ask >"$dir/$declines" 2>"$dir/err" && ok ||
        not "rank 1 declines a fusion ($declines): exit code $?"
    sed -n 's/.*"tokens": *\[\([^]]*\).*/\1/p' "$dir/$declines" >"$dir/$declines.tokens"
done
cmp -s "$dir/on.tokens" "$dir/off.tokens" && ok || not "other tokens where a rank declines"

# A session that was saved over processes goes on over processes, over groups of threads and on one device, and one of threads over processes.
"$hone" synth qwen3.5-0.8b Q4_0 "$dir/h.gguf" --layers 4 --width 256 --vocab 1000 >/dev/null || not "no hybrid"
for name in m h; do
    first="eval -m $dir/$name.gguf --tokens 5,7,11,13,17,19,23 -c 64" then="eval -m $dir/$name.gguf --tokens 2,3 --greedy 6 -c 64"
    # shellcheck disable=SC2086
    {
        timeout 60 mpirun -np 2 "$hone" $first -t 1 -sm tensor --save-session "$dir/p.session" >"$dir/out" 2>"$dir/err" && ok || not "$name: saved over processes: exit code $?"
        timeout 60 "$hone" $first -t 2 -sm tensor -ts 1/1 --save-session "$dir/t.session" >"$dir/out" 2>"$dir/err" && ok || not "$name: saved over threads: exit code $?"
        cmp -s "$dir/p.session" "$dir/t.session" && ok || not "$name: processes save another session than threads"
        timeout 60 mpirun -np 2 "$hone" $then -t 1 -sm tensor --load-session "$dir/t.session" --logits-out "$dir/p.f32" >"$dir/out" 2>"$dir/err" && ok || not "$name: loaded over processes: exit code $?"
        timeout 60 "$hone" $then -t 2 -sm tensor -ts 1/1 --load-session "$dir/p.session" --logits-out "$dir/t.f32" >"$dir/out" 2>"$dir/err" && ok || not "$name: loaded over threads: exit code $?"
        cmp -s "$dir/p.f32" "$dir/t.f32" && ok || not "$name: a session goes on otherwise over processes than over threads"
        timeout 60 "$hone" $then -t 2 --load-session "$dir/p.session" >"$dir/out" 2>"$dir/err" && ok || not "$name: loaded on one device: exit code $?"
    }
done

# Measured over processes, with one device beside; what measures fresh processes is refused at once, and compared within this one.
HONE_CACHE=$dir HONE_JOURNAL=$dir/journal.db
export HONE_CACHE HONE_JOURNAL
timeout 60 mpirun -np 2 "$hone" bench -m "$dir/m.gguf" -t 1 -sm tensor -p 4 -n 2 -r 2 --no-roof -o jsonl >"$dir/out" 2>"$dir/err" && ok || not "bench over processes: exit code $?"
[ "$(grep -c '"one_device": true.*"n_threads\|"n_threads": 2.*"one_device": true' "$dir/out")" = 2 ] && ok || not "bench over processes has no one-device rows"
[ "$(grep -c '"transport":"mpi"' "$dir/out")" = 2 ] && ok || not "bench over processes does not say so"
for words in "ab -m $dir/m.gguf --b fuse=off" "verify -m $dir/m.gguf --b fuse=off" "iterate"; do
    # shellcheck disable=SC2086
    timeout 60 mpirun -np 2 "$hone" $words >"$dir/out" 2>"$dir/err" && not "${words%% *} under mpirun: exit code 0" || ok
    grep -q "hone: ${words%% *}: it measures fresh processes" "$dir/err" && ok || not "${words%% *} under mpirun is not refused by name"
done
timeout 60 mpirun -np 2 "$hone" ab -m "$dir/m.gguf" -t 1 --in-process --b -sm=tensor -n 2 -r 3 --blocks 8 --no-early -o json --no-journal >"$dir/out" 2>"$dir/err" && ok ||
    not "ab --in-process over processes: exit code $?"
grep -q '"split_mode"' "$dir/out" && ok || not "ab --in-process does not say that one arm is split"
timeout 60 mpirun -np 2 "$hone" trace -m "$dir/m.gguf" -t 1 -sm tensor --level 3 -r 3 --no-journal --set comm.timeout=5 >"$dir/out" 2>"$dir/err" && ok || not "trace --level 3: exit code $?"
timeout 60 mpirun -np 2 "$hone" trace -m "$dir/m.gguf" -t 1 -sm tensor -r 3 --no-journal --set comm.timeout=1 -o json >"$dir/out" 2>"$dir/err" && ok || not "trace: exit code $?"
timeout 60 mpirun -np 2 "$hone" plan -m "$dir/m.gguf" -t 1 --devices 256 >"$dir/plan" 2>"$dir/err" && grep -q '^one device: .*link: [0-9.]* us' "$dir/plan" && ok ||
    not "plan over processes: $(cat "$dir/plan")"
python3 - "$dir/out" <<'EOT' && ok || not "orders and signs of life are counted as collectives"
import json, sys
c = json.load(open(sys.argv[1]))["collectives"]
one, raw = c["per_graph"], c["raw"]
sys.exit(not (raw["graphs"] > 3 and raw["count"] == raw["graphs"] * (one["count"] + one["gathers"])))
EOT
timeout 60 mpirun -np 2 "$hone" check --shadow -m "$dir/m.gguf" -t 1 -sm tensor --n-prefill 4 --n-decode 1 --no-journal >"$dir/out" 2>"$dir/err" && ok || not "check --shadow: exit code $?"
grep -q 'over 2 devices, of which 1 was watched: the others are in other processes' "$dir/out" && ok || not "check --shadow does not say who was watched"
echo "processes: $passed passed, $failed failed"
[ $failed = 0 ]
