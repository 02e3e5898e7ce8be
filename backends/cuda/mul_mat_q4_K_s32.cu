/* mul_mat_q4_K_s32.cu: Q4_K weights in q4_K.s32 times A8 activations: by rows in decode (matvec.cuh), by tiles in prefill
 * (matmul.cuh), by experts (experts.cuh). The unpacking is s32.cuh's. */
#include "backends/cuda/experts.cuh"

PRODUCT_FORMAT(Q4_K, q4_K);
