/* mul_mat_q8_0_avx512.c: Q8_0 weights in q8_0.x16 times A8 activations, 16 rows a vector, with VNNI: the body is x16.h, the
 * unpacking x16_q8_0.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_q8_0.h"

X16_KERNEL(q8_0, avx512, CPU_AVX512 | CPU_AVX512_VNNI);
