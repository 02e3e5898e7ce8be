/* mul_mat_iq4_xs_avx2.c: IQ4_XS weights in iq4_xs.x16 times A8 activations, 8 rows a vector, with maddubs: the body is x16.h,
 * the unpacking x16_iq4_xs.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/x16_iq4_xs.h"

X16_KERNEL(iq4_xs, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C);
