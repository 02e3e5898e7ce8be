#!/bin/sh
# All CUDA kernels that can be emulated, attention and the net of the delta rule too: minutes.
exec sh "$(dirname "$0")/cuda_emulated_test.sh" all
