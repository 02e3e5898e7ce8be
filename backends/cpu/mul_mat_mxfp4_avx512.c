/* mul_mat_mxfp4_avx512.c: MXFP4 weights in mxfp4.x16 times A8 activations, 16 rows a vector, with VNNI: the body is x16.h, the
 * unpacking x16_mxfp4.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_mxfp4.h"

X16_KERNEL(mxfp4, avx512, CPU_AVX512 | CPU_AVX512_VNNI);
