/* mul_mat_bf16.cu: BF16 weights in file order times f32 activations: by rows in decode (matvec.cuh), by tiles in
 * prefill (matmul_single.cuh). */
#include "backends/cuda/experts.cuh"

PRODUCT_SINGLE(BF16, bf16);
