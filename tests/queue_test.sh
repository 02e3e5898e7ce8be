#!/bin/sh
# hone queue from the command line: a task's way from being added to being approved, roles, exit codes, and a brief with a run of the task.
. "$(dirname "$0")/script.sh"
cd "$tmp"
printf 'fuse.mlp=off\n' >start.recipe
printf 'tier decode\n    ab win\n    base fuse=off kernel.rms_norm=ref\n' >tiers

expect 0 'task 1' "$hone" queue add 'try without the MLP' --model llama --series 'rung* t/s' --hypothesis 'smaller code' --expect 3 \
    --recipe start.recipe --work 'switch it off' --tier decode
expect 0 '"id": 2' "$hone" queue add 'then this' --after 1 --priority 9 -o json
expect 0 'blocked .*waits for 1' "$hone" queue list
expect 0 'ready .*try without' "$hone" queue list --status ready
expect 2 'backlog, ready' "$hone" queue list --status sleeping
expect 0 'task 2: blocked: it waits for 1' "$hone" queue ready 2
expect 0 '"now": "blocked"' "$hone" queue ready 2 -o json
expect 1 "the supervisor's" "$hone" queue add more --as worker
expect 3 'no task 9' "$hone" queue show 9
expect 3 'no task 9' "$hone" queue add x --after 9
expect 2 'which lease' "$hone" queue done 1
expect 3 'nowhere.recipe' "$hone" queue add x --recipe nowhere.recipe
expect 3 'no regular file' "$hone" queue add x --recipe "$tmp"
expect 3 '--tier nowhere: there is no such tier in .*tiers' "$hone" queue add x --tier nowhere
expect 3 'such' "$hone" queue add x --tier decode --tiers nothing
for percent in -1e300 1e300 nan -100 three 3% 1; do
    case $percent in 3% | 1) code=0 ;; *) code=2 ;; esac
    expect $code '' "$hone" queue add "of $percent" --expect="$percent" --queue other.db
done
expect 0 "recipe *$(realpath start.recipe)" "$hone" queue show 1
[ -f "$tmp/queue.db" ] || fail "the queue is not beside the journal"

export HONE_ROLE=worker
token=$("$hone" queue take --worker w1 -o jsonl | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
[ -n "$token" ] || fail "no token"
expect 1 'no task is ready' "$hone" queue take --worker w2
expect 0 'renewed' "$hone" queue renew 1 --token "$token" --lease 900
expect 0 '' env HONE_TASK=1 "$hone" check --op add --hypothesis 'smaller code'
expect 0 'what was tried before' "$hone" queue brief 1
grep -q 'run [0-9]* .*check' out || fail "the brief lacks the run: $(cat out)"
grep -q 'fuse.mlp=off' out || fail "the brief lacks the recipe"
grep -q 'switch it off' out || fail "the brief lacks the work"
grep -q "echo 'fuse=off kernel.rms_norm=ref' >base.recipe" out || fail "the brief lacks what is to be beaten: $(cat out)"
grep -q "hone ab -m MODEL --a 'base.recipe'" out || fail "the brief's comparison is with something else: $(cat out)"
expect 1 'holds no lease' "$hone" queue done 1 --token wrong-token
run=$("$hone" journal list --kind check --limit 1 -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
expect 3 'no record 9999' "$hone" queue done 1 --token "$token" --run 9999 'no gain'
expect 0 'task 1: done' env HONE_TOKEN="$token" "$hone" queue done 1 --run "$run" 'no gain'
expect 0 'already' "$hone" queue done 1 --token "$token" --run "$run" 'no gain'
expect 0 'task 1: done$' "$hone" queue done 1 --token "$token" --run "$run" 'a little'
expect 1 'the lease of this token has ended' "$hone" queue fail 1 --token "$token" 'or not'
for word in 'approve 1' 'release 1 x' 'cancel 1 x' 'edit 1 --priority 3'; do expect 1 "the supervisor's" "$hone" queue $word; done
unset HONE_ROLE
expect 0 'blocked .*waits for 1 (waiting for approval)' "$hone" queue list
expect 0 'waiting for approval' "$hone" queue list --status done
expect 1 'cannot judge it too' "$hone" queue approve 1 --worker w1
expect 0 'task 1: approved' "$hone" queue approve 1 --worker boss
expect 0 'approved *boss' "$hone" queue show 1
token=$("$hone" queue take 2 --worker w1 -o jsonl | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
expect 0 'task 2: failed' "$hone" queue fail 2 --token "$token" 'cannot be built'
expect 0 'task 2: ready' "$hone" queue ready 2

# ---- against mistakes: released, edited, cancelled, with a trace in the journal
"$hone" queue take 2 --worker w9 --lease 31536000 >/dev/null
expect 1 'somebody has it: release it first' "$hone" queue edit 2 --priority 3
expect 0 'task 2: released' "$hone" queue release 2 'w9 is gone' --worker boss
expect 0 'released *boss *w9 had it: w9 is gone' "$hone" queue show 2
expect 2 'what shall be another' "$hone" queue edit 2
expect 3 'no such tier' "$hone" queue edit 2 --tier nowhere
expect 0 'task 2: edited' "$hone" queue edit 2 --priority 0 --tier decode --title 'then that' --after 0 --worker boss
expect 0 'priority *0' "$hone" queue show 2
grep -q 'title *then that' out || fail "the title is what it was: $(cat out)"
expect 0 'edited by boss: ' "$hone" queue brief 2
expect 0 '"what": "released"' "$hone" journal list --kind queue -o json
grep -q '"by": "boss"' out || fail "the journal does not say who: $(cat out)"
grep -q 'then this.*then that' out || fail "the journal does not say what was edited: $(cat out)"
expect 0 'task 3' "$hone" queue add 'never mind' --tries 1
expect 0 'task 3: cancelled' "$hone" queue cancel 3 'a wrong idea'
expect 0 'failed .*cancelled by .*: a wrong idea' "$hone" queue list
expect 0 'every link in place' "$hone" journal verify
expect 0 'task 2: blocked' "$hone" queue block 2 'waits for a machine'
expect 1 'waits for a machine' "$hone" queue take 2
exit $failed
