/* mul_mat_q3_K_s32.cu: Q3_K weights in q3_K.s32 times A8 activations: by rows in decode (matvec.cuh), by tiles in prefill
 * (matmul.cuh), by experts (experts.cuh). The unpacking is s32.cuh's. */
#include "backends/cuda/experts.cuh"

PRODUCT_FORMAT(Q3_K, q3_K);
