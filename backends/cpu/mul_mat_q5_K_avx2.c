/* mul_mat_q5_K_avx2.c: Q5_K weights in q5_K.x16 times A8 activations, 8 rows a vector, with maddubs: the body is x16.h, the
 * unpacking x16_q5_K.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/x16_q5_K.h"

X16_KERNEL(q5_K, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C);
