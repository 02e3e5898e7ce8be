/* attention_split.cu: attention of one or a few tokens over a long cache (flash-decoding): F16, BF16 or Q8_0, K and V alike, heads of
 * 64, 80, 96, 128, 192 and 256.
 *
 * A block has a token, up to eight heads of a group and a split of the positions; its four warps take tiles of 16 positions in
 * turn, so K and V are read once for all the heads, straight from memory into the fragments of tensor-core products: positions by
 * heads for the scores (A: K, B: Q), then columns by heads for the result (A: V, its pairs of positions woven together by one byte
 * permutation a register; B: the weights, transposed across the warp). Which value of a row meets which k index is free as
 * long as both operands agree, so each lane loads 16 neighbouring bytes. Q and the weights are split in two halves each (mma.cuh), so
 * the result is that of f32. In Q8_0 the codes are the operand, and a block's scale multiplies the score's part or the weight.
 *
 * Each warp keeps a maximum, a sum and a result of its own; the four are added in order, then the splits (attention.cuh). Bound
 * by the bytes of K and V. */
#include "backends/cuda/attention_merge.cuh"
#include "backends/cuda/mma.cuh"

enum { SPLIT_WARPS = 4, SPLIT_THREADS = SPLIT_WARPS * 32, SPLIT_HEADS = 8, SPLIT_TILE = 16, SPLIT_GRAIN = SPLIT_WARPS * SPLIT_TILE };

/* ---- what a lane loads of a row. D values a row; K comes in chunks of 4 lanes x KEY_VALUES, V of 8 lanes x VALUE_VALUES. */

template <class KIND> struct halves {
    using kind = KIND;
    static constexpr bool scaled = false;
    template <int D> static constexpr int key_values = D % 32 == 0 ? 8 : 4;
    template <int D> static constexpr int value_values = D % 64 == 0 ? 8 : D % 32 == 0 ? 4 : 2;

    /* N values from number `at` on as N / 2 words; zeros where there is no row. */
    template <int N> __device__ static inline void load(const char *row, int at, uint32_t (&w)[N / 2])
    {
        const char *from = row + at * 2;
        if constexpr (N == 8) {
            uint4 x = row ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
            w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
        } else if constexpr (N == 4) {
            uint2 x = row ? *(const uint2 *)from : make_uint2(0, 0);
            w[0] = x.x, w[1] = x.y;
        } else {
            w[0] = row ? *(const uint32_t *)from : 0;
        }
    }
    __device__ static inline float scale(const char *, int)
    {
        return 1;
    }
};

/* Blocks of 32: a chunk lies in one, for K and V. Codes become f16 by way of 1024 + code + 128, whose low byte is the code. */
struct blocks_q8_0 {
    using kind = kind_f16;
    static constexpr bool scaled = true;
    template <int D> static constexpr int key_values = 8;
    template <int D> static constexpr int value_values = 4;

    template <int N> __device__ static inline void load(const char *row, int at, uint32_t (&w)[N / 2])
    {
        const __half2 offset = __floats2half2_rn(1152, 1152);
        const uint16_t *codes = (const uint16_t *)(row + at / 32 * 34 + 2 + at % 32);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            uint32_t pair = __byte_perm(row ? codes[i] ^ 0x8080u : 0x8080u, 0x64646464u, 0x4140);
            __half2 x = __hsub2(*(__half2 *)&pair, offset);
            w[i] = *(uint32_t *)&x;
        }
    }
    __device__ static inline float scale(const char *row, int at)
    {
        return row ? f32_of_f16(*(const uint16_t *)(row + at / 32 * 34)) : 0;
    }
};

/* ---- */

/* Eight heads of a token: B fragments of Q's two halves, and what undoes their powers of two. */
template <int D, class C> struct split_queries {
    static constexpr int N = C::template key_values<D>, CHUNKS = D / (4 * N);
    uint32_t upper[CHUNKS][N / 2], lower[CHUNKS][N / 2];
    float scale[2]; /* of heads 2c and 2c + 1 */

    __device__ __forceinline__ void load(const struct attention_task &p, int token, int head, bool present, float factor)
    {
        int lane = threadIdx.x % WARP, c = lane % 4;
        float x[CHUNKS][N], most = 0;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                x[j][i] = present ? *view_f32(p.q, j * 4 * N + c * N + i, head, token, 0) * factor : 0;
                most = fmaxf(most, fabsf(x[j][i]));
            }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float mine = split_scale(most), inverse = 1 / mine;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                C::kind::split(x[j][2 * i] * inverse, x[j][2 * i + 1] * inverse, &upper[j][i], &lower[j][i]);
        scale[0] = __shfl_sync(0xffffffffu, mine, 8 * c);
        scale[1] = __shfl_sync(0xffffffffu, mine, 8 * c + 4);
    }
};

