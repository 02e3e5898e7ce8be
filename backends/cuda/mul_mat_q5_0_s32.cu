/* mul_mat_q5_0_s32.cu: Q5_0 weights in q5_0.s32 times A8 activations: by rows in decode (matvec.cuh), by tiles in prefill
 * (matmul.cuh), by experts (experts.cuh). The unpacking is s32.cuh's. */
#include "backends/cuda/experts.cuh"

PRODUCT_FORMAT(Q5_0, q5_0);
