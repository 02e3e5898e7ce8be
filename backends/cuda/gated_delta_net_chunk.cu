/* gated_delta_net_chunk.cu: a Gated DeltaNet layer over many tokens, 16 at a time as products of matrices (the chunked form of Yang et
 * al., arXiv 2412.06464, section 3.3): keys and values of 64 or 128.
 *
 * With G(t, i) the product of the decays behind token i up to token t, a chunk's tokens have
 *   delta_t = beta_t (v_t - G(t, 0) S k_t - sum over i < t of G(t, i) (k_i . k_t) delta_i)
 *   y_t = scale (G(t, 0) S q_t + sum over i <= t of G(t, i) (k_i . q_t) delta_i),  S = G(16, 0) S + sum of G(16, i) delta_i k_i^T,
 * so S meets all keys and queries in one product each and moves on by one more; only the sums over i go in order, for a column of
 * the state in a thread. A block has a head, a warp 16 columns of it as the accumulators of tensor-core products, with columns
 * for rows, so that the same registers are the next product's left operand. Operands are split in two halves each, three products
 * for one (mma.cuh); keys and queries, of length one, are made 16 times as large before, so that no half is too small to be exact, and
 * each row of the state and of the deltas is scaled by a power of two of its own.
 *
 * Steps of another length are cut otherwise: the same within the op's tolerance, not to the bit. */
#include "backends/cuda/delta.cuh"
#include "backends/cuda/mma.cuh"

enum { CHUNK = 16, CHUNK_FEWEST = 17, CHUNK_QUARTERS = 4, CHUNK_STRIDE = 20, CHUNK_LENGTH = 16 };

template <int KEYS> struct chunk_memory {
    uint16_t k[2][CHUNK][KEYS + 8], q[2][CHUNK][KEYS + 8]; /* upper and lower halves, times CHUNK_LENGTH */
    uint16_t mix[2][CHUNK][CHUNK + 8];                     /* [t][i]: G(t, i) (k_i . q_t), times CHUNK_LENGTH */
    float gram[CHUNK_QUARTERS][2][CHUNK][CHUNK];           /* parts of k_i . k_t and k_i . q_t: [t][i] */
    float triangle[CHUNK][CHUNK];                          /* [i][t]: G(t, i) (k_i . k_t) for i < t, else 0 */
    float v[CHUNK][KEYS + 4], y[CHUNK][KEYS + 4];
    float work[KEYS / 16][16][CHUNK_STRIDE]; /* of a warp: [column][t] */
    float decay[CHUNK], beta[CHUNK], until[CHUNK], after[CHUNK]; /* G(t, 0), G(16, t) */
    int count;
};

/* A row of q or k, normed, as two halves; zeros where the chunk has no such token. A warp does it. */
template <int KEYS>
__device__ static inline void chunk_load_row(const struct view &from, bool present, int head, int token, float eps, uint16_t *upper, uint16_t *lower)
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
        kind_f16::split(x[j] * scale * CHUNK_LENGTH, x[j + 1] * scale * CHUNK_LENGTH, (uint32_t *)(upper + j / 2 * 64 + 2 * lane),
                        (uint32_t *)(lower + j / 2 * 64 + 2 * lane));
}

template <int KEYS> __device__ static inline void chunk_load(const struct delta_task &p, struct chunk_memory<KEYS> &m, const int32_t *list, int n, int head)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, key_head = delta_key_head_of(p, head);
    for (int job = warp; job < 3 * CHUNK; job += KEYS / 16) {
        int t = job / 3;
        bool present = t < n;
        int token = present ? list[t] : 0;
        if (job % 3 == 0) {
            chunk_load_row<KEYS>(p.q, present, key_head, token, p.eps_q, m.q[0][t], m.q[1][t]);
        } else if (job % 3 == 1) {
            chunk_load_row<KEYS>(p.k, present, key_head, token, p.eps_k, m.k[0][t], m.k[1][t]);
        } else {
            float2 gates = present ? delta_gates<true>(p, head, token) : make_float2(1, 0);
#pragma unroll
            for (int j = 0; j < KEYS; j += WARP)
                m.v[t][j + lane] = present ? *view_f32(p.v, j + lane, head, token, 0) : 0;
            if (lane == 0) {
                m.decay[t] = gates.x;
                m.beta[t] = gates.y;
            }
        }
    }
}

