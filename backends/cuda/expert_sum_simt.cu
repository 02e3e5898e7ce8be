/* expert_sum_simt.cu: a token's experts added by their weights, in the order of their places; a thread an element, any strides. */
#include "backends/cuda/view.cuh"

static __global__ void __launch_bounds__(256) expert_sum_elements(struct view x, struct view weights, struct view y)
{
    cuda_release();
    cuda_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= y.ne[0])
        return;
    for (int64_t t = blockIdx.y; t < y.ne[1]; t += gridDim.y) {
        float sum = 0;
#pragma unroll 4
        for (int64_t j = 0; j < x.ne[1]; j++)
            sum = fmaf(*view_f32(weights, j, t, 0, 0), *view_f32(x, i, j, t, 0), sum);
        *view_f32(y, i, t, 0, 0) = sum;
    }
}

static int run(const struct exec *x, const struct node *n)
{
    int64_t tokens = n->out->ne[1];
    return cuda_launch(x, expert_sum_elements, dim3((unsigned)div_up(n->out->ne[0], 256), (unsigned)(tokens < 65535 ? tokens : 65535)), dim3(256), 0,
                       view_of(n->src[0]), view_of(n->src[1]), view_of(n->out));
}

CUDA_KERNEL(expert_sum_simt) = {.op = OP_EXPERT_SUM, .variant = "simt", .needs = CUDA_SM90, .run = run};
