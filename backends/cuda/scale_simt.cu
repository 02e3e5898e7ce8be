/* scale_simt.cu: scale, elementwise, with any strides. The kernels are in elementwise.cuh. */
#include "backends/cuda/elementwise.cuh"

extern "C" {
#include "ops/scale.h"
}

struct scale_of {
    static constexpr bool two = false;
    float scale, bias;
    __device__ float operator()(float a, float) const
    {
        return fmaf(a, scale, bias);
    }
};

static int run(const struct exec *x, const struct node *n)
{
    const struct scale_params *p = node_params(n, struct scale_params);
    return elementwise_run(x, n, scale_of{p->scale, p->bias});
}

CUDA_KERNEL(scale_simt) = {.op = OP_SCALE, .variant = "simt", .needs = CUDA_SM90, .run = run};
