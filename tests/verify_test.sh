#!/bin/sh
# hone verify from the command line: each kind of fault that it must catch, with its place; classes and exit codes; older programs; what an
# interruption leaves. Models are tiny random ones; `m` is one without the mark of hone synth, so that its texts are judged too.
. "$(dirname "$0")/script.sh"
export TMPDIR="$tmp/scratch"
mkdir "$TMPDIR"
expect() { # exit code, pattern in the output, arguments of hone...
    code=$1 pattern=$2
    shift 2
    rc=0
    "$hone" "$@" >"$tmp/out" 2>&1 || rc=$?
    [ "$rc" = "$code" ] || fail "exit code $rc, not $code: hone $*: $(tail -n 3 "$tmp/out")"
    grep -q -e "$pattern" "$tmp/out" || fail "no '$pattern' from hone $*: $(cat "$tmp/out")"
}
also() { # pattern in the output of the last expect
    grep -q -e "$1" "$tmp/out" || fail "no '$1' in: $(cat "$tmp/out")"
}
without() {
    if grep -q -e "$1" "$tmp/out"; then fail "'$1' in: $(cat "$tmp/out")"; fi
}

"$hone" synth smollm2-135m F16 "$tmp/s.gguf" --layers 3 --width 64 --vocab 400 >"$tmp/out" 2>&1
sed 's/hone\.synth\.seed/hone.synth.none/' "$tmp/s.gguf" >"$tmp/m.gguf"
"$hone" quantize "$tmp/m.gguf" "$tmp/q8.gguf" Q8_0 >"$tmp/out" 2>&1
"$hone" quantize "$tmp/m.gguf" "$tmp/q4.gguf" Q4_0 >"$tmp/out" 2>&1
cc -std=c11 -Wall -Wextra -Werror -O1 -shared -fPIC -Iinclude tests/plugins/wrong.c -o "$tmp/wrong.so" -lm
short='--texts 3 -n 16 -t 1 --no-journal'
m="$tmp/m.gguf"
# shellcheck disable=SC2086
v() { # exit code, pattern, arguments of verify
    code=$1 pattern=$2
    shift 2
    expect "$code" "$pattern" verify $short "$@"
}
parts="-m $m --set fuse=off --plugin $tmp/wrong.so"

# The same is the same, by other kernels too.
v 0 '^verdict *bit-identical' -m "$m" --b base --require bit-identical
# shellcheck disable=SC2086
v 0 '^verdict *bit-identical' $parts --b kernel.add=right
# shellcheck disable=SC2086
v 0 '^verdict *within tolerance' $parts --b 'fuse.rms_norm_mul=on kernel.rms_norm_mul=right' --require within-tolerance
v 1 '^verdict *\(within tolerance\|token-identical\|quality-equal\)' -m "$m" --b kernel=ref --require bit-identical

# Over two devices a sum rounds elsewhere; between two ways of being over two nothing else differs.
v 0 '^verdict *\(within tolerance\|token-identical\|quality-equal\)' -m "$m" --b '-sm=tensor -ts=1,1'
v 0 '^verdict *bit-identical' -m "$m" -sm tensor -ts 1/1 --b fuse.all_reduce_add=on --require bit-identical

# One wrong value in one layer: the node, the row and column, both values, both kernels.
# shellcheck disable=SC2086
v 1 'reason *a kernel is wrong: from the same inputs, l_out-1 is .* at row 0, column 5' $parts --b kernel.add@l_out-1=one_wrong
also '^other bits *position .* of text 0'
also 'cpu_add_one_wrong in B'
also '^verdict *different'
# A fused path off by an epsilon.
# shellcheck disable=SC2086
v 1 'a kernel is wrong: from the same inputs, attn_norm-0 .*cpu_rms_norm_mul_epsilon' $parts --b 'fuse.rms_norm_mul=on kernel.rms_norm_mul=epsilon'
# The same where nothing upstream is the same: beside the reference.
# shellcheck disable=SC2086
v 1 'B has [0-9]* kernel fault(s) beside the reference: cpu_add_one_wrong, node l_out-1' -m $m --plugin "$tmp/wrong.so" --a kernel=ref \
    --b 'fuse=off kernel.add@l_out-1=one_wrong' --shadow
# A kernel that is not steady.
# shellcheck disable=SC2086
v 1 'B is not steady' $parts --b kernel.add=unsteady

# A KV type that degrades, named.
v 1 'note *the KV cache is F16/F16 in A, Q4_0/Q4_0 in B' -m "$m" --b '-ctk=q4_0 -ctv=q4_0'
also '^verdict *different'
without 'a kernel is wrong'
v 1 'reason *logits err by NMSE' -m "$tmp/s.gguf" --b '-ctk=q4_0 -ctv=q4_0'
also 'random weights'
v 0 '^verdict *\(quality-equal\|token-identical\|within tolerance\)' -m "$tmp/s.gguf" --b '-ctk=f32 -ctv=f32'

