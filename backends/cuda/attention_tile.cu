/* attention_tile.cu: attention of many tokens (a prefill) as tiles of tensor-core products: F16 or BF16, K and V alike, heads of 64, 96,
 * 128, 192 and 256.
 *
 * A block has 64 queries: the heads of a KV head's group for as many neighbouring tokens as that makes; a warp 16 of them. Tiles of K and V
 * (64 positions, 32 for wide heads) come into shared memory through the map of cells, K while the last tile's values are summed, V while
 * the scores are. Scores, running maximum and sum, and the result stay in registers, as in FlashAttention 2 (Dao, arXiv
 * 2307.08691). Q and the weights are split in two halves each (mma.cuh): four products a tile instead of two, and f32's accuracy.
 * A tile's result is summed on its own and then added in f32, so long contexts do not gather the tensor cores' rounding.
 *
 * Tokens of a block may be of several sequences: then the block goes through the positions of one after the other. Blocks start
 * with the last tokens, which see most. Bound by the products where contexts are long. */
#include "backends/cuda/attention.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/reduce.cuh"

enum { TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * 32, TILE_ROWS = TILE_WARPS * 16 };
/* Fewer tokens than TILE_FEWEST, or in a long context fewer blocks than TILE_BLOCKS, leave most of the device idle: attention_split. */
enum { TILE_FEWEST = 17, TILE_BLOCKS = 33, TILE_LONG = 2048 };

/* D values a row, POSITIONS a tile. Rows lie 16 bytes apart beyond their length: eight of them meet eight different banks. */
template <int D> struct tile_sizes {
    static constexpr int POSITIONS = D > 128 ? 32 : 64, STRIDE = D + 8;
};

template <int D> struct tile_memory {
    uint16_t q[2][TILE_ROWS][tile_sizes<D>::STRIDE]; /* upper and lower halves */
    uint16_t k[tile_sizes<D>::POSITIONS][tile_sizes<D>::STRIDE], v[tile_sizes<D>::POSITIONS][tile_sizes<D>::STRIDE];
    float scale[TILE_ROWS]; /* what undoes a query's power of two */
    int low[TILE_ROWS], high[TILE_ROWS], sequence[TILE_ROWS]; /* of a row; no positions where there is no such query */
    int cells[2][tile_sizes<D>::POSITIONS];
};

/* Which queries a block has. */
struct tile_block {
    int kv_head, first, tokens; /* tokens: at most */
};

template <int D, class KIND> __device__ static inline void tile_load_queries(const struct attention_task &p, struct tile_memory<D> &m, struct tile_block b)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int row = warp; row < (int)TILE_ROWS; row += TILE_WARPS) {
        int token = b.first + row / p.group, head = b.kv_head * p.group + row % p.group;
        bool present = row / p.group < b.tokens && token < p.q.ne[2];
        struct attention_span span = {0, -1, -1};
        float x[D / WARP], most = 0;
        if (present)
            span = attention_span_of(p, token);
        float factor = attention_scale(p, span.high);
#pragma unroll
        for (int i = 0; i < D / WARP; i++) {
            int at = i / 2 * 64 + 2 * lane + i % 2; /* pairs of neighbours; of an odd number of warps' widths, the last one singly */
            if (D % 64 != 0 && i == D / WARP - 1)
                at = i * WARP + lane;
            x[i] = present ? *view_f32(p.q, at, head, token, 0) * factor : 0;
            most = fmaxf(most, fabsf(x[i]));
        }
        float scale = split_scale(warp_max(most)), inverse = 1 / scale;
#pragma unroll
        for (int i = 0; i < D / WARP; i += 2) {
            uint32_t upper, lower;
            bool single = D % 64 != 0 && i == D / WARP - 1;
            KIND::split(x[i] * inverse, single ? 0 : x[i + (single ? 0 : 1)] * inverse, &upper, &lower);
            if (single) {
                m.q[0][row][i * WARP + lane] = (uint16_t)upper;
                m.q[1][row][i * WARP + lane] = (uint16_t)lower;
            } else {
                *(uint32_t *)&m.q[0][row][i / 2 * 64 + 2 * lane] = upper;
                *(uint32_t *)&m.q[1][row][i / 2 * 64 + 2 * lane] = lower;
            }
        }
        if (lane == 0) {
            m.scale[row] = scale;
            m.low[row] = span.low;
            m.high[row] = span.high;
            m.sequence[row] = span.sequence;
        }
    }
}

