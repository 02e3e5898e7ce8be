/* all_reduce_add_rms_norm_mul_quantize_avx2.c: the sum of all partials and the residual, rms_norm, the mul by its weight and
 * the quantisation (collective_norm.h). */
#include "backends/cpu/collective_norm.h"

COLLECTIVE_NORM_KERNEL(ALL_REDUCE_ADD_RMS_NORM_MUL_QUANTIZE, all_reduce_add_rms_norm_mul_quantize);
