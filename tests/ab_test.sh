#!/bin/sh
# hone ab from the command line, on a tiny synthetic model: arms of every kind, what differs without being declared, programs that change or
# lie while they are measured, Ctrl-C, kill -9 during a build. Nothing here depends on how fast this machine is, or how quiet: only
# differences of several times are to be found.
. "$(dirname "$0")/script.sh"
set +e
dir=$tmp
mkdir "$HONE_CACHE"
expect() { # exit code, pattern in what is printed ("": any), arguments of ab...
    code=$1 pattern=$2
    shift 2
    rc=0
    timeout 120 "$hone" ab "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ "$rc" = "$code" ] || fail "exit code $rc, not $code: $*: $(tail -n 3 "$dir/err")"
    cat "$dir/out" "$dir/err" | grep -q -e "$pattern" || fail "no '$pattern' from: $*: $(cat "$dir/out" "$dir/err" | head -n 6)"
}
"$hone" synth llama3.2-1b Q4_0 "$dir/tiny.gguf" --layers 2 --width 128 --vocab 320 >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
"$hone" synth llama3.2-1b Q8_0 "$dir/other model.gguf" --layers 2 --width 128 --vocab 320 >"$dir/log" 2>&1 || exit 1
m="-m $dir/tiny.gguf -t 1" # two threads that spin for one core are slow
quick="$m -n 4 -r 3 --blocks 8"
# shellcheck disable=SC2086 # $m and $quick are words
{
    # What is refused, by name and before a sample.
    expect 2 'give --b ARM' $m
    expect 2 'give -m FILE' --b fuse.mlp=off
    expect 2 '3 blocks' $m --b fuse.mlp=off --blocks 3
    expect 2 'win and no-loss' $m --b fuse.mlp=off --require maybe
    expect 2 "unknown gate" $m --b nonsense=1
    expect 2 'an arm may set -t' $m --b --strict=1
    expect 2 'a number from 1' $m --b -t=0
    expect 2 'nothing behind' $m --b fuse.mlp=
    expect 2 'a quote is not closed' $m --b 'model="x'
    expect 3 'no such file' $m --b ./nowhere
    expect 3 'neither a file nor a commit' $m --b nowhere
    expect 2 'another binary needs fresh processes' $m --b "bin=$hone" --in-process
    expect 2 'an environment of its own' $m --b env.HONE_SET=fuse=off --in-process
    expect 3 'arm .*No such file' $m --b "model=$dir/absent.gguf"
    expect 3 'arm .*exit code' $m --b "bin=/bin/true"

    # In this process: order, samples, output and differences in the JSON; the journal derives the same verdict.
    expect 0 '"verdict"' $quick --b fuse=off --aa --in-process --no-early -o json
    python3 - "$dir/out" <<'END' || failed=1
import json, sys
r = json.load(open(sys.argv[1]))
assert [m["match_kind"] for m in r["matches"]] == ["aa", "trial"]
for m in r["matches"]:
    arms = "".join(s["arm"] for s in m["samples"])
    assert len(arms) == 32 and arms[:8] == "abbabaab" and arms.count("a") == 16, arms
    assert all(arms[i:i + 4] in ("abba", "baab") and arms[i:i + 4] != arms[i + 4:i + 8] for i in range(0, 32, 8))
    assert all(s["ns"] > 0 and len(s["output"]) == 64 for s in m["samples"])
assert r["noise_floor"] > 0 and r["test_name"] == "tg4" and r["in_process"] is True
assert r["standings"][0]["outputs"] in ("identical", "differ")
d = {x["what"]: x["status"] for x in r["arms"][1]["differences"]}
assert d.pop("recipe.gates") == "declared" and set(d.values()) <= {"follows"}, d
assert r["arms"][0]["differences"] is None and len(r["arms"][0]["identity"]["model.sha256"]) == 64
END
    run=$("$hone" journal list --kind ab -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["id"])')
    "$hone" journal show "$run" >"$dir/out" 2>&1 || fail "journal show: $(tail -n 2 "$dir/out")"
    grep -q 'it is the one that was recorded' "$dir/out" || fail "the journal does not derive the verdict: $(tail -n 3 "$dir/out")"

    # Over devices: an arm's, in fresh processes and in this one, beside one device; and both arms'.
    expect 0 '"verdict"' $m -n 4 -r 3 --blocks 8 --no-early --b '-sm=tensor -dev=cpu:1,cpu:1' -o json
    python3 - "$dir/out" <<'END' || failed=1
import json, sys
r = json.load(open(sys.argv[1]))
d = {x["what"]: x["status"] for x in r["arms"][1]["differences"]}
assert d["split_mode"] == d["devices"] == "declared" and d["n_threads"] == "follows" and set(d.values()) <= {"declared", "follows"}, d
END
    expect 0 '"what": "split_mode"' $m -n 4 -r 3 --blocks 8 --no-early --b '-sm=tensor -ts=1/1' --in-process -o json
    expect 0 '"verdict"' -m "$dir/tiny.gguf" -t 2 -n 4 -r 3 --blocks 8 --no-early -sm tensor -ts 1,1 --b fuse.all_reduce_add=on -o json

    # Fresh processes: ten times slower is a loss, which ends early; a diagnostic is never a plain result; no win, exit code 1.
    expect 1 "is 'loss, debug.spin: a diagnostic'" $m -n 4 -r 3 --blocks 16 --b debug.spin=900 --require win
    grep -q 'ended early by the always-valid sequence' "$dir/out" || fail "no early end: $(cat "$dir/out")"
    grep -q '^    same .* [1-9][0-9]* libraries' "$dir/out" || fail "no libraries compared: $(cat "$dir/out")"
    expect 0 'B: win, debug.spin: a diagnostic' $m -n 4 -r 3 --blocks 16 --a debug.spin=900 --b base
    # All on the reference: slower, and other output: both are said.
    expect 0 'B: loss, output differs: verify' $m -n 16 -r 3 --blocks 16 --b kernel=ref
    # 8-bit activations against the reference: other bits, and what hone verify says of them.
    expect 0 'B: loss, output [a-z]*-[a-z]*$' $m -n 4 -r 3 --blocks 16 --b kernel=ref --verify --in-process
    # A prompt at a depth, other threads, two candidates; a model with a space in its name.
    expect 0 'pp8 @ d4' $m -p 8 -d 4 -r 3 --blocks 8 --b -t=2 --b '--poll=0 fuse=off'
    grep -q '^B2: ' "$dir/out" || fail "no second verdict: $(cat "$dir/out")"
    expect 0 'declared *model_size' $quick --b "$dir/other model.gguf"
    expect 0 'declared *model_size' $quick --b "\"$dir/other model.gguf\" fuse=off"
    printf 'fuse=off # a comment\n' >"$dir/my.recipe"
    expect 0 'fuse=off' $quick --in-process --b "$dir/my.recipe"

    # A program that sets more than it was told: refused, or listed.
    printf '#!/bin/sh\nHONE_SET=skip=rope exec %s "$@"\n' "$hone" >"$dir/wrapper"
    chmod +x "$dir/wrapper"
    expect 1 'differ in recipe.gates, which neither declares' $quick --b "$dir/wrapper"
    expect 0 'undeclared *recipe.gates' $quick --b "$dir/wrapper" --allow-differences
    # One that becomes another in the middle, and one that never says the same twice.
    printf '#!/bin/sh\necho >>%s/calls\n[ $(wc -l <%s/calls) -lt 6 ] || export HONE_SET=skip=rope\nexec %s "$@"\n' "$dir" "$dir" "$hone" >"$dir/turncoat"
    chmod +x "$dir/turncoat"
    expect 1 'changed while it was measured: .*skip=rope' $quick --b "$dir/turncoat"
    # shellcheck disable=SC2016 # for the script
    printf '#!/bin/sh\n%s "$@" | sed "s/\\(\\"output_hash\\": \\"\\)......../\\1$(date +%%N | cut -c1-8)/"\n' "$hone" >"$dir/liar"
    chmod +x "$dir/liar"
    expect 1 'output unstable: no result' $quick --b "$dir/liar"
    printf '#!/bin/sh\n%s "$@" | head -c 100\n' "$hone" >"$dir/short"
    chmod +x "$dir/short"
    expect 3 'no row of' $quick --b "$dir/short"

    # Ctrl-C: what was sampled is kept, the JSON is whole, the exit code 130, the run marked, and no child left.
    "$hone" ab $m --b debug.spin=1 --blocks 1000 -n 4 -r 3 -o json >"$dir/out" 2>"$dir/err" &
    pid=$!
    sleep 3
    kill -INT $pid
    wait $pid
    rc=$?
    [ $rc = 130 ] || fail "exit code $rc after Ctrl-C: $(cat "$dir/err")"
    python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert r["matches"][0]["samples"]' "$dir/out" || fail "no JSON after Ctrl-C"
    "$hone" journal list --kind ab --limit 1 | grep -q interrupted || fail "the journal does not say interrupted: $("$hone" journal list --limit 1)"
}

