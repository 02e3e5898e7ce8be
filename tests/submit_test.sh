#!/bin/sh
# hone submit: payloads of runs that hold, refusals of those that do not, and the check of payloads that somebody changed.
. "$(dirname "$0")/script.sh"
cd "$tmp"
"$hone" synth llama3.2-1b Q4_0 m.gguf --layers 2 --width 256 --vocab 512 --seed 7 >/dev/null
bench() { # options...: the run's number in $id
    "$hone" bench -m m.gguf --no-roof -o none "$@" >/dev/null 2>&1 || true
    id=$("$hone" journal list --kind bench --limit 1 -o jsonl | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
}

bench -p 0 -n 8 -r 3
expect 0 '"decode_tokens_per_second"' "$hone" submit "$id"
cp out good.json
expect 0 'holds what it must' "$hone" submit --check good.json
expect 0 '"valid": true' "$hone" submit --check good.json -o json
bench -p 0 -n 8 -r 2
expect 1 '2 raw samples' "$hone" submit "$id"
bench -p 8 -n 0 -r 3
expect 1 'generates nothing' "$hone" submit "$id"
bench -p 0 -n 8 -r 3 --no-verify
expect 1 'not verified as right: the verdict is unverified' "$hone" submit "$id"
bench -p 0 -n 8 -r 3 -ctk q8_0
expect 1 'notes do not say so' "$hone" submit "$id"
expect 0 '"notes": "keys in q8_0"' "$hone" submit "$id" --notes 'keys in q8_0'
bench -p 0 -n 8 -r 3 --set debug.spin=5
expect 1 'diagnostics' "$hone" submit "$id"
expect 2 'which run' "$hone" submit
expect 3 '' "$hone" submit 999999

# ---- what somebody changed
sed 's/"total_tokens_per_second": [0-9.e+]*/"total_tokens_per_second": 1e9/' good.json >faster.json
expect 1 'the median of the samples is' "$hone" submit --check faster.json
sed 's/"verdict": "[a-z -]*"/"verdict": "different"/' good.json >wrong.json
expect 1 'not verified as right: the verdict is different' "$hone" submit --check wrong.json
sed 's/"revision": "[0-9a-f]*"/"revision": ""/' good.json >nameless.json
expect 1 'model.revision is missing' "$hone" submit --check nameless.json
sed 's/"flags"/"flogs"/' good.json >flagless.json
expect 1 'flags is missing' "$hone" submit --check flagless.json
echo '[1]' >list.json
expect 1 'no payload' "$hone" submit --check list.json
echo '{' >cut.json
expect 3 'cut.json:' "$hone" submit --check cut.json
exit $failed
