/* mul_simt.cu: mul, elementwise, with any strides and broadcast. The kernels are in elementwise.cuh. */
#include "backends/cuda/elementwise.cuh"

struct mul_of {
    static constexpr bool two = true;
    __device__ float operator()(float a, float b) const
    {
        return a * b;
    }
};

static int run(const struct exec *x, const struct node *n)
{
    return elementwise_run(x, n, mul_of{});
}

CUDA_KERNEL(mul_simt) = {.op = OP_MUL, .variant = "simt", .needs = CUDA_SM90, .run = run};
