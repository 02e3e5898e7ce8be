/* gated_delta_net_chunk.cu: a Gated DeltaNet layer over many tokens, 16 at a time as products of matrices (the chunked form of
 * Yang et al., arXiv 2412.06464, section 3.3): keys and values of 64 or 128.
 *
 * With G(t, i) the product of the decays behind token i up to token t, a chunk's tokens have
 *   delta_t = beta_t (v_t - G(t, 0) S k_t - sum over i < t of G(t, i) (k_i . k_t) delta_i)
 *   y_t = scale (G(t, 0) S q_t + sum over i <= t of G(t, i) (k_i . q_t) delta_i),  S = G(16, 0) S + sum of G(16, i) delta_i
 * k_i^T, so S meets all keys and queries in one product each and moves on by one more; only the sums over i go in order, for a
 * column of the state in a thread. What does not need the state is made for all chunks at once by a launch before
 * (chunk_prepare) and brought chunk by chunk through a ring in shared memory, and the norm behind the rule is a launch of its
 * own (chunk_finish); so the walk along the tokens, 32 chunks one after the other in a prompt of 512, is products alone. In one
 * launch, a block waited most of each chunk's time for its rows of keys and queries.
 *
 * A block has up to 64 columns of a head, a warp 16 of them as the accumulators of tensor-core products, with columns
 * for rows, so that the same registers are the next product's left operand. Operands are split in two halves each, three
 * products for one (mma.cuh); keys and queries, of length one, are made 16 times as large before, so that no half is too small
 * to be exact, and each row of the state and of the deltas is scaled by a power of two of its own.
 *
 * Steps of another length are cut otherwise: the same within the op's tolerance, not to the bit. */
#include "backends/cuda/delta.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/wgmma.cuh"

enum { CHUNK = 16, CHUNK_FEWEST = 17, CHUNK_QUARTERS = 4, CHUNK_STRIDE = 20, CHUNK_LENGTH = 16, CHUNK_WARPS = 8 };
enum { WALK_WARPS = 4, WALK_STAGES = 3 };

/* What is made ready of a chunk, as it lies in device memory and then in shared memory: of a key head, */
template <int KEYS> struct chunk_keys {
    uint16_t k[2][CHUNK][KEYS + 8], q[2][CHUNK][KEYS + 8]; /* upper and lower halves, times CHUNK_LENGTH */
};

/* of a value head, */
struct chunk_gates {
    uint16_t mix[2][CHUNK][CHUNK + 8];             /* [t][i]: G(t, i) (k_i . q_t), times CHUNK_LENGTH */
    float triangle[CHUNK][CHUNK];                  /* [i][t]: G(t, i) (k_i . k_t) for i < t, else 0 */
    float beta[CHUNK], until[CHUNK], after[CHUNK]; /* G(t, 0), G(16, t) */
};

/* and the values of 16 columns, a row's end apart so that what a warp reads lies in different banks. */
struct chunk_columns {
    float v[CHUNK][CHUNK_STRIDE];
};

template <int KEYS> struct chunk_values {
    struct chunk_gates gates;
    struct chunk_columns columns[KEYS / 16];
};

/* Where that lies: [key head][chunk], [head][chunk]. Chunks are numbered through, sequence by sequence. */
struct chunk_scratch {
    uint8_t *keys, *values;
    int chunks; /* at most */
};

/* ---- before the walk */

template <int KEYS> struct prepare_memory {
    struct chunk_keys<KEYS> keys;
    float gram[CHUNK_QUARTERS][2][CHUNK][CHUNK]; /* parts of k_i . k_t and k_i . q_t: [t][i] */
    float decay[CHUNK], beta[CHUNK];
    int count;
};

/* A row of q or k, normed, as two halves; zeros where the chunk has no such token. A warp does it. */
template <int KEYS>
__device__ static inline void chunk_load_row(const struct view &from, bool present, int head, int token, float eps,
                                             uint16_t *upper, uint16_t *lower)
{
    int lane = threadIdx.x % WARP;
    float x[KEYS / WARP];
    double squares = 0;
#pragma unroll
    for (int j = 0; j < KEYS / WARP; j++) {
        x[j] = present ? *view_f32(from, j / 2 * 64 + 2 * lane + j % 2, head, token, 0) : 0;
        squares += (double)x[j] * (double)x[j];
    }
    float scale = (float)rsqrt(warp_sum(squares) + (double)eps);
#pragma unroll
    for (int j = 0; j < KEYS / WARP; j += 2)
        kind_f16::split(x[j] * scale * CHUNK_LENGTH, x[j + 1] * scale * CHUNK_LENGTH,
                        (uint32_t *)(upper + j / 2 * 64 + 2 * lane), (uint32_t *)(lower + j / 2 * 64 + 2 * lane));
}

