/* gate_up_glu_quantize_x16_avx2.c: gate and up products, their glu, and its quantisation for the product that follows (x16_fused.h). */
#include "backends/cpu/x16_fused.h"

FUSED_KERNEL(GATE_UP_GLU_QUANTIZE, gate_up_glu_quantize);
