/* mlp_x16_avx2.c: gate and up products, their glu, the down product and the residual: the whole MLP as one unit (x16_fused.h). */
#include "backends/cpu/x16_fused.h"

FUSED_KERNEL(MLP, mlp);
