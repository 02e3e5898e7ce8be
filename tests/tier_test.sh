#!/bin/sh
# hone tier from the command line, on records that bench, verify and ab themselves left; roles, the queue's approval, the denylist, exit codes.
. "$(dirname "$0")/script.sh"
cd "$tmp"
printf 'fuse.mlp=off\n' >my.recipe
printf '# any figure will do here\ntier quick\n    bench tg8 t/s median > 0\n    verify quality-equal\n    ab no-loss\ntier impossible\n    bench tg8 t/s p10 >= 1e12\n' >tiers
"$hone" synth llama3.2-1b Q4_0 m.gguf --layers 2 --width 256 --vocab 512 --seed 7 >/dev/null

expect 0 'tier impossible' "$hone" tier list
expect 0 '"bench_rules": 1' "$hone" tier list -o json
expect 3 'no tier fast' "$hone" tier check fast my.recipe
expect 2 'list, check and promote' "$hone" tier
expect 3 'there is no journal' "$hone" tier check quick my.recipe
"$hone" bench -m m.gguf -p 0 -n 8 -r 3 --no-roof --recipe my.recipe -o none >/dev/null 2>&1 || true
expect 1 'no record *verify' "$hone" tier check quick my.recipe
expect 1 'fail *bench tg8 t/s p10 >= 1000000000000' "$hone" tier check impossible my.recipe
expect 1 'not in impossible: bench tg8 t/s p10 >= 1000000000000: run [0-9]*: ' "$hone" tier check impossible my.recipe -o json
"$hone" verify -m m.gguf --b my.recipe --texts 2 -n 8 --prompt-tokens 8 >verify.out 2>&1 || true
expect 1 'no comparison with this recipe' "$hone" tier check quick my.recipe
grep -q 'verify quality-equal  *run' out || fail "the verify run was not found: $(cat out)"
grep -q 'pass *weights the same' out || fail "the weights are not said: $(cat out)"
expect 1 'not promoted to quick: ab no-loss: ' "$hone" tier promote quick my.recipe
expect 1 "the supervisor's" env HONE_ROLE=worker "$hone" tier promote quick my.recipe
expect 1 'HONE_ROLE says worker' env HONE_ROLE=worker "$hone" tier promote quick my.recipe --as supervisor
expect 1 'HONE_ROLE says worker' env HONE_ROLE=worker "$hone" queue approve 1 --as supervisor
expect 1 'HONE_ROLE says worker' env HONE_ROLE=worker "$hone" iterate -m m.gguf --as supervisor
expect 2 'the role boss' env HONE_ROLE=boss "$hone" tier promote quick my.recipe

"$hone" ab -m m.gguf --b my.recipe --in-process -p 0 -n 8 --blocks 8 >ab.out 2>&1 || true
"$hone" tier check quick my.recipe >out 2>&1 || true
grep -q 'ab no-loss  *run' out || fail "the comparison was not found: $(cat out ab.out)"
grep -q 'pass *same-build control' out || fail "the control was not found: $(cat out)"

# ---- a base that was told to be slow, a reference that is none
"$hone" ab -m m.gguf --a 'base -t=1 --mask=none' --b my.recipe -p 0 -n 8 --blocks 8 --sample 0.01 >ab.out 2>&1 || true
expect 1 'fail *arms alike .*the base was told more than a recipe: ' "$hone" tier check quick my.recipe
"$hone" ab -m m.gguf --b my.recipe --in-process -p 0 -n 8 --blocks 8 >ab.out 2>&1 || true
"$hone" tier check quick my.recipe >out 2>&1 || true
grep -q 'pass *arms alike' out || fail "the arms are not alike: $(cat out)"
grep -q 'pass *verify reference' out || fail "the reference is none: $(cat out)"
"$hone" verify -m m.gguf --a my.recipe --b my.recipe --texts 2 -n 8 --prompt-tokens 8 >verify.out 2>&1 || true
expect 1 'fail *verify reference .*against itself' "$hone" tier check quick my.recipe
"$hone" verify -m m.gguf --b 'my.recipe -t=1' --texts 2 -n 8 --prompt-tokens 8 >verify.out 2>&1 || true
expect 1 'fail *verify sides .*side B was told more than a recipe: n_threads' "$hone" tier check quick my.recipe
"$hone" verify -m m.gguf --b my.recipe --texts 2 -n 8 --prompt-tokens 8 >verify.out 2>&1 || true

# ---- what else keeps a recipe from being promoted
expect 0 'task 1' "$hone" queue add 'a tier for it' --tier quick
expect 1 'task 1 is not approved' "$hone" tier promote quick my.recipe --task 1
expect 3 'no record 9999' "$hone" queue done 1 --token token-of-w1 --run 9999 unrelated
printf 'fuse.mlp=on\n' >other.recipe
"$hone" bench -m m.gguf -p 0 -n 8 -r 3 --no-roof --recipe other.recipe -o none >/dev/null 2>&1 || true
id=$("$hone" journal list --kind bench --limit 1 -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
expect 0 '' "$hone" queue take 1 --worker w1 --token token-of-w1
expect 0 'task 1: done' "$hone" queue done 1 --token token-of-w1 --run "$id" 'it is quicker'
expect 0 'approved' "$hone" queue approve 1 --worker boss
expect 1 'no run of my.recipe was handed in with task 1' "$hone" tier promote quick my.recipe --task 1
expect 1 'task 1 is for tier quick, not for impossible' "$hone" tier promote impossible my.recipe --task 1

# ---- promoted, and once: against a base that any noise leaves behind
printf 'tier any\n    verify quality-equal\n    base kernel=ref\ntier plain\n    verify quality-equal\n' >>tiers
expect 0 '    base kernel=ref' "$hone" tier list
"$hone" ab -m m.gguf --b my.recipe --in-process -p 0 -n 8 --blocks 8 --margin 50 >ab.out 2>&1 || true
expect 1 'decided at 99 % with a margin of 50 %' "$hone" tier promote any my.recipe
for try in 1 2 3; do # on a machine that is busy with something else one may be unclear
    "$hone" ab -m m.gguf --a kernel=ref --b my.recipe --in-process -p 0 -n 8 --blocks 24 >ab.out 2>&1 || true
    ! grep -q '^B: win' ab.out || break
done
expect 1 "not promoted to plain: against the base: .*is not what hone does by itself: give ab no --a" "$hone" tier promote plain my.recipe
expect 0 'is the best of any (run' "$hone" tier promote any my.recipe
expect 0 'is the best of any already (run' "$hone" tier promote any my.recipe
[ "$("$hone" journal list --kind tier -o jsonl | wc -l)" = 1 ] || fail "it was promoted twice"
expect 0 'tier any: pass' "$hone" tier check any my.recipe

record=$("$hone" journal list --kind verify --limit 1 -o jsonl | sed -n 's/.*"record": *"\([0-9a-f]*\)".*/\1/p')
printf 'fuse.mlp=off | %s | slower on one machine\n' "$record" >denylist
expect 1 'denied by .*slower on one machine' "$hone" tier promote quick my.recipe
exit $failed
