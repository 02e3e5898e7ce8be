/* mul_mat_add_x16_avx512.c: a product and its residual, added by the worker that has the rows in its cache (x16_fused.h). */
#include "backends/cpu/x16_fused.h"

FUSED_KERNEL(MUL_MAT_ADD, mul_mat_add);
