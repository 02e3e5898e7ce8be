/* mul_mat_any_avx2.c: whatever mul_mat takes, 8 values a vector: the body is mul_mat_any.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/mul_mat_any.h"

ANY_KERNEL(avx2, CPU_AVX2 | CPU_FMA);
