/* rms_norm_mul_quantize_avx512.c: rms_norm, the mul by its weight and the quantisation of the result (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(RMS_NORM_MUL_QUANTIZE, rms_norm_mul_quantize);
