/* mul_mat_iq4_xs_avx512.c: IQ4_XS weights in iq4_xs.x16 times A8 activations, 16 rows a vector, with VNNI: the body is x16.h,
 * the unpacking x16_iq4_xs.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_iq4_xs.h"

X16_KERNEL(iq4_xs, avx512, CPU_AVX512 | CPU_AVX512_VNNI);
