/* l2_norm_simt.cu: rows of length one; the body is in norm.cu. */
#include "backends/cuda/norm.h"

CUDA_KERNEL(l2_norm_simt) = {.op = OP_L2_NORM, .variant = "simt", .needs = CUDA_SM90, .fits = norm_fits, .run = norm_run};
