/* attention_merge.cuh: how a token's positions are cut into splits, and the merge of the splits' partial results.
 *
 * How long a split is follows from the token's length, which is read on the device, so that a launch of fixed shape keeps every
 * multiprocessor busy at any depth and a captured graph serves every position. A split leaves, for each head, the maximum of its
 * scores, the sum of exp(score - maximum) and the values weighted so; the merge takes them in their order. So the bits depend on
 * the length alone. The last block to finish could merge and save a launch, but needs a counter that outlives the step. */
#ifndef BACKENDS_CUDA_ATTENTION_MERGE_CUH
#define BACKENDS_CUDA_ATTENTION_MERGE_CUH

#include "backends/cuda/attention.cuh"
#include "backends/cuda/reduce.cuh"

enum { ATTENTION_SPLITS = 256, MERGE_THREADS = ATTENTION_SPLITS };

/* Length of a token's splits but the last. */
__device__ static inline int attention_split_length(const struct attention_task &p, struct attention_span s)
{
    int n = s.high - s.low + 1, each = (n + p.splits - 1) / p.splits;
    return max((each + p.grain - 1) / p.grain * p.grain, p.grain);
}

__device__ static inline int64_t attention_slot(const struct attention_task &p, int token, int head, int split)
{
    return ((int64_t)token * p.q.ne[1] + head) * p.splits + split;
}

/* A block a head and token; a thread VALUES neighbouring columns of every so many-th split. */
template <int VALUES> static __global__ void __launch_bounds__(MERGE_THREADS) attention_merge(const __grid_constant__ struct attention_task p)
{
    __shared__ float weight[ATTENTION_SPLITS], room[2][32], sums[MERGE_THREADS][VALUES];
    int head = blockIdx.x, token = blockIdx.y, columns = (int)p.v.ne[0] / VALUES, tid = threadIdx.x;
    cuda_release();
    cuda_wait();
    struct attention_span span = attention_span_of(p, token);
    int each = attention_split_length(p, span), n = (span.high - span.low + each) / each; /* splits with positions */
    int64_t first = attention_slot(p, token, head, 0);
    float sink = p.sinks.data ? *(const float *)(p.sinks.data + head * p.sinks.nb[0]) : -INFINITY;
    float its_max = tid < n ? p.stats[2 * (first + tid)] : -INFINITY, its_sum = tid < n ? p.stats[2 * (first + tid) + 1] : 0;
    float most = fmaxf(block_max(its_max, room[0]), sink), its_weight = attention_weight(its_max, most);
    weight[tid] = its_weight;
    float total = block_sum(its_weight * its_sum, room[1]) + attention_weight(sink, most);
    int width = columns < MERGE_THREADS ? (columns + WARP - 1) / WARP * WARP : MERGE_THREADS, groups = MERGE_THREADS / width;
    int group = tid / width, column = tid % width;
    for (int c = column; c - column < columns; c += width) {
        float sum[VALUES] = {};
        if (group < groups && c < columns) {
            const float *values = p.values + first * p.v.ne[0] + c * VALUES;
#pragma unroll 8
            for (int s = group; s < n; s += groups) {
                if (VALUES == 4) {
                    float4 x = *(const float4 *)(values + s * p.v.ne[0]);
                    sum[0] = fmaf(weight[s], x.x, sum[0]);
                    sum[1 % VALUES] = fmaf(weight[s], x.y, sum[1 % VALUES]);
                    sum[2 % VALUES] = fmaf(weight[s], x.z, sum[2 % VALUES]);
                    sum[3 % VALUES] = fmaf(weight[s], x.w, sum[3 % VALUES]);
                } else {
                    sum[0] = fmaf(weight[s], values[s * p.v.ne[0]], sum[0]);
                }
            }
        }
        __syncthreads();
        for (int i = 0; i < VALUES; i++)
            sums[tid][i] = sum[i];
        __syncthreads();
        if (group == 0 && c < columns)
            for (int i = 0; i < VALUES; i++) {
                float y = sum[i];
                for (int g = 1; g < groups; g++)
                    y += sums[g * width + column][i];
                *view_f32(p.y, c * VALUES + i, head, token, 0) = total == 0 ? 0 : y / total;
            }
    }
}

/* ---- on the host */

/* blocks: of one split of all tokens; wanted: how many fill the device. */
static inline int attention_splits(const struct node *n, int64_t blocks, int64_t wanted, int grain)
{
    int64_t n_ctx = n->src[5]->ne[0], window = node_params(n, struct attention_params)->window;
    int64_t span = window && window < n_ctx ? window : n_ctx, splits = blocks > 0 ? div_up(wanted, blocks) : 1, most = div_up(span, grain);
    splits = splits < most ? splits : most;
    splits = splits < ATTENTION_SPLITS ? splits : ATTENTION_SPLITS;
    return splits > 0 ? (int)splits : 1;
}

static inline size_t attention_partial_bytes(const struct node *n, int splits)
{
    int64_t rows = n->src[0]->ne[1] * n->src[0]->ne[2] * splits;
    return sizeof(float) * (size_t)(attention_stats_floats(rows) + rows * n->src[2]->ne[0]);
}

static inline int attention_merge_run(const struct exec *x, const struct attention_task &p)
{
    return cuda_launch(x, p.v.ne[0] % 4 ? attention_merge<1> : attention_merge<4>, dim3((unsigned)p.q.ne[1], (unsigned)p.q.ne[2]), dim3(MERGE_THREADS), 0, p);
}

#endif
