/* gate_up_glu_x16_avx512.c: gate and up products and their glu (x16_fused.h). */
#include "backends/cpu/x16_fused.h"

FUSED_KERNEL(GATE_UP_GLU, gate_up_glu);
