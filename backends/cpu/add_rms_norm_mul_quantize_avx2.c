/* add_rms_norm_mul_quantize_avx2.c: the residual add, rms_norm, the mul by its weight and the quantisation of the result
 * (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(ADD_RMS_NORM_MUL_QUANTIZE, add_rms_norm_mul_quantize);
