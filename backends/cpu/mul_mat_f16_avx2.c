/* mul_mat_f16_avx2.c: F16 weights in f16.x16 times f32 activations: the body is x16_float.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/x16_float.h"

X16_FLOAT_KERNEL(f16, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C, vec_load_half);
