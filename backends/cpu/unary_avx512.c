/* unary_avx512.c: f(x), every kind of f (unary.h). */
#include "backends/cpu/unary.h"

ELEMENTWISE_KERNEL(UNARY, unary, unary_run);
