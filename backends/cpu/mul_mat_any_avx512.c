/* mul_mat_any_avx512.c: whatever mul_mat takes, 16 values a vector: the body is mul_mat_any.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/mul_mat_any.h"

ANY_KERNEL(avx512, CPU_AVX512);
