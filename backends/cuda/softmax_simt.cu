/* softmax_simt.cu: exp(s x + mask - max) / sum over a row, a block a row, any strides. Three passes over a row that lies in the
 * cache: attention has its own, so what comes here is a router's row or a test's. */
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/view.cuh"

extern "C" {
#include "ops/softmax.h"
}

struct softmax_row {
    const char *x, *mask;
    int64_t x_stride, mask_stride;
    float scale;
};

__device__ static inline float softmax_value(const struct softmax_row &r, int64_t i)
{
    float mask = r.mask ? *(const float *)(r.mask + i * r.mask_stride) : 0;
    return fmaf(*(const float *)(r.x + i * r.x_stride), r.scale, mask);
}

static __global__ void __launch_bounds__(1024) softmax_rows(struct view x, struct view mask, struct view y, float scale)
{
    __shared__ float room[2][32];
    int64_t i[3];
    cuda_release();
    cuda_wait();
    view_split(y, blockIdx.x, i);
    struct softmax_row r = {view_row(x, i[0], i[1], i[2]), NULL, x.nb[0], mask.nb[0], scale};
    char *to = view_row(y, i[0], i[1], i[2]);
    if (mask.data)
        r.mask = view_row(mask, i[0] % mask.ne[1], i[1] % mask.ne[2], i[2] % mask.ne[3]);
    float most = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j < y.ne[0]; j += blockDim.x)
        most = fmaxf(most, softmax_value(r, j));
    most = block_max(most, room[0]);
    for (int64_t j = threadIdx.x; j < y.ne[0]; j += blockDim.x)
        sum += expf(softmax_value(r, j) - most);
    sum = block_sum(sum, room[1]);
    for (int64_t j = threadIdx.x; j < y.ne[0]; j += blockDim.x)
        *(float *)(to + j * y.nb[0]) = most == -INFINITY ? 0 : expf(softmax_value(r, j) - most) / sum;
}

static bool fits(const struct node *n, struct reason *r)
{
    return tensor_rows(n->out) <= INT32_MAX || fits_not(r, "%lld rows", (long long)tensor_rows(n->out));
}

static int run(const struct exec *x, const struct node *n)
{
    int64_t width = n->out->ne[0];
    int threads = width <= 128 ? 32 : width <= 4096 ? 256 : 1024;
    if (width == 0)
        return 0;
    return cuda_launch(x, softmax_rows, dim3((unsigned)tensor_rows(n->out)), dim3((unsigned)threads), 0, view_of(n->src[0]),
                       view_of(n->n_src > 1 ? n->src[1] : NULL), view_of(n->out), node_params(n, struct softmax_params)->scale);
}

CUDA_KERNEL(softmax_simt) = {.op = OP_SOFTMAX, .variant = "simt", .needs = CUDA_SM90, .fits = fits, .run = run};
