/* mul_mat_id_s32.cu: products with the experts that tokens were sent to (experts.cuh), and the sorting of pairs by expert.
 *
 * Sorting: a block an expert counts the pairs of lower experts, which is where its own begin, and lists its own in their order:
 * every block reads all ids, a few kilobytes, and none waits for another. */
#include "backends/cuda/experts.cuh"

enum { THREADS = 256 };

struct sort_args {
    struct expert_args e;
    int32_t *start, *order;
    float *out; /* rows of pairs of no expert become zeros */
    size_t out_stride;
    uint32_t width;
};

/* Sum of v over the block's threads before this one; *all: of all. */
static __device__ int sum_before(int v, int *all)
{
    __shared__ int sums[THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, sum = v, before = 0;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        int other = __shfl_up_sync(0xffffffffu, sum, o);
        sum += lane >= o ? other : 0;
    }
    __syncthreads();
    if (lane == 31)
        sums[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int i = 0; i < THREADS / 32; i++) {
        before += i < warp ? sums[i] : 0;
        *all += sums[i];
    }
    return before + sum - v;
}

/* Block n_expert is the list of pairs without an expert. */
static __global__ void __launch_bounds__(THREADS) sort_pairs(const __grid_constant__ struct sort_args a)
{
    cuda_release();
    cuda_wait();
    int own = (int)blockIdx.x, share = (a.e.pairs + THREADS - 1) / THREADS;
    int first = min((int)threadIdx.x * share, a.e.pairs), last = min(first + share, a.e.pairs), lower = 0, mine = 0, all, begin;
    for (int p = first; p < last; p++) {
        int expert = expert_of(a.e, p), of = expert < 0 ? a.e.n_expert : expert;
        lower += of < own;
        mine += of == own;
    }
    sum_before(lower, &begin);
    int at = begin + sum_before(mine, &all);
    if (threadIdx.x == 0)
        a.start[own] = begin;
    for (int p = first; p < last; p++) {
        int expert = expert_of(a.e, p);
        if ((expert < 0 ? a.e.n_expert : expert) != own)
            continue;
        a.order[at++] = p;
        for (uint32_t i = 0; expert < 0 && i < a.width; i++)
            a.out[(size_t)p * a.out_stride + i] = 0;
    }
}

static size_t start_bytes(const struct node *n)
{
    return ((size_t)n->src[0]->ne[2] + 1 + 63) / 64 * 64 * sizeof(int32_t);
}

size_t experts_shared(const struct node *n)
{
    return start_bytes(n) + sizeof(int32_t) * (size_t)(n->out->ne[1] * n->out->ne[2]);
}

void experts_args_of(const struct node *n, struct product_args *a, struct expert_args *e)
{
    const struct tensor *w = n->src[0], *x = n->src[1], *ids = n->src[2], *bias = n->n_src > 3 ? n->src[3] : NULL;
    product_args_of(n, a);
    *e = {};
    e->ids = (const uint8_t *)ids->data;
    e->strides[0] = ids->nb[0];
    e->strides[1] = ids->nb[1];
    e->bias = bias ? (const float *)bias->data : NULL;
    e->bias_stride = bias ? bias->nb[1] / sizeof(float) : 0;
    e->n_expert = (int)w->ne[2];
    e->used = (int)n->out->ne[1];
    e->per_row = x->ne[1] == 1 ? e->used : 1;
    e->pairs = (int)(n->out->ne[1] * n->out->ne[2]);
}

int experts_sort(const struct exec *x, const struct node *n, const struct expert_args *e, struct mm_lists *l)
{
    struct sort_args s = {};
    s.e = *e;
    s.start = (int32_t *)x->shared;
    s.order = (int32_t *)((uint8_t *)x->shared + start_bytes(n));
    s.out = (float *)n->out->data;
    s.out_stride = n->out->nb[1] / sizeof(float);
    s.width = (uint32_t)n->out->ne[0];
    *l = {s.start, s.order, e->bias, e->bias_stride, e->n_expert, e->per_row};
    return cuda_launch(x, sort_pairs, dim3((unsigned)e->n_expert + 1), dim3(THREADS), 0, s);
}

static bool fits(const struct node *n, struct reason *r)
{
    return product_id_fits(n, false, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return tensor_elements(n->out) ? product_format(n->src[0]->format)->experts(x, n) : 0;
}

CUDA_KERNEL(mul_mat_id_s32) = {.op = OP_MUL_MAT_ID,
                               .variant = "s32",
                               .needs = CUDA_SM90,
                               .wants = {.layout_for = product_layout, .quantized = true, .activation = FORMAT_A8},
                               .fits = fits,
                               .shared = experts_shared,
                               .run = run};