/* c += a b for two tiles of eight columns, all in two halves: upper[0] and rest[0] for b's first two registers, and so on. */
__device__ static __forceinline__ void chunk_product(float (&main)[2][4], float (&rest)[2][4], const uint32_t (&a)[2][4],
                                                     const uint32_t (&b)[2][4])
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        kind_f16::mma(rest[n], a[1], b[0][2 * n], b[0][2 * n + 1]);
        kind_f16::mma(rest[n], a[0], b[1][2 * n], b[1][2 * n + 1]);
        kind_f16::mma(main[n], a[0], b[0][2 * n], b[0][2 * n + 1]);
    }
}

/* Parts of the products of keys with keys and with queries; jobs go over the warps. */
template <int KEYS> __device__ static inline void chunk_gram(struct prepare_memory<KEYS> &m)
{
    constexpr int STEPS = KEYS / 16 / CHUNK_QUARTERS;
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    for (int job = threadIdx.x / WARP; job < 2 * CHUNK_QUARTERS; job += CHUNK_WARPS) {
        int quarter = job / 2, of_q = job % 2;
        uint16_t(*rows)[CHUNK][KEYS + 8] = of_q ? m.keys.q : m.keys.k;
        float main[2][4] = {}, rest[2][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            int at = (quarter * STEPS + step) * 16;
            uint32_t a[2][4], b[2][4];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                load_matrices(a[half], &rows[half][lane % 16][at + lane / 16 * 8]);
                load_matrices(b[half], &m.keys.k[half][lane / 16 * 8 + lane % 8][at + lane / 8 % 2 * 8]);
            }
            chunk_product(main, rest, a, b);
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                m.gram[quarter][of_q][g + e / 2 * 8][n * 8 + 2 * c + e % 2] =
                    (main[n][e] + rest[n][e]) * (1.0f / (CHUNK_LENGTH * CHUNK_LENGTH));
    }
}

/* Decays into the products: what the columns need. */
template <int KEYS> __device__ static inline void chunk_mix(const struct prepare_memory<KEYS> &m, struct chunk_gates *to)
{
    int t = threadIdx.x / CHUNK, i = threadIdx.x % CHUNK;
    float kk = 0, kq = 0, decay = 1;
    for (int quarter = 0; quarter < CHUNK_QUARTERS; quarter++) {
        kk += m.gram[quarter][0][t][i];
        kq += m.gram[quarter][1][t][i];
    }
    for (int j = i + 1; j <= t; j++)
        decay *= m.decay[j];
    to->triangle[i][t] = i < t ? decay * kk : 0;
    uint32_t upper, lower;
    kind_f16::split(i <= t ? decay * kq * CHUNK_LENGTH : 0, 0, &upper, &lower);
    to->mix[0][t][i] = (uint16_t)upper;
    to->mix[1][t][i] = (uint16_t)lower;
    if (t == CHUNK - 1) /* the row of the last token: decay is G(16, i) */
        to->after[i] = decay;
    if (i == 0) {
        to->until[t] = decay * m.decay[0];
        to->beta[t] = m.beta[t];
    }
}

/* The tokens of chunk number `chunk`, in list; how many. The whole block calls it. */
__device__ static inline int chunk_tokens(const struct delta_task &p, int chunk, int32_t *list, int *count, int *first)
{
    for (int seq = 0; seq < p.n_seq; seq++) {
        __syncthreads();
        int n = recurrent_list(p.sequences, p.n_seq, seq, list, count), chunks = (n + CHUNK - 1) / CHUNK;
        if (chunk < chunks) {
            *first = chunk * CHUNK;
            return min(CHUNK, n - chunk * CHUNK);
        }
        chunk -= chunks;
    }
    return 0;
}

