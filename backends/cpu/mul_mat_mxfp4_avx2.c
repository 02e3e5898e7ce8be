/* mul_mat_mxfp4_avx2.c: MXFP4 weights in mxfp4.x16 times A8 activations, 8 rows a vector, with maddubs: the body is x16.h, the
 * unpacking x16_mxfp4.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/x16_mxfp4.h"

X16_KERNEL(mxfp4, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C);
