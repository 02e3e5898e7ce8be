/* mul_mat_q5_0_avx512.c: Q5_0 weights in q5_0.x16 times A8 activations, 16 rows a vector, with VNNI: the body is x16.h, the
 * unpacking x16_q5_0.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_q5_0.h"

X16_KERNEL(q5_0, avx512, CPU_AVX512 | CPU_AVX512_VNNI);
