/* ssm_conv_simt.cu: the convolution before a recurrent layer, windows of up to 16; the body is in conv.cu. */
#include "backends/cuda/conv.h"

static int run(const struct exec *x, const struct node *n)
{
    return conv_run(x, n, false);
}

CUDA_KERNEL(ssm_conv_simt) = {.op = OP_SSM_CONV, .variant = "simt", .needs = CUDA_SM90, .fits = conv_fits, .run = run};
