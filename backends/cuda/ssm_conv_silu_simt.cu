/* ssm_conv_silu_simt.cu: the convolution before a recurrent layer and the activation behind it; the body is in conv.cu. */
#include "backends/cuda/conv.h"

static int run(const struct exec *x, const struct node *n)
{
    return conv_run(x, n, true);
}

CUDA_KERNEL(ssm_conv_silu_simt) = {.op = OP_SSM_CONV_SILU, .variant = "simt", .needs = CUDA_SM90, .fits = conv_fits, .run = run};