/* A head's gates and values. */
template <int KEYS>
__device__ static inline void chunk_prepare_head(const struct delta_task &p, struct prepare_memory<KEYS> &m,
                                                 const int32_t *list, int n, int head, struct chunk_values<KEYS> *to)
{
    if (threadIdx.x < CHUNK) {
        bool present = threadIdx.x < n;
        float2 gates = present ? delta_gates<true>(p, head, list[threadIdx.x]) : make_float2(1, 0);
        m.decay[threadIdx.x] = gates.x;
        m.beta[threadIdx.x] = gates.y;
    }
    for (int i = threadIdx.x; i < CHUNK * KEYS; i += CHUNK_WARPS * WARP) {
        int t = i / KEYS, column = i % KEYS;
        to->columns[column / 16].v[t][column % 16] = t < n ? *view_f32(p.v, column, head, list[t], 0) : 0;
    }
    __syncthreads();
    chunk_mix<KEYS>(m, &to->gates);
    __syncthreads();
}

/* Grid: chunks, key heads. */
template <int KEYS>
static __global__ void __launch_bounds__(CHUNK_WARPS * 32)
    chunk_prepare(const __grid_constant__ struct delta_task p, const __grid_constant__ struct chunk_scratch s)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    struct prepare_memory<KEYS> &m = *(struct prepare_memory<KEYS> *)bytes;
    int32_t *list = (int32_t *)(&m + 1);
    int chunk = blockIdx.x, key_head = blockIdx.y, first = 0;
    cuda_release();
    cuda_wait();
    int n = chunk_tokens(p, chunk, list, &m.count, &first);
    if (n == 0)
        return;
    list += first;
    for (int job = threadIdx.x / WARP; job < 2 * CHUNK; job += CHUNK_WARPS) {
        int t = job / 2;
        bool present = t < n;
        int token = present ? list[t] : 0;
        if (job % 2 == 0)
            chunk_load_row<KEYS>(p.q, present, key_head, token, p.eps_q, m.keys.q[0][t], m.keys.q[1][t]);
        else
            chunk_load_row<KEYS>(p.k, present, key_head, token, p.eps_k, m.keys.k[0][t], m.keys.k[1][t]);
    }
    __syncthreads();
    chunk_gram<KEYS>(m);
    struct chunk_keys<KEYS> *keys = (struct chunk_keys<KEYS> *)s.keys + ((size_t)key_head * s.chunks + chunk);
    for (int i = threadIdx.x; i < (int)(sizeof *keys / sizeof(uint4)); i += CHUNK_WARPS * WARP)
        ((uint4 *)keys)[i] = ((const uint4 *)&m.keys)[i];
    __syncthreads();
    for (int head = 0; head < p.v.ne[1]; head++)
        if (delta_key_head_of(p, head) == key_head)
            chunk_prepare_head<KEYS>(p, m, list, n, head,
                                     (struct chunk_values<KEYS> *)s.values + ((size_t)head * s.chunks + chunk));
}

/* ---- the walk */

template <int KEYS> struct walk_stage {
    struct chunk_keys<KEYS> keys;
    struct chunk_gates gates;
    struct chunk_columns columns[WALK_WARPS];
};

template <int KEYS> struct walk_memory {
    struct walk_stage<KEYS> stage[WALK_STAGES];
    float work[WALK_WARPS][16][CHUNK_STRIDE]; /* of a warp: [column][t] */
    uint64_t full[WALK_STAGES];
    int count;
};