/* c += a b for two tiles of eight columns, all in two halves: upper[0] and rest[0] for b's first two registers, and so on. */
__device__ static __forceinline__ void chunk_product(float (&main)[2][4], float (&rest)[2][4], const uint32_t (&a)[2][4], const uint32_t (&b)[2][4])
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        kind_f16::mma(rest[n], a[1], b[0][2 * n], b[0][2 * n + 1]);
        kind_f16::mma(rest[n], a[0], b[1][2 * n], b[1][2 * n + 1]);
        kind_f16::mma(main[n], a[0], b[0][2 * n], b[0][2 * n + 1]);
    }
}

/* Parts of the products of keys with keys and with queries; jobs go over the warps. */
template <int KEYS> __device__ static inline void chunk_gram(struct chunk_memory<KEYS> &m)
{
    constexpr int STEPS = KEYS / 16 / CHUNK_QUARTERS;
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    for (int job = threadIdx.x / WARP; job < 2 * CHUNK_QUARTERS; job += KEYS / 16) {
        int quarter = job / 2, of_q = job % 2;
        uint16_t(*rows)[CHUNK][KEYS + 8] = of_q ? m.q : m.k;
        float main[2][4] = {}, rest[2][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            int at = (quarter * STEPS + step) * 16;
            uint32_t a[2][4], b[2][4];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                load_matrices(a[half], &rows[half][lane % 16][at + lane / 16 * 8]);
                load_matrices(b[half], &m.k[half][lane / 16 * 8 + lane % 8][at + lane / 8 % 2 * 8]);
            }
            chunk_product(main, rest, a, b);
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                m.gram[quarter][of_q][g + e / 2 * 8][n * 8 + 2 * c + e % 2] = (main[n][e] + rest[n][e]) * (1.0f / (CHUNK_LENGTH * CHUNK_LENGTH));
    }
}

/* Decays into the products: what the columns need. */
template <int KEYS> __device__ static inline void chunk_mix(struct chunk_memory<KEYS> &m)
{
    for (int at = threadIdx.x; at < CHUNK * CHUNK; at += KEYS / 16 * WARP) {
        int t = at / CHUNK, i = at % CHUNK;
        float kk = 0, kq = 0, decay = 1;
        for (int quarter = 0; quarter < CHUNK_QUARTERS; quarter++) {
            kk += m.gram[quarter][0][t][i];
            kq += m.gram[quarter][1][t][i];
        }
        for (int j = i + 1; j <= t; j++)
            decay *= m.decay[j];
        m.triangle[i][t] = i < t ? decay * kk : 0;
        uint32_t upper, lower;
        kind_f16::split(i <= t ? decay * kq * CHUNK_LENGTH : 0, 0, &upper, &lower);
        m.mix[0][t][i] = (uint16_t)upper;
        m.mix[1][t][i] = (uint16_t)lower;
        if (t == CHUNK - 1) /* the row of the last token: decay is G(16, i) */
            m.after[i] = decay;
        if (i == 0)
            m.until[t] = decay * m.decay[0];
    }
}

