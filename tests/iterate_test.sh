#!/bin/sh
# hone iterate from the command line, with a tiny model: what wins is promoted, by hand and by a supervisor's run, also with a plug-in; what is
# slower or wrong is not; patches, programs, limits, Ctrl-C and SIGKILL; the working tree is never touched.
. "$(dirname "$0")/script.sh"
cd "$tmp"
# Slow enough to be beaten by a margin that no neighbour can hide.
printf 'kernel.mul_mat=ref\nfuse=off\n' >start.recipe
base='base kernel.mul_mat=ref fuse=off'
printf 'tier quick\n    bench tg8 t/s median > 0\n    verify quality-equal\n    ab win\n    %s\n' "$base" >tiers
printf 'tier plugins\n    ab win\n    verify quality-equal\n    %s\n' "$base" >>tiers
"$hone" synth llama3.2-1b Q4_0 m.gguf --layers 2 --width 256 --vocab 512 --seed 7 >/dev/null
add() { # title, more of queue add
    title=$1
    shift
    "$hone" queue add "$title" --recipe "$tmp/start.recipe" "$@" >/dev/null
}
iterate() {
    "$hone" iterate -m "$tmp/m.gguf" --check '--n-prefill 4 --n-decode 1' --verify '--texts 2 -n 8 --prompt-tokens 8' \
        --bench '-p 0 -n 8 -r 3 --no-roof' --ab '--blocks 12 --sample 0.03 -t 1' "$@"
}

# ---- a worker hands in, a supervisor approves and promotes, by hand
expect 1 'no task is ready' iterate
add 'products by their kernels' --tier quick --hypothesis 'vectors' --expect 100 --work '-kernel.mul_mat'
expect 0 '1  passed ' iterate
expect 0 'waiting for approval' "$hone" queue list --status done
recipe=$tmp/logs/task-1-1/candidate.recipe
expect 1 'task 1 is not approved' "$hone" tier promote quick "$recipe" --task 1
expect 0 'approved' "$hone" queue approve 1 --worker boss
expect 0 'is the best of quick' "$hone" tier promote quick "$recipe" --task 1
expect 0 '^fuse=off$' "$hone" recipe best --tier quick
for step in lint check verify bench ab tier; do
    head -n 1 "logs/task-1-1/$step.log" | grep -q "^\$ .*hone " || fail "$step.log does not say its command"
done
grep -q 'what was tried before' logs/task-1-1/brief.txt || fail "no brief"
"$hone" journal list --kind ab -o json >out
grep -q '"hypothesis": "vectors"' out || fail "the hypothesis is not in the record: $(head -n 30 out)"
grep -q '"outcome": "kept"' out || fail "the outcome is not beside the comparison"

# ---- a supervisor's run; the base is what was promoted
add 'products on their reference' --tier quick --work 'kernel.mul_mat=ref'
expect 0 '2  slower ' iterate --as supervisor
expect 0 'rejected' "$hone" queue show 2
add 'the same again' --tier quick --work 'fuse=off'
expect 1 '3  failed .*changes nothing' iterate --as supervisor
add 'no such word' --tier quick --work 'kernel.mul_mat=warp_drive'
expect 1 '4  failed .*lint: exit code 3' iterate --as supervisor
expect 0 '^fuse=off$' "$hone" recipe best --tier quick

