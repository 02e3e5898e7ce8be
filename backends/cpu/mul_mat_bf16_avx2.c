/* mul_mat_bf16_avx2.c: BF16 weights in bf16.x16 times f32 activations: the body is x16_float.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/x16_float.h"

X16_FLOAT_KERNEL(bf16, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C, vec_load_bf16);