/* The larger |x| of the four lanes that share a row. */
__device__ static inline float chunk_row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* What each column writes for each token, in m.work; qs: G(t, 0) S q_t. The warp's columns are the rows of s. */
template <int KEYS>
__device__ static __forceinline__ void chunk_deltas(struct chunk_memory<KEYS> &m, const float (&s)[KEYS / 8][4], float (&qs)[2][4])
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
            load_matrices(b[half], &m.k[half][lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
        chunk_product(of_k, rest_k, a, b);
#pragma unroll
        for (int half = 0; half < 2; half++)
            load_matrices(b[half], &m.q[half][lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
        chunk_product(of_q, rest_q, a, b);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int t = n * 8 + 2 * c + e % 2, column = g + e / 2 * 8;
            float factor = m.until[t] * scale[e / 2] * (1.0f / CHUNK_LENGTH);
            m.work[warp][column][t] = fmaf(-factor, of_k[n][e] + rest_k[n][e], m.v[t][warp * 16 + column]);
            qs[n][e] = (of_q[n][e] + rest_q[n][e]) * factor;
        }
    __syncwarp();
    float4 *mine = (float4 *)m.work[warp][lane % 16]; /* both halves of the warp do the same */
    float r[CHUNK];
#pragma unroll
    for (int j = 0; j < CHUNK / 4; j++) {
        float4 x = mine[j];
        r[4 * j] = x.x, r[4 * j + 1] = x.y, r[4 * j + 2] = x.z, r[4 * j + 3] = x.w;
    }
    __syncwarp();
#pragma unroll
    for (int t = 0; t < CHUNK; t++) {
        r[t] *= m.beta[t];
#pragma unroll
        for (int j = t + 1; j < CHUNK; j++)
            r[j] = fmaf(-m.triangle[t][j], r[t], r[j]);
    }
#pragma unroll
    for (int j = 0; j < CHUNK / 4 && lane < 16; j++)
        mine[j] = make_float4(r[4 * j], r[4 * j + 1], r[4 * j + 2], r[4 * j + 3]);
    __syncwarp();
}

/* The deltas as a left operand, times `factor` of their tokens if given; scale: what undoes each row's power of two. */
__device__ static __forceinline__ void chunk_split_deltas(const float (*work)[CHUNK_STRIDE], const float *factor, uint32_t (&a)[2][4], float (&scale)[2])
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

/* The chunk's results into m.y, and the state behind it. */
template <int KEYS>
__device__ static __forceinline__ void chunk_apply(const struct delta_task &p, struct chunk_memory<KEYS> &m, const float (&qs)[2][4], float (&s)[KEYS / 8][4])
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    uint32_t a[2][4], b[2][4];
    float scale[2], keep = m.until[CHUNK - 1];
    chunk_split_deltas(m.work[warp], NULL, a, scale);
#pragma unroll
    for (int half = 0; half < 2; half++)
        load_matrices(b[half], &m.mix[half][lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    float main[2][4] = {}, rest[2][4] = {};
    chunk_product(main, rest, a, b);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            m.y[n * 8 + 2 * c + e % 2][warp * 16 + g + e / 2 * 8] =
                p.scale * fmaf(main[n][e] + rest[n][e], scale[e / 2] * (1.0f / CHUNK_LENGTH), qs[n][e]);
    chunk_split_deltas(m.work[warp], m.after, a, scale);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n += 2) {
        float part[2][4] = {}, little[2][4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++)
            load_matrices_transposed(b[half], &m.k[half][lane % 16][n * 8 + lane / 16 * 8]);
        chunk_product(part, little, a, b);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n + i][e] = fmaf(part[i][e] + little[i][e], scale[e / 2] * (1.0f / CHUNK_LENGTH), keep * s[n + i][e]);
    }
}

template <int KEYS> __device__ static inline void chunk_finish(const struct delta_task &p, const struct chunk_memory<KEYS> &m, const int32_t *list, int n, int head)
{
    int lane = threadIdx.x % WARP;
    for (int t = threadIdx.x / WARP; t < n; t += KEYS / 16) {
        double squares = 0;
#pragma unroll
        for (int j = 0; j < KEYS; j += WARP)
            squares += (double)m.y[t][j + lane] * (double)m.y[t][j + lane];
        float scale = (float)rsqrt(warp_sum(squares) / KEYS + (double)p.eps_out);
#pragma unroll
        for (int j = 0; j < KEYS; j += WARP)
            *view_f32(p.y, j + lane, head, list[t], 0) = delta_gated(p, m.y[t][j + lane], scale, j + lane, head, list[t]);
    }
}

/* The state of a head in or out of the registers: rows of s are columns, its columns keys. */
template <int KEYS> __device__ static inline float *chunk_state(const struct delta_task &p, int head, int64_t slot, int n, int e)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    return view_f32(p.state, warp * 16 + lane / 4 + e / 2 * 8, n * 8 + lane % 4 * 2 + e % 2, head, slot);
}

