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
spoilt() { # sed script, what is said of it
    sed "$1" good.json >spoilt.json
    cmp -s good.json spoilt.json && fail "nothing was changed by $1: $(cat good.json)"
    expect 1 "$2" "$hone" submit --check spoilt.json
}
spoilt 's/"decode_tokens_per_second": [0-9.e+]*/"decode_tokens_per_second": 1e300/' 'decode_tokens_per_second is 1e+300, and the median of the samples is'
spoilt 's/"output_tokens": 8/"output_tokens": 9/' 'total_tokens_per_second is .*the median of the samples is'
spoilt 's/"kl_mean": [0-9.e-]*/"kl_mean": 5/' 'quality.kl_mean is 5, and .* allows'
spoilt 's/"kl_mean": [0-9.e-]*/"kl_mean": "low"/' 'quality.kl_mean is missing, or no number'
spoilt 's/"context": 8/"context": 1/' 'context is 1, and depth, prompt and output together are 8'
spoilt 's/"batch": [0-9]*/"batch": 0/' 'batch is 0, and from 1'
spoilt 's/"revision": "[0-9a-f]*"/"revision": "x"/' 'model.revision is missing, or no SHA-256'
spoilt 's/"class": "cpu"/"class": "quantum"/' 'hardware.class is quantum'
spoilt 's/"gpu_count": 0/"gpu_count": 8/' 'hardware.class is cpu, and gpu_name or gpu_count speak of a GPU'
spoilt 's/"notes": ""/"notes": 5/' 'notes is missing, or no text'
spoilt 's/"notes": ""/"notes": "", "energy": 5/' 'energy is no field of a payload'
spoilt 's/"quantisation": "[A-Za-z0-9_]*"/"quantisation": "f16"/' 'model.quantisation is f16, and most bytes are in'
spoilt 's/"gates": \[/"gates": ["debug.spin=5"/' 'diagnostics among its gates (debug.spin=5)'
spoilt 's/"gates": \[/"gates": ["speed=11"/' 'gates\[0\] is no gate'
spoilt 's/"flags": "/"flags": "HONE_SET=debug.spin=5 /' 'diagnostics among its gates (in flags)'
sed 's/"flags": "/"flags": "-m \/src\/x-debug.d\/m.gguf /' good.json >named.json
expect 0 'the payload holds' "$hone" submit --check named.json # letters in a file's name are no gate
tr '\n' ' ' <good.json | sed 's/"journal": {[^}]*}/"journal": null/' >spoilt.json
expect 1 'journal is missing, or no object' "$hone" submit --check spoilt.json

# ---- a recipe's words are in it, and those of a model with a prompt
printf 'fuse.mlp=off\n' >my.recipe
bench -p 0 -n 8 -r 3 --recipe my.recipe
expect 0 '"fuse.mlp=off"' "$hone" submit "$id"
bench -p 0 -n 0 -pg 8,4 -r 3
expect 0 '"prompt_tokens": 8' "$hone" submit "$id"
cp out good.json
expect 0 'holds what it must' "$hone" submit --check good.json
spoilt 's/"decode_tokens_per_second": [0-9.e+]*/"decode_tokens_per_second": 1e6/' 'decode_tokens_per_second is 1000000, and the median'
echo '[1]' >list.json
expect 1 'no payload' "$hone" submit --check list.json
echo '{' >cut.json
expect 3 'cut.json:' "$hone" submit --check cut.json
exit $failed
