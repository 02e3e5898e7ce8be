/* mul_mat_group_x16_avx512.c: two or three products of one activation, without a barrier between them (x16_fused.h). */
#include "backends/cpu/x16_fused.h"

FUSED_KERNEL(MUL_MAT_GROUP, mul_mat_group);