# ---- plug-ins: a right one is promoted by its hash, a wrong one is found
cc -std=c11 -O3 -march=native -fPIC -shared -I"$root/include" "$root/examples/kernel/q4_0.c" -o lanes.so
cc -std=c11 -O3 -march=native -fPIC -shared -I"$root/include" "$root/examples/loop/window.c" -o window.so -lm
add 'a kernel from outside' --tier plugins --work "plugin=$tmp/lanes.so kernel.mul_mat.q4_0=q4_0_lanes"
expect 0 '5  promoted ' iterate --as supervisor
"$hone" recipe best --tier plugins >best.recipe 2>err
grep -q "^plugin=$(sha256sum lanes.so | cut -d ' ' -f 1)\$" best.recipe || fail "the best recipe does not name its plug-in: $(cat best.recipe)"
expect 3 'which is not loaded' "$hone" eval -m m.gguf --tokens 1,2 --recipe best.recipe
expect 0 'q4_0_lanes' "$hone" eval -m m.gguf --tokens 1,2 --recipe best.recipe --plugin lanes.so
add 'attention over eight positions' --tier plugins --work "plugin=$tmp/window.so kernel.attention=window"
expect 0 '6  wrong  *.*check: kernel.attention=window has faults' iterate --as supervisor
[ ! -f logs/task-6-1/ab.log ] || fail "what is wrong was measured"
printf 'kernel.mul_mat.q4_0=q4_0_lanes\n' >unnamed.recipe
expect 0 'warning: .*plugin=[0-9a-f]* this is no recipe to promote' "$hone" recipe lint unnamed.recipe --plugin lanes.so
expect 1 'not to be promoted: .*without plugin=' "$hone" tier promote plugins unnamed.recipe --plugin lanes.so

# ---- programs
add 'fails' --work '#!/bin/sh
echo "no idea" >&2; exit 7'
expect 1 '7  failed .*work: exit code 7: no idea' iterate
add 'says nothing' --work '#!/bin/sh
exit 0'
expect 1 '8  failed .*no candidate, no change of the sources and no record' iterate
add 'looks' --work '#!/bin/sh
test "$HONE_ROLE" = worker && grep -q looks "$HONE_TASK_BRIEF" && "$HONE" check --op add >/dev/null'
expect 0 '9  noted .*check: right' iterate
add 'a person could do it: make the products faster'
expect 1 'left .*for a person' iterate
expect 1 'task 10 is left alone: .*for a person' iterate 10
expect 0 'attempts *0' "$hone" queue show 10
expect 0 '10  passed ' iterate 10 --program 'printf "fuse=off\n" >"$HONE_CANDIDATE"'
add 'takes for ever' --work '#!/bin/sh
sleep 986 & sleep 986'
expect 1 '11  failed .*work: was not done after 1 s' iterate --limit work=1
expect 2 'a step, ' iterate --limit sleep=1
ps -eo args | grep -q '^sleep 98[6]$' && fail "what was too late still runs"

# ---- sources: a repository whose make copies hone
mkdir repo
cd repo
git init -q .
git config user.email nobody@example.org
git config user.name nobody
mkdir include
echo '/* here */' >include/hone.h
printf '%%/hone:\n\tmkdir -p $(@D)\n\tcp %s $@\n\t@echo told CUDA=$(CUDA), LINK_STATIC is $(origin LINK_STATIC)\n' "$hone" >Makefile
git add .
git commit -q -m one
echo 'what its owner is at' >>Makefile
git status --porcelain >../before
state() { git status --porcelain; git stash list; git branch -a; git worktree list | wc -l; }
state >../state.before
untouched() {
    state >../state.after
    cmp -s ../state.before ../state.after || fail "the tree was touched ($1): $(cat ../state.after)"
}
printf -- '--- a/include/hone.h\n+++ b/include/hone.h\n@@ -1 +1 @@\n-/* there */\n+/* new */\n' >../bad.patch
add 'does not apply' --work-file ../bad.patch
expect 1 '12  failed .*apply: the patch does not apply to ' iterate
untouched 'a patch that does not apply'
printf -- '--- a/Makefile\n+++ b/Makefile\n@@ -1,3 +1,3 @@\n %%/hone:\n-\tmkdir -p $(@D)\n+\techo nothing to build; false\n \tcp %s $@\n' "$hone" >../unbuilt.patch
add 'does not build' --work-file ../unbuilt.patch
expect 1 '13  failed .*build: .*nothing to build' iterate
untouched 'a patch that does not build'
{
    echo '-kernel.mul_mat'
    sed 's/there/here/' ../bad.patch
} >../good.patch
add 'builds' --tier quick --work-file ../good.patch --recipe "$tmp/start.recipe"
expect 1 '14  failed .*apply: -kernel.mul_mat: the recipe that it starts from has no such word' iterate
sed -i 's/^-kernel.mul_mat$/kernel.mul_mat=ref/' ../good.patch
add 'builds and is slower' --work-file ../good.patch --recipe "$tmp/logs/task-1-1/candidate.recipe"
expect 0 '15  slower ' iterate
untouched 'a patch that loses'
grep -q "told $(cat "$B/backends.stamp"), LINK_STATIC is command line" "$tmp/logs/task-15-1/build.log" ||
    fail "the candidate is not built as the base was: $(cat "$tmp/logs/task-15-1/build.log")"
