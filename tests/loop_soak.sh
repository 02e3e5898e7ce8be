#!/bin/sh
# The worked example of the loop on a real model, three times: each time all five ideas must be decided rightly.
set -eu
cd "$(dirname "$0")/.."
for i in 1 2 3; do
    rc=0
    examples/loop/run.sh || rc=$?
    [ $rc = 0 ] || exit $rc
done
