/* scale_avx512.c: a * scale + bias (elementwise.h). */
#include "backends/cpu/elementwise.h"

ELEMENTWISE_KERNEL_OF(SCALE, scale, elementwise_scale);