# A text that loops proves nothing: said when both loop, and different when one does.
# shellcheck disable=SC2086
v 0 'note *proves nothing in A: text 0 repeats 1 token from token 0 on' $parts --set kernel.get_rows@inp_embd=stuck --b base
also '3 of 3 texts are degenerate'
# shellcheck disable=SC2086
v 1 'note *proves nothing in B' $parts --b kernel.get_rows@inp_embd=stuck

# A changed weight type: tensors, types and bytes.
v 1 'note *other weights: 21 tensors (blk.0.attn_q.weight, ...) from Q8_0 to Q4_0: 110592 bytes instead of 208896' --a "model=$tmp/q8.gguf" --b "$tmp/q4.gguf"
also '^weights/token .*CHANGED by -[0-9.]* %'
without 'a kernel is wrong'

# Another tokenizer: another vocabulary, another merge, another special id.
"$hone" synth smollm2-135m F16 "$tmp/v.gguf" --layers 3 --width 64 --vocab 401 >"$tmp/out" 2>&1
v 1 'reason *another tokenizer: tokenizer.ggml.tokens: 400 items in A, 401 in B' --a "model=$tmp/s.gguf" --b "$tmp/v.gguf"
also '^tokenizer *tokenizer.ggml.merges: 142 items in A, 143 in B'
also '^tokenizer *tokenizer.ggml.bos_token_id: 398 in A, 399 in B'
sed 's/hone\.synth\.seed/hone.synth.none/; s/tokenizer.ggml.bos_token_id/tokenizer.ggml.boo_token_id/' "$tmp/s.gguf" >"$tmp/t.gguf"
v 1 'tokenizer.ggml.bos_token_id: only A has it' --a "model=$m" --b "$tmp/t.gguf"
also '^verdict *different'

# A program that knows no jobs: tokens and prefills are compared, and it is said what could not be.
cat >"$tmp/old" <<OLD
#!/bin/sh
[ "\$1 \$2" != 'eval --help' ] || { "$hone" eval --help | grep -v -e --jobs; exit 0; }
case " \$* " in *' --jobs '*) exit 2 ;; esac
exec "$hone" "\$@"
OLD
chmod +x "$tmp/old"
v 0 'B is an older build' -m "$m" --b "$tmp/old"
also '^verdict *bit-identical'
# shellcheck disable=SC2086
v 1 'B is an older build' $parts --b "bin=$tmp/old kernel.get_rows@inp_embd=stuck"
also 'a build that cannot show its nodes'
v 3 "side B: .*no hone" -m "$m" --b /bin/true

# What is wrong with a side is said of that side; usage; nothing to compare.
v 3 'side B: .*nowhere' -m "$m" --b model=/tmp/nowhere.gguf
v 2 "side B: .*no such" -m "$m" --b '-ctk=q9_9'
v 2 "no op 'nothing'" -m "$m" --b kernel.nothing=ref
v 2 'give --b' -m "$m"
v 2 'side A has no model' --b base
v 2 'require' -m "$m" --b base --require good

# JSON that parses, a verdict in the journal, nothing left behind.
# shellcheck disable=SC2086
"$hone" verify $parts --texts 2 -n 8 -t 1 --b kernel.add@l_out-1=one_wrong -o json >"$tmp/json" 2>"$tmp/err" && fail 'a wrong kernel ended with 0'
python3 - "$tmp/json" <<'PY' || fail 'the JSON is not what it should be'
import json, sys
j = json.load(open(sys.argv[1]))
assert j["verdict"] == "different" and j["reasons"] and j["schema_version"] == 1
n = j["nodes"]["first"]
assert n["tensor"] == "l_out-1" and n["row"] == 0 and n["column"] == 5 and n["same_inputs"]
assert j["a"]["weights_per_token"]["by_type"]["F16"] > 0 and len(j["a"]["tokens_sha256"]) == 64
assert j["logits"]["positions"] == 18 and len(j["texts"]) == 2 and len(j["texts"][0]["a"]) == 8
PY
expect 0 'verify' journal list
expect 0 'it is the one that was recorded' journal show last
# shellcheck disable=SC2086
"$hone" verify -m "$m" --texts 12 -n 3000 --a kernel=ref --b kernel=ref --no-journal >"$tmp/out" 2>&1 &
pid=$!
sleep 1
kill -TERM $pid
rc=0
wait $pid || rc=$?
[ $rc = 130 ] || fail "an interrupted run ended with $rc"
left=$(ls "$TMPDIR")
[ -z "$left" ] || fail "left behind: $left"
[ $failed = 0 ] && echo 'verify: every fault was caught, with its place'
exit $failed
