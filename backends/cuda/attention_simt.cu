/* attention_simt.cu: attention for whatever the faster kernels refuse: K and V in F32, F16, BF16 or Q8_0, each its own, heads of any
 * width, any strides. A block has one head of one token and a split of its positions: scores of 128 positions, a warp each in turn,
 * then a thread a column of V. It reads K and V once a head, not once a group: right first; attention_split and attention_tile are the
 * fast ones. */
#include "backends/cuda/attention_merge.cuh"

enum { SIMT_THREADS = 128, SIMT_POSITIONS = 128, SIMT_MOST = 4096 };

static __global__ void __launch_bounds__(SIMT_THREADS) attention_head(const __grid_constant__ struct attention_task p)
{
    extern __shared__ float q[]; /* [d], then the sums of [d_v] */
    __shared__ float weights[SIMT_POSITIONS], room[2][32];
    __shared__ int cells[SIMT_POSITIONS];
    int d = (int)p.k.ne[0], d_v = (int)p.v.ne[0], head = blockIdx.y, token = blockIdx.z, kv_head = head / p.group;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float *sums = q + d, most = -INFINITY, total = 0;
    cuda_release();
    cuda_wait();
    struct attention_span span = attention_span_of(p, token);
    int each = attention_split_length(p, span), low = span.low + blockIdx.x * each;
    int64_t slot = attention_slot(p, token, head, blockIdx.x);
    if (low > span.high)
        return;
    int high = min(span.high, low + each - 1);
    float scale = attention_scale(p, span.high);
    for (int i = threadIdx.x; i < d; i += SIMT_THREADS)
        q[i] = *view_f32(p.q, i, head, token, 0) * scale;
    for (int i = threadIdx.x; i < d_v; i += SIMT_THREADS)
        sums[i] = 0;
    for (; low <= high; low += SIMT_POSITIONS) {
        int n = min(SIMT_POSITIONS, high - low + 1), tid = threadIdx.x;
        __syncthreads();
        cells[tid] = tid < n ? attention_cell(p, low + tid, span.sequence) : -1;
        __syncthreads();
        for (int j = warp; j < n; j += SIMT_THREADS / WARP) {
            float dot = 0;
            if (cells[j] >= 0) {
                const char *row = view_row(p.k, cells[j], kv_head, 0);
                for (int i = lane; i < d; i += WARP)
                    dot = fmaf(q[i], load_value(p.k.format, row, p.k.nb[0], i), dot);
            }
            dot = warp_sum(dot);
            if (lane == 0)
                weights[j] = cells[j] >= 0 ? attention_cap(p, dot) : -INFINITY;
        }
        __syncthreads();
        float score = tid < n ? weights[tid] : -INFINITY, before = most;
        most = fmaxf(most, block_max(score, room[0]));
        float weight = attention_weight(score, most), rescale = attention_weight(before, most);
        total = total * rescale + block_sum(weight, room[1]);
        weights[tid] = weight;
        __syncthreads();
        for (int i = tid; i < d_v; i += SIMT_THREADS) {
            float sum = sums[i] * rescale;
            for (int j = 0; j < n; j++)
                if (cells[j] >= 0)
                    sum = fmaf(weights[j], load_value(p.v.format, view_row(p.v, cells[j], kv_head, 0), p.v.nb[0], i), sum);
            sums[i] = sum;
        }
    }
    for (int i = threadIdx.x; i < d_v; i += SIMT_THREADS)
        p.values[slot * d_v + i] = sums[i];
    if (threadIdx.x == 0) {
        p.stats[2 * slot] = most;
        p.stats[2 * slot + 1] = total;
    }
}

static int splits_of(const struct node *n)
{
    return attention_splits(n, n->src[0]->ne[1] * n->src[0]->ne[2], 132 * 4, SIMT_POSITIONS);
}

static bool fits(const struct node *n, struct reason *r)
{
    if (n->src[1]->ne[0] > SIMT_MOST || n->src[2]->ne[0] > SIMT_MOST)
        return fits_not(r, "heads of %lld and %lld", (long long)n->src[1]->ne[0], (long long)n->src[2]->ne[0]);
    return attention_sizes_fit(n, r);
}

static size_t shared(const struct node *n)
{
    return attention_partial_bytes(n, splits_of(n));
}

static int run(const struct exec *x, const struct node *n)
{
    struct attention_task p = attention_task_of(n, splits_of(n), SIMT_POSITIONS, x->shared);
    if (tensor_elements(n->out) == 0)
        return 0;
    int rc = cuda_launch(x, attention_head, dim3((unsigned)p.splits, (unsigned)p.q.ne[1], (unsigned)p.q.ne[2]), dim3(SIMT_THREADS),
                         sizeof(float) * (size_t)(p.k.ne[0] + p.v.ne[0]), p);
    return rc ? rc : attention_merge_run(x, p);
}

CUDA_KERNEL(attention_simt) = {.op = OP_ATTENTION, .variant = "simt", .needs = CUDA_SM90, .fits = fits, .shared = shared, .run = run};
