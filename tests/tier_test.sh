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
expect 1 'fail *bench tg8 t/s p10 >= 1e+12' "$hone" tier check impossible my.recipe
"$hone" verify -m m.gguf --b my.recipe --texts 2 -n 8 --prompt-tokens 8 >verify.out 2>&1 || true
expect 1 'no comparison with this recipe' "$hone" tier check quick my.recipe
grep -q 'verify quality-equal  *run' out || fail "the verify run was not found: $(cat out)"
grep -q 'pass *weights the same' out || fail "the weights are not said: $(cat out)"
expect 1 'not promoted to quick: ab no-loss: ' "$hone" tier promote quick my.recipe
expect 1 "the supervisor's" env HONE_ROLE=worker "$hone" tier promote quick my.recipe

"$hone" ab -m m.gguf --b my.recipe --in-process -p 0 -n 8 --blocks 8 >ab.out 2>&1 || true
"$hone" tier check quick my.recipe >out 2>&1 || true
grep -q 'ab no-loss  *run' out || fail "the comparison was not found: $(cat out ab.out)"
grep -q 'pass *same-build control' out || fail "the control was not found: $(cat out)"

# ---- what else keeps a recipe from being promoted
expect 0 'task 1' "$hone" queue add 'a tier for it' --tier quick
expect 1 'task 1 is not approved' "$hone" tier promote quick my.recipe --task 1
record=$("$hone" journal list --kind verify -o jsonl | sed -n 's/.*"record": *"\([0-9a-f]*\)".*/\1/p')
printf 'fuse.mlp=off | %s | slower on one machine\n' "$record" >denylist
expect 1 'denied by .*slower on one machine' "$hone" tier promote quick my.recipe
exit $failed
