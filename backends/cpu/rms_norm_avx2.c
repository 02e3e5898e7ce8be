/* rms_norm_avx2.c: rms_norm (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(RMS_NORM, rms_norm);
