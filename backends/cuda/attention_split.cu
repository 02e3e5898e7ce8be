/* attention_split.cu: attention of one or a few tokens over a long cache (flash-decoding): F16, BF16 or Q8_0, K and V alike,
 * heads of 64, 80, 96, 128, 192 and 256.
 *
 * A block has a token, up to eight heads of a group and a split of the positions; its four warps take tiles of 16 positions in
 * turn (attention_split.cuh), then the splits are added (attention_merge.cuh). Bound by the bytes of K and V. One token in a
 * short context has a launch of its own that does more: attention_step.cu. */
#include "backends/cuda/attention_merge.cuh"
#include "backends/cuda/attention_split.cuh"

/* The block's result, left as the split's. */
template <int D>
__device__ static __forceinline__ void split_leave(const struct attention_task &p, float (*all)[SPLIT_HEADS][D],
                                                   float (*stats)[SPLIT_HEADS][2], int token, int head, int n_heads)
{
    for (int i = threadIdx.x; i < n_heads * D; i += SPLIT_THREADS) {
        int h = i / D, column = i % D;
        float most, sum, value = split_add<D>(all, stats, h, column, &most, &sum);
        int64_t slot = attention_slot(p, token, head + h, blockIdx.x);
        p.values[slot * D + column] = value;
        if (column == 0) {
            p.stats[2 * slot] = most;
            p.stats[2 * slot + 1] = sum;
        }
    }
}

/* Grid: splits, KV heads times parts of a group, tokens. */
template <int D, class C>
static __global__ void __launch_bounds__(SPLIT_THREADS, D > 128  ? 2
                                                        : D > 96 ? 3
                                                                 : 4)
    attention_splits_kernel(const __grid_constant__ struct attention_task p)
{
    __shared__ float all[SPLIT_WARPS][SPLIT_HEADS][D], stats[SPLIT_WARPS][SPLIT_HEADS][2];
    int parts = (p.group + SPLIT_HEADS - 1) / SPLIT_HEADS, kv_head = blockIdx.y / parts, part = blockIdx.y % parts,
        token = blockIdx.z;
    int head = kv_head * p.group + part * SPLIT_HEADS, n_heads = min(SPLIT_HEADS, p.group - part * SPLIT_HEADS);
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    cuda_release();
    cuda_wait();
    struct attention_span span = attention_span_of(p, token);
    int each = attention_split_length(p, span), low = span.low + blockIdx.x * each, high = min(span.high, low + each - 1);
    if (low > span.high)
        return;
    struct split_queries<D, C> q;
    struct split_result<D, C> o = {
    };
    o.max[0] = o.max[1] = -INFINITY;
    int at = low + warp * SPLIT_TILE + lane, cell = lane < SPLIT_TILE && at <= high ? attention_cell(p, at, span.sequence) : -1;
    q.load(lane / 4 < n_heads ? view_row(p.q, head + lane / 4, token, 0) : NULL, p.q.nb[0], attention_scale(p, span.high));
    struct split_cache cache = {view_row(p.k, 0, kv_head, 0), view_row(p.v, 0, kv_head, 0), p.k.nb[1], p.v.nb[1], p.softcap};
    for (int first = low + warp * SPLIT_TILE; first <= high; first += SPLIT_GRAIN) {
        int now = cell;
        at += SPLIT_GRAIN;
        cell = lane < SPLIT_TILE && at <= high ? attention_cell(p, at, span.sequence)
                                               : -1; /* the next tile's, ahead of its need */
        split_tile<D, C>(cache, q, o, now);
    }
    split_gather<D, C>(o, all, stats);
    split_leave<D>(p, all, stats, token, head, n_heads);
}

/* ---- on the host */

static bool width_fits(int64_t d, enum format_id f)
{
    return d == 64 || d == 96 || d == 128 || d == 192 || d == 256 || (d == 80 && f != FORMAT_Q8_0);
}

static int64_t blocks_of(const struct node *n)
{
    int64_t kv_heads = n->src[1]->ne[2], group = n->src[0]->ne[1] / kv_heads;
    return kv_heads * div_up(group, SPLIT_HEADS) * n->src[0]->ne[2];
}

static int splits_of(const struct node *n)
{
    int64_t d = n->src[1]->ne[0];
    return attention_splits(n, blocks_of(n), 132 * (d > 128 ? 2 : d > 96 ? 3 : 4), SPLIT_GRAIN);
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *k = n->src[1], *v = n->src[2];
    if (k->format != v->format || k->ne[0] != v->ne[0])
        return fits_not(r, "K and V differ");
    if (k->format != FORMAT_F16 && k->format != FORMAT_BF16 && k->format != FORMAT_Q8_0)
        return fits_not(r, "a cache in %s", format_get(k->format)->name);
    if (!width_fits(k->ne[0], k->format))
        return fits_not(r, "heads of %lld", (long long)k->ne[0]);
    size_t unit = k->format == FORMAT_Q8_0 ? 2 : 16;
    if (!view_aligned(k, unit) || !view_aligned(v, unit))
        return fits_not(r, "the rows of the cache are not aligned");
    if (blocks_of(n) / (n->src[0]->ne[2] ? n->src[0]->ne[2] : 1) > 65535)
        return fits_not(r, "%lld KV heads", (long long)k->ne[2]);
    return attention_sizes_fit(n, r);
}

static size_t shared(const struct node *n)
{
    return attention_partial_bytes(n, splits_of(n));
}

template <int D> static int launch(const struct exec *x, const struct attention_task &p, dim3 grid)
{
    if (p.k.format == FORMAT_F16)
        return cuda_launch(x, attention_splits_kernel<D, halves<kind_f16>>, grid, dim3(SPLIT_THREADS), 0, p);
    if (p.k.format == FORMAT_BF16)
        return cuda_launch(x, attention_splits_kernel<D, halves<kind_bf16>>, grid, dim3(SPLIT_THREADS), 0, p);
    if constexpr (D % 32 == 0)
        return cuda_launch(x, attention_splits_kernel<D, blocks_q8_0>, grid, dim3(SPLIT_THREADS), 0, p);
    return HONE_EFAULT;
}

static int launch_width(const struct exec *x, const struct attention_task &p, dim3 grid)
{
    switch (p.k.ne[0]) {
    case 64:
        return launch<64>(x, p, grid);
    case 80:
        return launch<80>(x, p, grid);
    case 96:
        return launch<96>(x, p, grid);
    case 128:
        return launch<128>(x, p, grid);
    case 192:
        return launch<192>(x, p, grid);
    default:
        return launch<256>(x, p, grid);
    }
}

static int run(const struct exec *x, const struct node *n)
{
    struct attention_task p = attention_task_of(n, splits_of(n), SPLIT_GRAIN, x->shared);
    if (tensor_elements(n->out) == 0)
        return 0;
    int64_t tokens = n->src[0]->ne[2];
    int rc = launch_width(x, p, dim3((unsigned)p.splits, (unsigned)(blocks_of(n) / tokens), (unsigned)tokens));
    return rc ? rc : attention_merge_run(x, p);
}

CUDA_KERNEL(attention_split) = {
    .op = OP_ATTENTION, .variant = "split", .needs = CUDA_SM90, .fits = fits, .shared = shared, .run = run};
