#!/bin/sh
# The journal's long proofs, on a real disk: 200 writers killed at random moments, 3000 damaged files.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
HONE_TEST_FOLDER=${TMPDIR:-/tmp} HONE_JOURNAL_KILLS=${HONE_JOURNAL_KILLS:-200} "$B/tests/test_journal_crash"
HONE_SOAK=1 "$B/tests/test_journal_exchange"
