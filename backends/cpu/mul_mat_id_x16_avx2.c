/* mul_mat_id_x16_avx2.c: expert products on packed weights, by the kernels of mul_mat (mul_mat_id_x16.h). */
#include "backends/cpu/mul_mat_id_x16.h"

ID_X16_KERNEL(X16_AVX2, avx2, CPU_AVX2 | CPU_FMA | CPU_F16C);
