/* mul_mat_id_any_avx512.c: expert products of any weight format in any layout: the body is mul_mat_id_any.h. */
#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/mul_mat_id_any.h"

ID_ANY_KERNEL(avx512, CPU_AVX512);
