/* add_rms_norm_mul_simt.cu: the residual add, rms_norm of the sum and the mul by the weight; the body is in norm.cu. */
#include "backends/cuda/norm.h"

CUDA_KERNEL(add_rms_norm_mul_simt) = {.op = OP_ADD_RMS_NORM_MUL, .variant = "simt", .needs = CUDA_SM90, .fits = norm_fits, .run = norm_run};
