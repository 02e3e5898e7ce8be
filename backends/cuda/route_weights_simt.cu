/* route_weights_simt.cu: how much each expert counts that a token was sent to: a warp a token, any strides. */
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/view.cuh"

extern "C" {
#include "ops/route_weights.h"
}

struct route {
    struct view logits, selected;
    struct route_weights_params p;
    int64_t token;
};

/* The logit of the token's j-th expert; -inf: there is none. */
__device__ static inline float route_logit(const struct route &r, int64_t j)
{
    int32_t id = view_index(r.selected, j, r.token);
    return id >= 0 && id < r.logits.ne[0] ? *view_f32(r.logits, id, r.token, 0, 0) : -INFINITY;
}

__device__ static inline float route_value(const struct route &r, int64_t j, float most, float below)
{
    float x = route_logit(r, j);
    if (x == -INFINITY)
        return 0;
    return r.p.mode == ROUTE_SIGMOID ? 1 / (1 + expf(-x)) : expf(x - most) / below;
}

static __global__ void __launch_bounds__(32) route_tokens(struct view logits, struct view selected, struct view y, struct route_weights_params p)
{
    struct route r = {logits, selected, p, blockIdx.x};
    bool all = p.mode == ROUTE_SOFTMAX;
    int64_t k = y.ne[0], n = all ? logits.ne[0] : k;
    float most = -INFINITY, below = 0, sum = 0;
    cuda_release();
    cuda_wait();
    for (int64_t i = threadIdx.x; i < n; i += 32)
        most = fmaxf(most, all ? *view_f32(logits, i, r.token, 0, 0) : route_logit(r, i));
    most = warp_max(most);
    for (int64_t i = threadIdx.x; i < n; i += 32)
        below += expf((all ? *view_f32(logits, i, r.token, 0, 0) : route_logit(r, i)) - most);
    below = warp_sum(below);
    for (int64_t j = threadIdx.x; j < k; j += 32)
        sum += route_value(r, j, most, below);
    sum = warp_sum(sum);
    float factor = p.scale / (p.normalise ? fmaxf(sum, 0x1p-14f) : 1);
    for (int64_t j = threadIdx.x; j < k; j += 32)
        *view_f32(y, j, r.token, 0, 0) = route_value(r, j, most, below) * factor;
}

static bool fits(const struct node *n, struct reason *r)
{
    return n->out->ne[1] <= INT32_MAX || fits_not(r, "%lld tokens", (long long)n->out->ne[1]);
}

static int run(const struct exec *x, const struct node *n)
{
    return cuda_launch(x, route_tokens, dim3((unsigned)n->out->ne[1]), dim3(32), 0, view_of(n->src[0]), view_of(n->src[1]), view_of(n->out),
                       *node_params(n, struct route_weights_params));
}

CUDA_KERNEL(route_weights_simt) = {.op = OP_ROUTE_WEIGHTS, .variant = "simt", .needs = CUDA_SM90, .fits = fits, .run = run};
