/* glu_avx512.c: f(gate) * up, every kind of f (glu.h). */
#include "backends/cpu/glu.h"

ELEMENTWISE_KERNEL(GLU, glu, glu_run);