/* Scores of 16 positions, whose rows of K for this lane are `row` (position g) and `row_8` (g + 8): s as a C fragment, positions by heads. */
template <int D, class C>
__device__ static __forceinline__ void split_scores(const struct split_queries<D, C> &q, const char *row, const char *row_8, float (&s)[4])
{
    constexpr int N = split_queries<D, C>::N, CHUNKS = split_queries<D, C>::CHUNKS;
    int c = threadIdx.x % 4;
    uint32_t k[CHUNKS][N / 2], k_8[CHUNKS][N / 2];
    float upper[4] = {0, 0, 0, 0}, lower[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        C::template load<N>(row, (j * 4 + c) * N, k[j]);
        C::template load<N>(row_8, (j * 4 + c) * N, k_8[j]);
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            uint32_t a[4] = {k[j][2 * i], k_8[j][2 * i], k[j][2 * i + 1], k_8[j][2 * i + 1]};
            C::kind::mma(lower, a, q.lower[j][2 * i], q.lower[j][2 * i + 1]);
            C::kind::mma(upper, a, q.upper[j][2 * i], q.upper[j][2 * i + 1]);
        }
        if constexpr (C::scaled) { /* a chunk is a block */
            float d = C::scale(row, j * 32), d_8 = C::scale(row_8, j * 32);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[i] = fmaf(i < 2 ? d : d_8, upper[i] + lower[i], j ? s[i] : 0);
                upper[i] = lower[i] = 0;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] = (C::scaled ? s[i] : upper[i] + lower[i]) * q.scale[i % 2];
}

/* One warp's part of the result: heads 2c and 2c + 1 of the fragments' columns. */
template <int D, class C> struct split_result {
    static constexpr int N = C::template value_values<D>, CHUNKS = D / (8 * N);
    float max[2], sum[2], values[CHUNKS][N / 2][4];
};

/* rows: of V, for this lane's four positions 2c, 2c + 1, 2c + 8, 2c + 9; w: their weights for head g. */
template <int D, class C>
__device__ static __forceinline__ void split_values(struct split_result<D, C> &o, const char *const (&rows)[4], const float (&w)[4], const float (&rescale)[2])
{
    constexpr int N = split_result<D, C>::N, CHUNKS = split_result<D, C>::CHUNKS;
    int g = threadIdx.x % WARP / 4;
    uint32_t v[CHUNKS][4][N / 2], upper[2], lower[2];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            C::template load<N>(rows[r], (j * 8 + g) * N, v[j][r]);
    C::kind::split(w[0], w[1], &upper[0], &lower[0]);
    C::kind::split(w[2], w[3], &upper[1], &lower[1]);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        float back = 1; /* weights times small scales leave the range where two halves of f16 are exact: up by 64 where that is safe */
        if constexpr (C::scaled) {
            float x[4], most = 0;
#pragma unroll
            for (int r = 0; r < 4; r++) {
                x[r] = C::scale(rows[r], j * 32);
                most = fmaxf(most, fabsf(x[r]));
            }
            float up = __any_sync(0xffffffffu, most > 512) ? 1 : 64;
            back = 1 / up;
            C::kind::split(w[0] * x[0] * up, w[1] * x[1] * up, &upper[0], &lower[0]);
            C::kind::split(w[2] * x[2] * up, w[3] * x[3] * up, &upper[1], &lower[1]);
        }
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            uint32_t a[4] = {__byte_perm(v[j][0][i], v[j][1][i], 0x5410), __byte_perm(v[j][0][i], v[j][1][i], 0x7632),
                             __byte_perm(v[j][2][i], v[j][3][i], 0x5410), __byte_perm(v[j][2][i], v[j][3][i], 0x7632)};
            float part[4] = {0, 0, 0, 0};
            C::kind::mma(part, a, lower[0], lower[1]);
            C::kind::mma(part, a, upper[0], upper[1]);
#pragma unroll
            for (int e = 0; e < 4; e++)
                o.values[j][i][e] = fmaf(o.values[j][i][e], rescale[e % 2], C::scaled ? part[e] * back : part[e]);
        }
    }
}

