/* add_avx512.c: a + b, b repeating (elementwise.h). */
#include "backends/cpu/elementwise.h"

ELEMENTWISE_KERNEL_OF(ADD, add, elementwise_add);
