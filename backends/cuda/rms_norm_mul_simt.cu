/* rms_norm_mul_simt.cu: rms_norm and the mul by its weight; the body is in norm.cu. */
#include "backends/cuda/norm.h"

CUDA_KERNEL(rms_norm_mul_simt) = {.op = OP_RMS_NORM_MUL, .variant = "simt", .needs = CUDA_SM90, .fits = norm_fits, .run = norm_run};
