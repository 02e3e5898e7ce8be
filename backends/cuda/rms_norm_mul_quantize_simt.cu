/* rms_norm_mul_quantize_simt.cu: rms_norm, the mul by its weight, and the result quantised, in one pass over registers; the body is in norm.cu. */
#include "backends/cuda/norm.h"

CUDA_KERNEL(rms_norm_mul_quantize_simt) = {.op = OP_RMS_NORM_MUL_QUANTIZE, .variant = "simt", .needs = CUDA_SM90, .fits = norm_fits, .run = norm_run};
