/* mul_mat_bf16_avx512.c: BF16 weights in bf16.x16 times f32 activations: the body is x16_float.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_float.h"

X16_FLOAT_KERNEL(bf16, avx512, CPU_AVX512, vec_load_bf16);
