#!/bin/sh
# What `make demo` runs: fetches SmolLM2-135M-Instruct once, asks it a question on the reference path and on the fast kernels, and climbs a short
# ladder between the two, each rung checked against the reference.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone

rc=0
model=$(sh examples/fetch.sh smollm2) || rc=$?
if [ "$rc" = 77 ]; then
    echo "demo: skipped, since the model is not here and OFFLINE is set"
    exit 0
elif [ "$rc" != 0 ]; then
    exit "$rc"
fi

echo
echo "== SmolLM2-135M-Instruct, Q4_1 ($model)"
echo "== asked on the fast kernels: What is the capital of France, and what is it known for?"
echo
"$hone" run -m "$model" -p 'What is the capital of France, and what is it known for?' -n 60 --temp 0 | tee "${B:-build}/demo.txt"
grep -q Paris "${B:-build}/demo.txt" || { echo "demo: the answer does not name Paris" >&2; exit 1; }

echo
echo "== a ladder from the double-precision references to the fast kernels: one change a rung, each judged by its logits"
echo
"$hone" ladder -m "$model" --texts 2 --text-tokens 40 --seconds 0.3

cat <<END

Next:
  $hone chat -m $model
  $hone trace -m $model --nodes
  $hone run -m $model -p 'Write a haiku about rain.' --temp 0.7 --seed 1
END