sed 's/there/here/' ../bad.patch >../only.patch
add 'two programs' --work-file ../only.patch
expect 0 '16  \(no gain\|unclear\) ' iterate 16
add 'edits' --work '#!/bin/sh
git switch -q -c mine; echo "/* edited */" >"$HONE_TREE/include/hone.h"; printf "kernel.mul_mat=ref\n" >"$HONE_CANDIDATE"'
expect 0 '"commit": "[0-9a-f]*"' iterate 17 -o json
git show "$(sed -n 's/.*"commit": "\([0-9a-f]*\)".*/\1/p' ../out):include/hone.h" | grep -q edited || fail "what the program edited is not in the commit"
untouched 'a program that edits'

# ---- killed in the middle: nothing runs on, the next takes the task again
add 'is killed' --work '#!/bin/sh
[ -f '"$tmp"'/second ] && exit 5
touch '"$tmp"'/second; setsid sleep 987'
"$hone" iterate -m "$tmp/m.gguf" --lease 3 18 >../out 2>&1 &
pid=$!
tries=0
until [ -f ../second ] || [ $tries = 200 ]; do sleep 0.05; tries=$((tries + 1)); done
kill -9 $pid
wait $pid 2>/dev/null || true
tries=0
while ps -eo args | grep -q '^sleep 98[7]$' && [ $tries != 200 ]; do sleep 0.05; tries=$((tries + 1)); done
[ $tries != 200 ] || fail "a killed run leaves its program running"
tries=0
until "$hone" queue list --status ready | grep -q 'is killed' || [ $tries = 100 ]; do sleep 0.1; tries=$((tries + 1)); done
expect 1 '18  failed .*work: exit code 5' iterate 18
untouched 'SIGKILL'

# ---- Ctrl-C: the task is ready again
add 'is interrupted' --work '#!/bin/sh
touch '"$tmp"'/third; sleep 988'
"$hone" iterate -m "$tmp/m.gguf" 19 >../out 2>&1 &
pid=$!
tries=0
until [ -f ../third ] || [ $tries = 200 ]; do sleep 0.05; tries=$((tries + 1)); done
kill -INT $pid
rc=0
wait $pid || rc=$?
[ $rc = 130 ] || fail "exit code $rc after SIGINT: $(cat ../out)"
expect 0 'ready .*is interrupted' "$hone" queue list
ps -eo args | grep -q '^sleep 98[8]$' && fail "an interrupted run leaves its program running"
untouched 'SIGINT'

# ---- twice: it is ready again all the same, at once, and what ignores the wish to end is ended by its guard
add 'is interrupted twice' --work '#!/bin/sh
trap "" TERM
touch '"$tmp"'/fourth; sleep 989'
"$hone" iterate -m "$tmp/m.gguf" 20 >../out 2>&1 &
pid=$!
tries=0
until [ -f ../fourth ] || [ $tries = 200 ]; do sleep 0.05; tries=$((tries + 1)); done
start=$(date +%s)
kill -INT $pid
sleep 0.3
kill -INT $pid
rc=0
wait $pid || rc=$?
[ $rc = 130 ] || fail "exit code $rc after a second SIGINT: $(cat ../out)"
[ $(($(date +%s) - start)) -le 3 ] || fail "a second SIGINT takes $(($(date +%s) - start)) s"
expect 0 'ready .*is interrupted twice' "$hone" queue list
tries=0
while ps -eo args | grep -q '^sleep 98[9]$' && [ $tries != 300 ]; do sleep 0.05; tries=$((tries + 1)); done
[ $tries != 300 ] || fail "a run that was interrupted twice leaves its program running"
untouched 'a second SIGINT'

