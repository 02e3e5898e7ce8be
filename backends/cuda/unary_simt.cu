/* unary_simt.cu: the activation functions, elementwise, with any strides. The kernels are in elementwise.cuh, the functions in
 * unary.cuh; which one is a constant of the launch, so no warp diverges. */
#include "backends/cuda/elementwise.cuh"
#include "backends/cuda/unary.cuh"

struct unary_of {
    static constexpr bool two = false;
    int kind;
    __device__ float operator()(float a, float) const
    {
        return unary_value(kind, a);
    }
};

static int run(const struct exec *x, const struct node *n)
{
    return elementwise_run(x, n, unary_of{node_params(n, struct unary_params)->kind});
}

CUDA_KERNEL(unary_simt) = {.op = OP_UNARY, .variant = "simt", .needs = CUDA_SM90, .run = run};