template <int KEYS> static __global__ void __launch_bounds__(KEYS * 2) chunk_heads(const __grid_constant__ struct delta_task p)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    struct chunk_memory<KEYS> &m = *(struct chunk_memory<KEYS> *)bytes;
    int32_t *list = (int32_t *)(&m + 1);
    int head = blockIdx.x;
    cuda_release();
    cuda_wait();
    int n = recurrent_list(p.sequences, p.n_seq, STRAYS, list, &m.count);
    for (int i = threadIdx.x; i < n * KEYS; i += KEYS * 2)
        *view_f32(p.y, i % KEYS, head, list[i / KEYS], 0) = silu(*view_f32(p.z, i % KEYS, head, list[i / KEYS], 0)) * 0;
    for (int seq = 0; seq < p.n_seq; seq++) {
        __syncthreads();
        n = recurrent_list(p.sequences, p.n_seq, seq, list, &m.count);
        if (n == 0)
            continue;
        int64_t from = recurrent_slot(p.slots, seq, 0, p.state.ne[3]), to = recurrent_slot(p.slots, seq, 1, p.state.ne[3]);
        float s[KEYS / 8][4], qs[2][4];
#pragma unroll
        for (int j = 0; j < KEYS / 8 * 4; j++)
            s[j / 4][j % 4] = from >= 0 ? *chunk_state<KEYS>(p, head, from, j / 4, j % 4) : 0;
        for (int t = 0; t < n; t += CHUNK) {
            int some = n - t < CHUNK ? n - t : CHUNK;
            chunk_load<KEYS>(p, m, list + t, some, head);
            __syncthreads();
            chunk_gram<KEYS>(m);
            __syncthreads();
            chunk_mix<KEYS>(m);
            __syncthreads();
            chunk_deltas<KEYS>(m, s, qs);
            chunk_apply<KEYS>(p, m, qs, s);
            __syncthreads();
            chunk_finish<KEYS>(p, m, list + t, some, head);
        }
        if (to < 0)
            continue;
#pragma unroll
        for (int j = 0; j < KEYS / 8 * 4; j++)
            *chunk_state<KEYS>(p, head, to, j / 4, j % 4) = s[j / 4][j % 4];
    }
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *k = n->src[NET_K], *v = n->src[NET_V];
    if (k->ne[0] != v->ne[0] || (k->ne[0] != 64 && k->ne[0] != 128))
        return fits_not(r, "keys of %lld and values of %lld", (long long)k->ne[0], (long long)v->ne[0]);
    if (v->ne[2] < CHUNK_FEWEST || v->ne[2] > RECURRENT_TOKENS)
        return fits_not(r, "%lld tokens", (long long)v->ne[2]);
    return !n->n_also || fits_not(r, "%.60s is read by others", n->also[0]->name);
}

template <int KEYS> static int launch(const struct exec *x, const struct delta_task &p)
{
    return cuda_launch(x, chunk_heads<KEYS>, dim3((unsigned)p.v.ne[1]), dim3(KEYS * 2),
                       sizeof(struct chunk_memory<KEYS>) + sizeof(int32_t) * (size_t)p.v.ne[2], p);
}

static int run(const struct exec *x, const struct node *n)
{
    struct delta_task p = delta_net_task(n);
    return p.d_k == 64 ? launch<64>(x, p) : launch<128>(x, p);
}

CUDA_KERNEL(gated_delta_net_chunk) = {.op = OP_GATED_DELTA_NET, .variant = "chunk", .needs = CUDA_SM90, .fits = fits, .run = run};
