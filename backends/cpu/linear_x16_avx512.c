/* linear_x16_avx512.c: an activation is quantised, multiplied, and a residual added, as one unit (x16_fused.h). */
#include "backends/cpu/x16_fused.h"

FUSED_KERNEL_FROM_F32(LINEAR, linear, linear_scratch);
