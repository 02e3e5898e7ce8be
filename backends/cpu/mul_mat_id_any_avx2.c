/* mul_mat_id_any_avx2.c: expert products of any weight format in any layout: the body is mul_mat_id_any.h. */
#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/mul_mat_id_any.h"

ID_ANY_KERNEL(avx2, CPU_AVX2 | CPU_FMA);