/* A tile: the cell of position number `lane` of 16 (lanes above hold none), or -1. */
template <int D, class C>
__device__ static __forceinline__ void split_tile(const struct attention_task &p, const struct split_queries<D, C> &q, struct split_result<D, C> &o, int cell, int kv_head)
{
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    const char *k = view_row(p.k, 0, kv_head, 0), *v = view_row(p.v, 0, kv_head, 0), *rows[4];
    int at = __shfl_sync(0xffffffffu, cell, g), at_8 = __shfl_sync(0xffffffffu, cell, g + 8);
    float s[4], rescale[2], w[4];
    split_scores<D, C>(q, at < 0 ? NULL : k + at * p.k.nb[1], at_8 < 0 ? NULL : k + at_8 * p.k.nb[1], s);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int of = __shfl_sync(0xffffffffu, cell, 2 * c + r % 2 + r / 2 * 8);
        rows[r] = of < 0 ? NULL : v + of * p.v.nb[1];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] = (i < 2 ? at : at_8) < 0 ? -INFINITY : attention_cap(p, s[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = fmaxf(s[h], s[h + 2]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 4));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 8));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 16));
        most = fmaxf(most, o.max[h]);
        rescale[h] = attention_weight(o.max[h], most);
        o.max[h] = most;
        w[h] = attention_weight(s[h], most);
        w[h + 2] = attention_weight(s[h + 2], most);
        o.sum[h] = fmaf(o.sum[h], rescale[h], w[h] + w[h + 2]);
    }
    transpose_8x8(&w[0], &w[1]);
    transpose_8x8(&w[2], &w[3]);
    split_values<D, C>(o, rows, w, rescale);
}

/* The warps' results added in order, and left as the split's. */
template <int D, class C>
__device__ static __forceinline__ void split_leave(const struct attention_task &p, const struct split_result<D, C> &o, float (*all)[SPLIT_HEADS][D],
                                                float (*stats)[SPLIT_HEADS][2], int token, int head, int n_heads)
{
    constexpr int N = split_result<D, C>::N, CHUNKS = split_result<D, C>::CHUNKS;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = o.sum[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if (g == 0) {
            stats[warp][2 * c + h][0] = o.max[h];
            stats[warp][2 * c + h][1] = sum;
        }
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                all[warp][2 * c + e % 2][(j * 8 + g) * N + 2 * i + e / 2] = o.values[j][i][e];
    __syncthreads();
    for (int i = threadIdx.x; i < n_heads * D; i += SPLIT_THREADS) {
        int h = i / D, column = i % D;
        float most = -INFINITY, sum = 0, value = 0;
        for (int w = 0; w < SPLIT_WARPS; w++)
            most = fmaxf(most, stats[w][h][0]);
        for (int w = 0; w < SPLIT_WARPS; w++) {
            float weight = attention_weight(stats[w][h][0], most);
            sum = fmaf(weight, stats[w][h][1], sum);
            value = fmaf(weight, all[w][h][column], value);
        }
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
static __global__ void __launch_bounds__(SPLIT_THREADS, D > 128 ? 2 : D > 96 ? 3 : 4) attention_splits_kernel(const __grid_constant__ struct attention_task p)
{
    __shared__ float all[SPLIT_WARPS][SPLIT_HEADS][D], stats[SPLIT_WARPS][SPLIT_HEADS][2];
    int parts = (p.group + SPLIT_HEADS - 1) / SPLIT_HEADS, kv_head = blockIdx.y / parts, part = blockIdx.y % parts, token = blockIdx.z;
    int head = kv_head * p.group + part * SPLIT_HEADS, n_heads = min(SPLIT_HEADS, p.group - part * SPLIT_HEADS);
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    cuda_release();
    cuda_wait();
    struct attention_span span = attention_span_of(p, token);
    int each = attention_split_length(p, span), low = span.low + blockIdx.x * each, high = min(span.high, low + each - 1);
    if (low > span.high)
        return;
    struct split_queries<D, C> q;
    struct split_result<D, C> o = {};
    o.max[0] = o.max[1] = -INFINITY;
    int at = low + warp * SPLIT_TILE + lane, cell = lane < SPLIT_TILE && at <= high ? attention_cell(p, at, span.sequence) : -1;
    q.load(p, token, head + lane / 4, lane / 4 < n_heads, attention_scale(p, span.high));
    for (int first = low + warp * SPLIT_TILE; first <= high; first += SPLIT_GRAIN) {
        int now = cell;
        at += SPLIT_GRAIN;
        cell = lane < SPLIT_TILE && at <= high ? attention_cell(p, at, span.sequence) : -1; /* the next tile's, ahead of its need */
        split_tile<D, C>(p, q, o, now, kv_head);
    }
    split_leave<D, C>(p, o, all, stats, token, head, n_heads);
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

CUDA_KERNEL(attention_split) = {.op = OP_ATTENTION, .variant = "split", .needs = CUDA_SM90, .fits = fits, .shared = shared, .run = run};
