#!/bin/sh
# Every architecture in every weight type of hone quantize, on fast kernels against the reference: some minutes.
set -eu
cd "$(dirname "$0")/.."
HONE_SOAK=1 "${B:-build}/tests/test_arch_types"
