/* glu_simt.cu: f(gate) up, elementwise, with any strides, limit and shift. The kernels are in elementwise.cuh. */
#include "backends/cuda/elementwise.cuh"
#include "backends/cuda/unary.cuh"

extern "C" {
#include "ops/glu.h"
}

struct glu_of {
    static constexpr bool two = true;
    int kind;
    float limit, shift;
    __device__ float operator()(float gate, float up) const
    {
        if (limit > 0) {
            gate = gate > limit ? limit : gate;
            up = up > limit ? limit : up < -limit ? -limit : up;
        }
        return unary_value(kind, gate) * (up + shift);
    }
};

static int run(const struct exec *x, const struct node *n)
{
    const struct glu_params *p = node_params(n, struct glu_params);
    return elementwise_run(x, n, glu_of{p->kind, p->limit, p->shift});
}

CUDA_KERNEL(glu_simt) = {.op = OP_GLU, .variant = "simt", .needs = CUDA_SM90, .run = run};
