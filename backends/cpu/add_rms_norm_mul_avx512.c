/* add_rms_norm_mul_avx512.c: the residual add, rms_norm and the mul by its weight (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(ADD_RMS_NORM_MUL, add_rms_norm_mul);
