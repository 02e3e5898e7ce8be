/* mul_mat_iq4_nl_s32.cu: IQ4_NL weights in iq4_nl.s32 times A8 activations: by rows in decode (matvec.cuh), by tiles in prefill
 * (matmul.cuh), by experts (experts.cuh). The unpacking is s32.cuh's. */
#include "backends/cuda/experts.cuh"

PRODUCT_FORMAT(IQ4_NL, iq4_nl);
