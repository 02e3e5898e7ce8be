/* l2_norm_avx512.c: l2_norm (norm.h). */
#include "backends/cpu/norm.h"

NORM_KERNEL(L2_NORM, l2_norm);
