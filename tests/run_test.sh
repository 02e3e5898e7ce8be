#!/bin/sh
# The runner itself: it once counted no failure, and a suite that cannot fail is worse than none.
set -u
cd "$(dirname "$0")/.."
out=$(sh tests/run.sh self)
rc=$?
[ $rc = 1 ] || { echo "a failed test gives exit code $rc"; exit 1; }
for line in '1 passed, 1 failed, 1 skipped' 'failed: bad' '== missing: SKIPPED'; do
    printf '%s\n' "$out" | grep -qxF -- "$line" || { echo "not printed: $line"; exit 1; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/tests"
printf '#!/bin/sh\necho it is well\n' >"$tmp/tests/test_good"
printf '#!/bin/sh\nkill -9 $$\n' >"$tmp/tests/test_killed"
chmod +x "$tmp"/tests/*
out=$(B=$tmp sh tests/run.sh units)
rc=$?
[ $rc = 1 ] || { echo "a failed test beside another gives exit code $rc"; exit 1; }
for line in 'it is well' 'failed: test_killed' '1 passed, 1 failed, 0 skipped'; do
    printf '%s\n' "$out" | grep -qxF -- "$line" || { echo "not printed: $line"; exit 1; }
done
echo "run: a failure is a failure"