/* Whether a row before `row` has its sequence: then that one's turn was this one's. */
template <int D> __device__ static inline bool tile_seen(const struct tile_memory<D> &m, int row)
{
    for (int i = 0; i < row; i++)
        if (m.sequence[i] == m.sequence[row])
            return true;
    return false;
}

/* Starts the copy of rows `cells` of one of the caches. */
template <int D> __device__ static inline void tile_fetch(const struct view &cache, int kv_head, const int *cells, uint16_t (*to)[tile_sizes<D>::STRIDE])
{
    constexpr int PIECES = D / 8;
    const char *head = view_row(cache, 0, kv_head, 0);
    for (int i = threadIdx.x; i < tile_sizes<D>::POSITIONS * PIECES; i += TILE_THREADS) {
        int row = i / PIECES, piece = i % PIECES, cell = cells[row];
        copy_16_async(&to[row][piece * 8], cell < 0 ? NULL : head + cell * cache.nb[1] + piece * 16, head);
    }
    copies_commit();
}

template <int D> __device__ static inline void tile_find_cells(const struct attention_task &p, int first, int high, int sequence, int *cells)
{
    for (int i = threadIdx.x; i < tile_sizes<D>::POSITIONS; i += TILE_THREADS)
        cells[i] = first + i <= high ? attention_cell(p, first + i, sequence) : -1;
}

/* One warp's 16 queries: of a lane, rows g and g + 8. */
template <int D> struct tile_state {
    float max[2], sum[2], values[D / 8][4];
};

/* Scores of the tile: s[n] is the C fragment of positions 8 n to 8 n + 7. */
template <int D, class KIND> __device__ static __forceinline__ void tile_scores(const struct tile_memory<D> &m, float (&s)[tile_sizes<D>::POSITIONS / 8][4])
{
    constexpr int N = tile_sizes<D>::POSITIONS / 8;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float rest[N][4] = {};
#pragma unroll
    for (int n = 0; n < N; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t upper[4], lower[4], b[4];
        int row = warp * 16 + lane % 16, column = k + lane / 16 * 8;
        load_matrices(upper, &m.q[0][row][column]);
        load_matrices(lower, &m.q[1][row][column]);
#pragma unroll
        for (int n = 0; n < N; n += 2) { /* two times eight positions, two times eight values of each */
            load_matrices(b, &m.k[n * 8 + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
            KIND::mma(rest[n], lower, b[0], b[1]);
            KIND::mma(s[n], upper, b[0], b[1]);
            KIND::mma(rest[n + 1], lower, b[2], b[3]);
            KIND::mma(s[n + 1], upper, b[2], b[3]);
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] += rest[n][e];
}

/* Scores to weights, in place; maximum and sum move on. first: the tile's first position. */
template <int D>
__device__ static __forceinline__ void tile_weigh(const struct attention_task &p, const struct tile_memory<D> &m, const int *cells, int first, int sequence,
                                                  struct tile_state<D> &o, float (&s)[tile_sizes<D>::POSITIONS / 8][4], float (&rescale)[2])
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = warp * 16 + g + 8 * h, low = m.low[row], high = m.sequence[row] == sequence ? m.high[row] : -1;
        float scale = m.scale[row], most = o.max[h], sum = 0;
#pragma unroll
        for (int n = 0; n < tile_sizes<D>::POSITIONS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int i = n * 8 + 2 * c + e, position = first + i;
                bool sees = position >= low && position <= high && cells[i] >= 0;
                float &score = s[n][2 * h + e];
                score = sees ? attention_cap(p, score * scale) : -INFINITY;
                most = fmaxf(most, score);
            }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        rescale[h] = attention_weight(o.max[h], most);
        o.max[h] = most;
#pragma unroll
        for (int n = 0; n < tile_sizes<D>::POSITIONS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &score = s[n][2 * h + e];
                score = attention_weight(score, most);
                sum += score;
            }
        o.sum[h] = fmaf(o.sum[h], rescale[h], sum);
    }
}

template <int D, class KIND>
__device__ static __forceinline__ void tile_values(const struct tile_memory<D> &m, const float (&s)[tile_sizes<D>::POSITIONS / 8][4],
                                                   const float (&rescale)[2], struct tile_state<D> &o)
{
    constexpr int STEPS = tile_sizes<D>::POSITIONS / 16;
    int lane = threadIdx.x % WARP;
    uint32_t upper[STEPS][4], lower[STEPS][4];
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) /* rows g and g + 8 of the first eight positions, then of the second */
            KIND::split(s[2 * k + e / 2][e % 2 * 2], s[2 * k + e / 2][e % 2 * 2 + 1], &upper[k][e], &lower[k][e]);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        float part[2][4] = {};
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t b[4];
            load_matrices_transposed(b, &m.v[k * 16 + lane % 16][n * 8 + lane / 16 * 8]);
            KIND::mma(part[0], lower[k], b[0], b[1]);
            KIND::mma(part[0], upper[k], b[0], b[1]);
            KIND::mma(part[1], lower[k], b[2], b[3]);
            KIND::mma(part[1], upper[k], b[2], b[3]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            o.values[n][e] = fmaf(o.values[n][e], rescale[e / 2], part[0][e]);
            o.values[n + 1][e] = fmaf(o.values[n + 1][e], rescale[e / 2], part[1][e]);
        }
    }
}

