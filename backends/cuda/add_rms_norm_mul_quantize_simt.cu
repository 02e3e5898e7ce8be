/* add_rms_norm_mul_quantize_simt.cu: the residual add, rms_norm of the sum, the mul by the weight, and the result quantised; the body is in norm.cu. */
#include "backends/cuda/norm.h"

CUDA_KERNEL(add_rms_norm_mul_quantize_simt) = {.op = OP_ADD_RMS_NORM_MUL_QUANTIZE, .variant = "simt", .needs = CUDA_SM90, .fits = norm_fits, .run = norm_run};
