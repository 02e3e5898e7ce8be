#!/bin/sh
# kv_matrix.sh [MODEL]: what each pair of KV formats costs in quality: perplexity of bench/kv_text.txt (this project's own documentation as it
# was in 2026, over 4,000 tokens in windows of 512) and the KL divergence from f16/f16, for all 64 pairs, as a Markdown table. SmolLM2 unless
# a model is named.
#
#   bench/kv_matrix.sh                              a quarter of an hour; THREADS=1: beside other work, quality does not mind
#   KEEP=folder bench/kv_matrix.sh                  the runs' JSON stays there, and a run whose JSON is there is not made again
#
# Then the pairs of one format with attention unfused (-fa off, fuse.rope_kv=off) on one window, for what fusing changes: there with matrix
# products that do not quantise activations, which would make more of a difference in a last bit than there is. Random weights give no
# perplexity worth a table, hence a real model; no time is measured, so the machine may be busy.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
model=${1:-$(sh examples/fetch.sh smollm2)}
threads=${THREADS:-2}
formats=${FORMATS:-f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0}
text=bench/kv_text.txt
out=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"

# $RUN, if set, comes before each command, so that a machine that is shared can queue them.
measure() { # name options...
    name=$1
    shift
    [ -s "$out/$name.json" ] && return
    ${RUN:-} "$hone" perplexity -m "$model" -t "$threads" --no-journal -o json "$@" >"$out/$name.partial"
    mv "$out/$name.partial" "$out/$name.json"
    echo "kv_matrix: $name" >&2
}

[ -s "$out/base.kl" ] || ${RUN:-} "$hone" perplexity -m "$model" -t "$threads" --no-journal -f $text -ctk f16 -ctv f16 \
    --kl-base-save "$out/base.kl" >&2
for k in $formats; do
    for v in $formats; do
        measure "$k-$v" --kl-base "$out/base.kl" -ctk "$k" -ctv "$v"
    done
    exact="--set fuse=off --set kernel.mul_mat=any_avx2"
    # shellcheck disable=SC2086
    measure "fused-$k" -f $text --chunks 1 -ctk "$k" -ctv "$k" $exact --set fuse.rope_kv=on
    # shellcheck disable=SC2086
    measure "unfused-$k" -f $text --chunks 1 -ctk "$k" -ctv "$k" $exact -fa off
done
python3 bench/kv_table.py "$out" $formats
