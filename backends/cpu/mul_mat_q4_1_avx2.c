/* mul_mat_q4_1_avx2.c: Q4_1 weights in q4_1.x16 times A8 activations, 8 rows a vector, with maddubs: the body is x16.h, the
 * unpacking x16_q4_1.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/x16_q4_1.h"

X16_KERNEL(q4_1, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C);