/* The larger |x| of the four lanes that share a row. */
__device__ static inline float chunk_row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* What each column writes for each token, in work; qs: G(t, 0) S q_t. The warp's columns are the rows of s. */
template <int KEYS>
__device__ static __forceinline__ void chunk_deltas(const struct walk_stage<KEYS> &m, float (*work)[CHUNK_STRIDE],
                                                    const float (&s)[KEYS / 8][4], float (&qs)[2][4])
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    float most[2] = {0, 0}, scale[2], inverse[2], of_k[2][4] = {}, rest_k[2][4] = {}, of_q[2][4] = {}, rest_q[2][4] = {};
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            most[e / 2] = fmaxf(most[e / 2], fabsf(s[n][e]));
#pragma unroll
    for (int h = 0; h < 2; h++) {
        scale[h] = split_scale(chunk_row_max(most[h]));
        inverse[h] = 1 / scale[h];
    }
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        uint32_t a[2][4], b[2][4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *x = &s[2 * step + e / 2][e % 2 * 2];
            kind_f16::split(x[0] * inverse[e % 2], x[1] * inverse[e % 2], &a[0][e], &a[1][e]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
            load_matrices(b[half], &m.keys.k[half][lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
        chunk_product(of_k, rest_k, a, b);
#pragma unroll
        for (int half = 0; half < 2; half++)
            load_matrices(b[half], &m.keys.q[half][lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
        chunk_product(of_q, rest_q, a, b);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int t = n * 8 + 2 * c + e % 2, column = g + e / 2 * 8;
            float factor = m.gates.until[t] * scale[e / 2] * (1.0f / CHUNK_LENGTH);
            work[column][t] = fmaf(-factor, of_k[n][e] + rest_k[n][e], m.columns[warp].v[t][column]);
            qs[n][e] = (of_q[n][e] + rest_q[n][e]) * factor;
        }
    __syncwarp();
    float4 *mine = (float4 *)work[lane % 16]; /* both halves of the warp do the same */
    float r[CHUNK];
#pragma unroll
    for (int j = 0; j < CHUNK / 4; j++) {
        float4 x = mine[j];
        r[4 * j] = x.x, r[4 * j + 1] = x.y, r[4 * j + 2] = x.z, r[4 * j + 3] = x.w;
    }
    __syncwarp();
#pragma unroll
    for (int t = 0; t < CHUNK; t++) {
        r[t] *= m.gates.beta[t];
#pragma unroll
        for (int j = t + 1; j < CHUNK; j++)
            r[j] = fmaf(-m.gates.triangle[t][j], r[t], r[j]);
    }
#pragma unroll
    for (int j = 0; j < CHUNK / 4 && lane < 16; j++)
        mine[j] = make_float4(r[4 * j], r[4 * j + 1], r[4 * j + 2], r[4 * j + 3]);
    __syncwarp();
}

/* The deltas as a left operand, times `factor` of their tokens if given; scale: what undoes each row's power of two. */
__device__ static __forceinline__ void chunk_split_deltas(const float (*work)[CHUNK_STRIDE], const float *factor,
                                                          uint32_t (&a)[2][4], float (&scale)[2])
{
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    float x[4][2], inverse[2];
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int t = e / 2 * 8 + 2 * c + i;
            x[e][i] = work[g + e % 2 * 8][t] * (factor ? factor[t] : 1);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = fmaxf(fmaxf(fabsf(x[h][0]), fabsf(x[h][1])), fmaxf(fabsf(x[h + 2][0]), fabsf(x[h + 2][1])));
        scale[h] = split_scale(chunk_row_max(most));
        inverse[h] = 1 / scale[h];
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        kind_f16::split(x[e][0] * inverse[e % 2], x[e][1] * inverse[e % 2], &a[0][e], &a[1][e]);
}

/* The chunk's results, n of them, and the state behind it. */
template <int KEYS>
__device__ static __forceinline__ void chunk_apply(const struct delta_task &p, const struct walk_stage<KEYS> &m,
                                                   const float (*work)[CHUNK_STRIDE], const int32_t *list, int some, int head,
                                                   int first, const float (&qs)[2][4], float (&s)[KEYS / 8][4])
{
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    uint32_t a[2][4], b[2][4];
    float scale[2], keep = m.gates.until[CHUNK - 1];
    chunk_split_deltas(work, NULL, a, scale);
#pragma unroll
    for (int half = 0; half < 2; half++)
        load_matrices(b[half], &m.gates.mix[half][lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    float main[2][4] = {}, rest[2][4] = {};
    chunk_product(main, rest, a, b);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int t = n * 8 + 2 * c + e % 2;
            float y = p.scale * fmaf(main[n][e] + rest[n][e], scale[e / 2] * (1.0f / CHUNK_LENGTH), qs[n][e]);
            if (t < some)
                *view_f32(p.y, first + g + e / 2 * 8, head, list[t], 0) = y;
        }
    chunk_split_deltas(work, m.gates.after, a, scale);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n += 2) {
        float part[2][4] = {}, little[2][4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++)
            load_matrices_transposed(b[half], &m.keys.k[half][lane % 16][n * 8 + lane / 16 * 8]);
        chunk_product(part, little, a, b);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n + i][e] = fmaf(part[i][e] + little[i][e], scale[e / 2] * (1.0f / CHUNK_LENGTH), keep * s[n + i][e]);
    }
}

/* Columns `first` to `first` + 15 of a head's state in or out of the registers: rows of s are columns, its columns keys. */
__device__ static inline float *chunk_state(const struct delta_task &p, int first, int head, int64_t slot, int n, int e)
{
    int lane = threadIdx.x % WARP;
    return view_f32(p.state, first + lane / 4 + e / 2 * 8, n * 8 + lane % 4 * 2 + e % 2, head, slot);
}

template <int KEYS>
__device__ static inline void walk_fetch(const struct delta_task &p, const struct chunk_scratch &s, struct walk_memory<KEYS> &m,
                                         int head, int chunk, int chunks)
{
    if (chunk >= chunks)
        return;
    struct walk_stage<KEYS> &to = m.stage[chunk % WALK_STAGES];
    uint64_t *full = &m.full[chunk % WALK_STAGES];
    const struct chunk_keys<KEYS> *keys =
        (const struct chunk_keys<KEYS> *)s.keys + ((size_t)delta_key_head_of(p, head) * s.chunks + chunk);
    const struct chunk_values<KEYS> *values = (const struct chunk_values<KEYS> *)s.values + ((size_t)head * s.chunks + chunk);
    barrier_expect(full, (int)sizeof to);
    bulk_copy(&to.keys, keys, (int)sizeof to.keys, full);
    bulk_copy(&to.gates, &values->gates, (int)sizeof to.gates, full);
    bulk_copy(to.columns, values->columns + blockIdx.x * WALK_WARPS, (int)sizeof to.columns, full);
}

/* Grid: 64 columns each, heads. */
template <int KEYS>
static __global__ void __launch_bounds__(WALK_WARPS * 32)
    chunk_walk(const __grid_constant__ struct delta_task p, const __grid_constant__ struct chunk_scratch scratch)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    struct walk_memory<KEYS> &m = *(struct walk_memory<KEYS> *)bytes;
    int32_t *list = (int32_t *)(&m + 1);
    int head = blockIdx.y, warp = threadIdx.x / WARP, first = (blockIdx.x * WALK_WARPS + warp) * 16, chunks = 0, chunk = 0;
    cuda_release();
    cuda_wait();
    for (int seq = 0; seq < p.n_seq; seq++) {
        chunks += (recurrent_list(p.sequences, p.n_seq, seq, list, &m.count) + CHUNK - 1) / CHUNK;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < WALK_STAGES; i++)
            barrier_init(&m.full[i], 1);
        barriers_ready();
        for (int i = 0; i + 1 < WALK_STAGES; i++)
            walk_fetch<KEYS>(p, scratch, m, head, i, chunks);
    }
    for (int seq = 0; seq < p.n_seq; seq++) {
        __syncthreads();
        int n = recurrent_list(p.sequences, p.n_seq, seq, list, &m.count);
        if (n == 0)
            continue;
        int64_t from = recurrent_slot(p.slots, seq, 0, p.state.ne[3]), to = recurrent_slot(p.slots, seq, 1, p.state.ne[3]);
        float s[KEYS / 8][4], qs[2][4];
#pragma unroll
        for (int j = 0; j < KEYS / 8 * 4; j++)
            s[j / 4][j % 4] = from >= 0 ? *chunk_state(p, first, head, from, j / 4, j % 4) : 0;
        for (int t = 0; t < n; t += CHUNK, chunk++) {
            const struct walk_stage<KEYS> &stage = m.stage[chunk % WALK_STAGES];
            __syncthreads(); /* nobody reads the chunk before any more, whose place is filled now */
            if (threadIdx.x == 0)
                walk_fetch<KEYS>(p, scratch, m, head, chunk + WALK_STAGES - 1, chunks);
            barrier_wait(&m.full[chunk % WALK_STAGES], chunk / WALK_STAGES % 2);
            chunk_deltas<KEYS>(stage, m.work[warp], s, qs);
            chunk_apply<KEYS>(p, stage, m.work[warp], list + t, n - t < CHUNK ? n - t : CHUNK, head, first, qs, s);
        }
        if (to < 0)
            continue;
#pragma unroll
        for (int j = 0; j < KEYS / 8 * 4; j++)
            *chunk_state(p, first, head, to, j / 4, j % 4) = s[j / 4][j % 4];
    }
}

/* ---- behind it */

/* The norm and the gate of a token's row of a head, a warp each, in place; zeros where the token is of no sequence. */
template <int KEYS>
static __global__ void __launch_bounds__(CHUNK_WARPS * 32) chunk_finish(const __grid_constant__ struct delta_task p)
{
    int64_t row = (int64_t)blockIdx.x * CHUNK_WARPS + threadIdx.x / WARP;
    int lane = threadIdx.x % WARP, token = (int)(row / p.v.ne[1]), head = (int)(row % p.v.ne[1]);
    cuda_release();
    cuda_wait();
    if (token >= p.v.ne[2])
        return;
    int seq = view_index(p.sequences, token, 0);
    bool stray = seq < 0 || seq >= p.n_seq;
    float y[KEYS / WARP];
    double squares = 0;
#pragma unroll
    for (int j = 0; j < KEYS / WARP; j++) {
        y[j] = stray ? 0 : *view_f32(p.y, j * WARP + lane, head, token, 0);
        squares += (double)y[j] * (double)y[j];
    }
    float scale = (float)rsqrt(warp_sum(squares) / KEYS + (double)p.eps_out);
#pragma unroll
    for (int j = 0; j < KEYS / WARP; j++) {
        int column = j * WARP + lane;
        *view_f32(p.y, column, head, token, 0) =
            stray ? silu(*view_f32(p.z, column, head, token, 0)) * 0 : delta_gated(p, y[j], scale, column, head, token);
    }
}

/* ---- on the host */

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *k = n->src[NET_K], *v = n->src[NET_V];
    if (k->ne[0] != v->ne[0] || (k->ne[0] != 64 && k->ne[0] != 128))
        return fits_not(r, "keys of %lld and values of %lld", (long long)k->ne[0], (long long)v->ne[0]);
    if (v->ne[2] < CHUNK_FEWEST || v->ne[2] > RECURRENT_TOKENS)
        return fits_not(r, "%lld tokens", (long long)v->ne[2]);
    return !n->n_also || fits_not(r, "%.60s is read by others", n->also[0]->name);
}

