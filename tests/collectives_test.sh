#!/bin/sh
# The collectives of a split model at the command line: the four levels of their trace, fused and plain; a guard that fails; what leaves them out and
# is no result; and a split by layers.
. "$(dirname "$0")/script.sh"
cd "$tmp"
"$hone" synth smollm2-135m Q4_0 m.gguf --layers 2 --vocab 400 >out 2>&1
split='-m m.gguf -t 2 -ts 1/1'
trace() { # level gates
    "$hone" trace $split -sm tensor -r 3 --no-journal --level "$1" --set "$2"
}
fused='fuse.all_reduce_add=on;fuse.all_reduce_get_rows=on'
plain='fuse.all_reduce_add=off'
summary='^allreduce summary devices=2 graphs=1 count=4 total_bytes=9216 path'
lines() { # pattern, how many
    [ "$(grep -c "$1" out)" = "$2" ] || fail "not $2 times '$1': $(cat out)"
}
for level in 1 2 3 4; do
    expect 0 "$summary add=0 get_rows=0 plain=4 fallback=0" trace $level "$plain"
    lines '^allreduce raw graphs=' 1
    lines '^allreduce n=[0-3] name=[a-z_]*-[01] nbytes=2304 path=plain us=[0-9.]*' $((level > 1 ? 4 : 0))
    lines ' wait_us=' $((level > 2 ? 4 : 0))
    lines 'synchronised.*perturbs' $((level > 2))
    lines '^partial_probe name=[a-z_]*-[01] op=[A-Z_]* nbytes=2304 next=[A-Z_]* next_nbytes=[0-9]* plan=plain outcome=plain' $((level > 3 ? 4 : 0))
done
expect 0 "$summary add=3 get_rows=1 plain=0 fallback=0" trace 4 "$fused"
lines '^partial_probe name=attn_output-1 .* next=GET_ROWS next_nbytes=2304 plan=get_rows outcome=get_rows' 1
lines '^partial_probe .* next=ADD next_nbytes=2304 plan=add outcome=add' 3
expect 0 "$summary add=0 get_rows=0 plain=0 fallback=4" trace 4 "$fused;debug.guard=size_limit"
lines '^partial_probe .* plan=add outcome=fallback' 3
lines '^all_reduce_add .* guard size_limit: told to fail' 1
lines '^all_reduce_get_rows .* guard size_limit: told to fail' 1
expect 0 "$summary add=3 get_rows=1 plain=0 fallback=0" trace 1 "$fused;comm.limit=2304"
expect 0 "$summary add=0 get_rows=0 plain=4 fallback=0" trace 1 "$fused;comm.limit=2303"

# A decline is told at the end, whoever ran it; one of a sum that a quantisation was folded into is the sum's.
expect 0 'warning: the fusion all_reduce_add declined 1 step' "$hone" eval $split -sm tensor --tokens 1,2 --set "$fused;debug.guard=size_limit"
expect 0 'add_rms_norm=[1-9][0-9]* plain=[01] fallback=0' trace 1 'fuse.all_reduce_add_rms_norm=on'
expect 0 'add=0 get_rows=0 plain=[01] fallback=[1-9]' trace 1 'fuse.all_reduce_add_rms_norm=on;decline.all_reduce_add_rms_norm=on'
expect 0 'add=0 get_rows=0 plain=[01] fallback=[1-9]' trace 1 'fuse.all_reduce_add_rms_norm=on;debug.guard=one_reader'
expect 0 'warning: the fusion all_reduce_add_rms_norm declined' "$hone" eval $split -sm tensor --tokens 1,2 --set 'fuse.all_reduce_add_rms_norm=on;debug.guard=one_reader'
expect 2 'debug.guard=name' trace 1 'skip_all_reduce=on'
expect 2 'comm.link=foo: the ranks are threads' trace 1 'comm.link=foo'

# Without its collectives a run is a diagnostic, wherever it is told of, and what it recorded is no result.
skip='debug.skip_all_reduce=on'
expect 0 'left the collectives out: a diagnostic, the output is wrong' trace 1 "$skip"
expect 0 'warning: debug.skip_all_reduce leaves the collectives out' "$hone" eval $split -sm tensor --tokens 1,2 --set "$skip"
expect 0 'B: [a-z ]*, debug.skip_all_reduce: a diagnostic' "$hone" ab -m m.gguf -t 2 -sm tensor -ts 1/1 --in-process -n 2 -r 2 --blocks 8 --no-early --b "$skip"
expect 0 'ab .* diagnostic' "$hone" journal list --kind ab
expect 0 '"verdict": *"diagnostic"' "$hone" journal show "$("$hone" journal list --kind ab -o jsonl | tail -n 1 | sed 's/.*"id": *\([0-9]*\).*/\1/')" -o json
expect 0 ' diagnostic ' "$hone" report --kind ab
expect 1 'this is no result' "$hone" bench $split -sm tensor -p 0 -n 4 -r 2 --no-roof --no-one-device --set "$skip" -o jsonl
id=$("$hone" journal list --kind bench -o jsonl | tail -n 1 | sed 's/.*"id": *\([0-9]*\).*/\1/')
expect 1 "its output is wrong" "$hone" submit "$id"
reports() { # how many sections of rates, over time and over devices
    "$hone" report -o text >report 2>err || fail "no report: $(cat err)"
    [ "$(grep -c '^== Throughput\|^== Over several devices' report)" = "$1" ] || fail "not $1 sections of rates: $(cat report)"
}
reports 0
"$hone" bench $split -sm tensor -p 0 -n 4 -r 2 --no-roof --no-one-device -o jsonl >out 2>err || fail "bench: $(cat err)"
reports 2
printf '%s\n' "$skip" >skip.recipe
printf 'tier t\n    bench tg4 t/s median > 0\n' >tiers
expect 1 'wrong output' "$hone" tier promote t skip.recipe --tiers tiers

# By layers: the bits of one device.
"$hone" eval -m m.gguf -t 1 --tokens 5,7,11 --greedy 8 --logits-out one.f32 >one 2>err
expect 0 'split over 2 devices by layers' "$hone" eval $split -sm layer --tokens 5,7,11 --greedy 8 --logits-out layers.f32
cmp -s one.f32 layers.f32 || fail 'a split by layers gives other logits than one device'
expect 0 'count=0\|handover' "$hone" trace $split -sm layer -r 2 --no-journal --nodes
finish 'levels, fallbacks, what is left out, and layers'
