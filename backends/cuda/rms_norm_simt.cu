/* rms_norm_simt.cu: rows of mean square one; the body is in norm.cu. */
#include "backends/cuda/norm.h"

CUDA_KERNEL(rms_norm_simt) = {.op = OP_RMS_NORM, .variant = "simt", .needs = CUDA_SM90, .fits = norm_fits, .run = norm_run};
