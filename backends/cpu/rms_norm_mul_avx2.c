/* rms_norm_mul_avx2.c: rms_norm and the mul by its weight (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(RMS_NORM_MUL, rms_norm_mul);