/* The positions low to high of one sequence, for the rows that are of it. */
template <int D, class KIND>
__device__ static __forceinline__ void tile_sequence(const struct attention_task &p, struct tile_memory<D> &m, int kv_head, int low, int high, int sequence,
                                                     struct tile_state<D> &o)
{
    constexpr int POSITIONS = tile_sizes<D>::POSITIONS;
    float s[POSITIONS / 8][4], rescale[2];
    __syncthreads();
    tile_find_cells<D>(p, low, high, sequence, m.cells[0]);
    __syncthreads();
    tile_fetch<D>(p.k, kv_head, m.cells[0], m.k);
    for (int first = low, turn = 0; first <= high; first += POSITIONS, turn ^= 1) {
        tile_fetch<D>(p.v, kv_head, m.cells[turn], m.v);
        tile_find_cells<D>(p, first + POSITIONS, high, sequence, m.cells[turn ^ 1]);
        copies_wait<1>(); /* K is here */
        __syncthreads();
        tile_scores<D, KIND>(m, s);
        tile_weigh<D>(p, m, m.cells[turn], first, sequence, o, s, rescale);
        copies_wait<0>();
        __syncthreads(); /* V is here, and nobody reads K any more */
        if (first + POSITIONS <= high)
            tile_fetch<D>(p.k, kv_head, m.cells[turn ^ 1], m.k);
        tile_values<D, KIND>(m, s, rescale, o);
        __syncthreads();
    }
}

template <int D> __device__ static __forceinline__ void tile_write(const struct attention_task &p, struct tile_block b, struct tile_state<D> &o)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = warp * 16 + g + 8 * h, token = b.first + row / p.group, head = b.kv_head * p.group + row % p.group;
        float sum = o.sum[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        float factor = sum == 0 ? 0 : 1 / sum;
        if (row / p.group >= b.tokens || token >= p.q.ne[2])
            continue;
        char *to = view_row(p.y, head, token, 0);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(float *)(to + (n * 8 + 2 * c) * p.y.nb[0]) = o.values[n][2 * h] * factor;
            *(float *)(to + (n * 8 + 2 * c + 1) * p.y.nb[0]) = o.values[n][2 * h + 1] * factor;
        }
    }
}

