/* mul_mat_f16_avx512.c: F16 weights in f16.x16 times f32 activations: the body is x16_float.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/x16_float.h"

X16_FLOAT_KERNEL(f16, avx512, CPU_AVX512, vec_load_half);
