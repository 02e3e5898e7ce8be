/* mul_mat_iq4_nl_avx512.c: IQ4_NL weights in iq4_nl.x16 times A8 activations, 16 rows a vector, with VNNI: the body is x16.h,
 * the unpacking x16_iq4_nl.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_iq4_nl.h"

X16_KERNEL(iq4_nl, avx512, CPU_AVX512 | CPU_AVX512_VNNI);
