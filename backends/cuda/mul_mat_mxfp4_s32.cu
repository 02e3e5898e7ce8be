/* mul_mat_mxfp4_s32.cu: MXFP4 weights in mxfp4.s32 times A8 activations: by rows in decode (matvec.cuh), by tiles in prefill
 * (matmul.cuh), by experts (experts.cuh). The unpacking is s32.cuh's. */
#include "backends/cuda/experts.cuh"

PRODUCT_FORMAT(MXFP4, mxfp4);