/* Grid: tiles of tokens, KV heads. */
template <int D, class KIND>
static __global__ void __launch_bounds__(TILE_THREADS, D > 192 ? 1 : 2) attention_tiles(const __grid_constant__ struct attention_task p)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    struct tile_memory<D> &m = *(struct tile_memory<D> *)bytes;
    int tokens = TILE_ROWS / p.group, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    struct tile_block b = {(int)blockIdx.y, (int)(gridDim.x - 1 - blockIdx.x) * tokens, tokens};
    cuda_release();
    cuda_wait();
    tile_load_queries<D, KIND>(p, m, b);
    struct tile_state<D> o = {};
    __syncthreads();
    for (int h = 0; h < 2; h++) {
        int row = warp * 16 + lane / 4 + 8 * h, head = b.kv_head * p.group + row % p.group;
        o.max[h] = p.sinks.data && m.high[row] >= 0 ? *(const float *)(p.sinks.data + head * p.sinks.nb[0]) : -INFINITY;
        o.sum[h] = o.max[h] != -INFINITY && lane % 4 == 0 ? 1 : 0;
    }
    for (int row = 0; row < TILE_ROWS; row++) { /* the same for all threads */
        int sequence = m.sequence[row], low = INT32_MAX, high = -1;
        if (sequence < 0 || tile_seen<D>(m, row))
            continue;
        for (int i = row; i < TILE_ROWS; i++)
            if (m.sequence[i] == sequence) {
                low = min(low, m.low[i]);
                high = max(high, m.high[i]);
            }
        tile_sequence<D, KIND>(p, m, b.kv_head, low, high, sequence, o);
    }
    tile_write<D>(p, b, o);
}

/* ---- on the host */

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *q = n->src[0], *k = n->src[1], *v = n->src[2];
    int64_t d = k->ne[0];
    if (q->ne[2] < TILE_FEWEST)
        return fits_not(r, "%lld tokens", (long long)q->ne[2]);
    if (k->format != v->format || d != v->ne[0] || (k->format != FORMAT_F16 && k->format != FORMAT_BF16))
        return fits_not(r, "K in %s, V in %s", format_get(k->format)->name, format_get(v->format)->name);
    if (d != 64 && d != 96 && d != 128 && d != 192 && d != 256)
        return fits_not(r, "heads of %lld", (long long)d);
    if (q->ne[1] / k->ne[2] > TILE_ROWS)
        return fits_not(r, "%lld heads a KV head", (long long)(q->ne[1] / k->ne[2]));
    int64_t blocks = div_up(q->ne[2], TILE_ROWS / (q->ne[1] / k->ne[2])) * k->ne[2];
    if (blocks < TILE_BLOCKS && n->src[5]->ne[0] > TILE_LONG)
        return fits_not(r, "only %lld blocks for a context of %lld", (long long)blocks, (long long)n->src[5]->ne[0]);
    if (!view_aligned(k, 16) || !view_aligned(v, 16) || k->ne[1] == 0)
        return fits_not(r, "the rows of the cache are not aligned");
    return attention_sizes_fit(n, r);
}

template <int D> static int launch(const struct exec *x, const struct attention_task &p)
{
    dim3 grid((unsigned)div_up(p.q.ne[2], TILE_ROWS / p.group), (unsigned)p.k.ne[2]);
    size_t bytes = sizeof(struct tile_memory<D>);
    return p.k.format == FORMAT_F16 ? cuda_launch(x, attention_tiles<D, kind_f16>, grid, dim3(TILE_THREADS), bytes, p)
                                    : cuda_launch(x, attention_tiles<D, kind_bf16>, grid, dim3(TILE_THREADS), bytes, p);
}

static int run(const struct exec *x, const struct node *n)
{
    struct attention_task p = attention_task_of(n, 1, 1, NULL);
    if (tensor_elements(n->out) == 0)
        return 0;
    switch (p.k.ne[0]) {
    case 64:
        return launch<64>(x, p);
    case 96:
        return launch<96>(x, p);
    case 128:
        return launch<128>(x, p);
    case 192:
        return launch<192>(x, p);
    default:
        return launch<256>(x, p);
    }
}

CUDA_KERNEL(attention_tile) = {.op = OP_ATTENTION, .variant = "tile", .needs = CUDA_SM90, .fits = fits, .run = run};
