#!/bin/sh
# demo.sh: what `make demo` shows: a small real model is fetched once and answers a question, then climbs a ladder. Greedy (--temp 0), so that everybody
# sees the same answer; tests/test_real.c holds it. Without the model (OFFLINE=1) it says so and ends well, as there is no fault.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
prompt='What is gravity? Answer in one sentence.'
n=64

model=$(sh examples/fetch.sh smollm2) || {
    rc=$?
    [ $rc = 77 ] && echo "demo: SKIPPED, the model is not here" >&2 && exit 0
    exit $rc
}
say() {
    printf '%s\n' "$*" >&2
}
say
say "SmolLM2-135M-Instruct: 135 million weights of 4 bits, on this machine's CPU"
say "\$ $B/hone run -m $model -p '$prompt' -n $n --temp 0"
say
"$B/hone" run -m "$model" -p "$prompt" -n $n --temp 0
say
say "A ladder from the double-precision references to the fast kernels: one change a rung, each judged by its logits"
say
rc=0
"$B/hone" ladder -m "$model" --texts 3 --greedy 24 --seconds 0.3 || rc=$?
[ $rc -le 1 ] || exit $rc # 1 says in the last line what is not local, which is no fault of the demo
say
say "The model is kept as $model"
say "Try next:"
say "  $B/hone chat -m $model"
say "  $B/hone run -m $model --raw -p 'Once upon a time' -n 100"
say "  $B/hone inspect $model"