static int64_t chunks_of(const struct node *n)
{
    return n->src[NET_V]->ne[2] / CHUNK + n->src[NET_SLOTS]->ne[1];
}

template <int KEYS> static size_t keys_bytes(const struct node *n)
{
    return (sizeof(struct chunk_keys<KEYS>) * (size_t)(chunks_of(n) * n->src[NET_K]->ne[1]) + 255) / 256 * 256;
}

template <int KEYS> static size_t shared_of(const struct node *n)
{
    return keys_bytes<KEYS>(n) + sizeof(struct chunk_values<KEYS>) * (size_t)(chunks_of(n) * n->src[NET_V]->ne[1]);
}

static size_t shared(const struct node *n)
{
    return n->src[NET_K]->ne[0] == 64 ? shared_of<64>(n) : shared_of<128>(n);
}

template <int KEYS> static int launch(const struct exec *x, const struct node *n, const struct delta_task &p)
{
    static_assert(sizeof(struct chunk_keys<KEYS>) % 16 == 0 && sizeof(struct chunk_values<KEYS>) % 16 == 0 &&
                  sizeof(struct chunk_gates) % 16 == 0);
    struct chunk_scratch s = {(uint8_t *)x->shared, (uint8_t *)x->shared + keys_bytes<KEYS>(n), (int)chunks_of(n)};
    size_t list = sizeof(int32_t) * (size_t)p.v.ne[2];
    int rc = cuda_launch(x, chunk_prepare<KEYS>, dim3((unsigned)s.chunks, (unsigned)p.k.ne[1]), dim3(CHUNK_WARPS * 32),
                         sizeof(struct prepare_memory<KEYS>) + list, p, s);
    if (!rc)
        rc = cuda_launch(x, chunk_walk<KEYS>, dim3(KEYS / 16 / WALK_WARPS, (unsigned)p.v.ne[1]), dim3(WALK_WARPS * 32),
                         sizeof(struct walk_memory<KEYS>) + list, p, s);
    if (!rc)
        rc = cuda_launch(x, chunk_finish<KEYS>, dim3((unsigned)div_up(p.v.ne[1] * p.v.ne[2], CHUNK_WARPS)),
                         dim3(CHUNK_WARPS * 32), 0, p);
    return rc;
}

static int run(const struct exec *x, const struct node *n)
{
    struct delta_task p = delta_net_task(n);
    return p.d_k == 64 ? launch<64>(x, n, p) : launch<128>(x, n, p);
}

CUDA_KERNEL(gated_delta_net_chunk) = {
    .op = OP_GATED_DELTA_NET, .variant = "chunk", .needs = CUDA_SM90, .fits = fits, .shared = shared, .run = run};
