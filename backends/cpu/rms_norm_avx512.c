/* rms_norm_avx512.c: rms_norm (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(RMS_NORM, rms_norm);
