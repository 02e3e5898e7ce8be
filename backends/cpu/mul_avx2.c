/* mul_avx2.c: a * b, b repeating (elementwise.h). */
#include "backends/cpu/elementwise.h"

ELEMENTWISE_KERNEL_OF(MUL, mul, elementwise_mul);