# ---- what is wrong of what a run is given is said before a task is taken
add 'waits' --work '#!/bin/sh
exit 5'
echo 'no line of a denylist' >../bad.denylist
mkdir ../plain
expect 3 'no SQLite\|not an SQLite' iterate --queue "$tmp/queue.db" --tiers "$tmp/tiers" --journal ../tiers 21
expect 4 'journal: .*cannot write there' iterate --queue "$tmp/queue.db" --tiers "$tmp/tiers" --journal ../no/where.db 21
expect 4 'logs' iterate --logs ../no/logs 21
expect 4 'logs: .*cannot write there' iterate --logs ../tiers 21
expect 3 'bad.denylist:1' iterate --denylist ../bad.denylist 21
expect 3 'nowhere' iterate --denylist ../nowhere 21
expect 3 'commit nonsense' iterate --commit nonsense 21
expect 3 'plugin ../nowhere.so' iterate --plugin ../nowhere.so 21
expect 3 'tiers' iterate -m "$tmp/tiers" 21
expect 2 "ab: ''unbalanced' is no option of hone ab" iterate --ab "'unbalanced" 21
expect 2 'bench: -r needs a value' iterate --bench '-p 0 -r' 21
(cd ../plain && expect 3 'commit HEAD' iterate --commit HEAD 21 && exit $failed) || failed=1
expect 0 'ready .*waits' "$hone" queue list
expect 0 'attempts *0' "$hone" queue show 21
[ -z "$(git for-each-ref refs/hone)" ] || fail "names of patches that lost: $(git for-each-ref)"
cd ..

# ---- what is not for this run is left alone; a program that spoils the files of its task is no end of --all
add 'in words: faster, please' --priority 9
add 'of another model' --priority 9 --model gemma --work 'fuse=off'
add 'spoils its candidate' --priority 9 --work '#!/bin/sh
rm "$HONE_CANDIDATE"; mkdir "$HONE_CANDIDATE"'
add 'leaves a pipe' --priority 9 --work '#!/bin/sh
rm "$HONE_CANDIDATE"; mkfifo "$HONE_CANDIDATE"'
add 'takes its folder away' --priority 9 --work '#!/bin/sh
printf "fuse=off\n" >"$HONE_CANDIDATE"; cd /; rm -rf "$(dirname "$HONE_TASK_TEXT")"'
add 'comes after' --priority 9 --work '#!/bin/sh
"$HONE" check --op add >/dev/null'
for id in 19 20 21; do "$hone" queue block $id 'was a test' >/dev/null; done
expect 1 '24  failed .*no regular file' iterate --all
grep -q '25  failed .*no regular file' out || fail "a pipe as a candidate: $(cat out)"
grep -q '26  failed ' out || fail "a folder of logs that is gone: $(cat out)"
grep -q '27  noted ' out || fail "what comes after is not done: $(cat out err)"
grep -q 'task 23: left .*model gemma' err || fail "a task of another model: $(cat err)"
for id in 22 23; do expect 0 'attempts *0' "$hone" queue show $id; done
expect 1 'no task is ready' iterate

# ---- the report; a program file older than its commit
expect 0 'Tasks' "$hone" report --width 160
grep -q 'promoted' out || fail "the report lacks the decisions: $(head -n 40 out)"
expect 0 'every link in place' "$hone" journal verify
commit=$("$hone" --version | sed -n 's/.*(\([0-9a-f]*\)[-,].*/\1/p')
if git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
    cp "$hone" old-hone
    touch -d '2001-01-01' old-hone
    printf 'tier any\n    bench tg4 t/s median > 0\n' >any.tiers
    ./old-hone bench -m m.gguf -p 0 -n 4 -r 1 --no-roof --no-warmup --no-verify --journal old.db -o none >/dev/null 2>&1 || true
    : >empty.recipe
    cd "$root"
    expect 1 'fail *build .*its program file is of 2001-01-01' "$hone" tier check any "$tmp/empty.recipe" --tiers "$tmp/any.tiers" --journal "$tmp/old.db"
else
    echo "iterate: the build's commit is not in a repository here: the age of its file is left out"
fi
finish 'wins are promoted, all else is taken back, and nothing else is touched'