# Commits: a repository whose build is quick. Nothing stays but the builds; nor after a kill -9 in the middle.
mkdir "$dir/repository"
cd "$dir/repository" || exit 1
git init -q .
git config user.email nobody@example.org
git config user.name nobody
printf '%%/hone:\n\tmkdir -p $(@D)\n\tcp %s $@\n' "$hone" >Makefile
git add Makefile
git commit -q -m one
printf '# two\n' >>Makefile
git commit -q -a -m two
printf '%%/hone:\n\tsleep 985\n' >Makefile
git commit -q -a -m three
# shellcheck disable=SC2086
expect 0 'tg4' $quick --a git=HEAD~2 --b HEAD~1
[ "$(find "$HONE_CACHE/builds" -type f | wc -l)" = 2 ] || fail "builds: $(ls "$HONE_CACHE/builds")"
# shellcheck disable=SC2086
"$hone" ab $quick --a HEAD~1 --b git=HEAD >"$dir/out" 2>&1 &
pid=$!
tries=0
until [ -n "$(find "$HONE_CACHE/worktrees" -name Makefile 2>/dev/null)" ] || [ $tries = 50 ]; do sleep 0.1; tries=$((tries + 1)); done
sleep 0.3
kill -9 $pid
wait $pid 2>/dev/null
tries=0
while [ "$(git worktree list | wc -l)" != 1 ] || [ -n "$(ls "$HONE_CACHE/worktrees")" ]; do
    [ $tries != 100 ] || { fail "left behind: $(git worktree list) $(ls "$HONE_CACHE/worktrees")"; break; }
    sleep 0.1
    tries=$((tries + 1))
done
ps -eo args | grep -q '^sleep 98[5]$' && fail "the build still runs"
printf '%%/hone:\n\techo no such thing >&2; false\n' >Makefile
git commit -q -a -m four
# shellcheck disable=SC2086
expect 3 'commit .*no such thing' $quick --b git=HEAD
[ "$(git worktree list | wc -l)" = 1 ] || fail "a failed build leaves its worktree"

[ $failed = 0 ] && echo 'ab: arms, differences, outputs, journal, Ctrl-C and commits are as they should be'
exit $failed
