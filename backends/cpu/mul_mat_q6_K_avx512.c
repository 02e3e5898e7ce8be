/* mul_mat_q6_K_avx512.c: Q6_K weights in q6_K.x16 times A8 activations, 16 rows a vector, with VNNI: the body is x16.h, the
 * unpacking x16_q6_K.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_q6_K.h"

X16_KERNEL(q6_K, avx512, CPU_AVX512 | CPU_AVX512_VNNI);
