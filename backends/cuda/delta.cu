/* delta.cu: the body of gated_delta_rule and gated_delta_net: the delta rule of a head, and in the second the gates, the norms of q and
 * k before it and the gated norm behind it.
 *
 * A block owns 32 columns of a head's state [d_k][d_v]: a lane a column, a warp an eighth of the keys, all of it in registers
 * from the first token of a sequence to its last, so that the state is read once and written once. With kv = S k and qv = S q
 * of the state as it was, a token is
 *   delta = beta (v - decay kv);  y = scale (decay qv + (q . k) delta);  S = decay S + k delta^T:
 * both sums in one pass, added over the eight warps through shared memory, one barrier a token. Sixteen tokens at a time are
 * made ready: normed keys and queries, gates, q . k. The norm behind the rule is over all columns of a head, which lie in several
 * blocks: they are a cluster and read each other's sums of squares. Sums run in the same order however a step is cut.
 *
 * Decode is bound by the state: 64 KB a head of 128 read and written. Prefill is bound by the latency of a token's round; the
 * chunked form of the paper, matrix products, is in gated_delta_net_chunk.cu. */
#include "backends/cuda/delta.h"

#include "backends/cuda/delta.cuh"

#include <cooperative_groups.h>

enum { DELTA_WARPS = 8, DELTA_THREADS = 256, DELTA_COLUMNS = 32, DELTA_BLOCK = 16, DELTA_MOST_KEYS = 256 };
/* In a cluster of eight blocks. */
enum { DELTA_MOST_VALUES = 8 * 32 };

/* What a block of tokens brings. Rows of q and k have `keys` places, zeros behind d_k. */
struct delta_room {
    float *q, *k;                               /* [DELTA_BLOCK][keys] */
    float (*v)[DELTA_COLUMNS], (*y)[DELTA_COLUMNS]; /* [DELTA_BLOCK] */
    float2 (*sums)[DELTA_WARPS][DELTA_COLUMNS]; /* [2]: of kv and qv */
    float *decay, *beta, *qk;                   /* [DELTA_BLOCK] */
    double (*squares)[DELTA_BLOCK];             /* [2] */
    int32_t *list;
};

/* A key or a query to `to`, of length one in the net; a warp does it. */
template <int KEYS, bool NET>
__device__ static inline void delta_load_row(const struct view &t, int64_t head, int64_t token, float eps, float *to)
{
    const char *from = view_row(t, head, token, 0);
    float x[KEYS / WARP + 1];
    double squares = 0;
#pragma unroll
    for (int j = 0; j < (KEYS + WARP - 1) / WARP; j++) {
        int i = threadIdx.x % WARP + j * WARP;
        x[j] = i < t.ne[0] ? *(const float *)(from + i * t.nb[0]) : 0;
        squares += (double)x[j] * (double)x[j];
    }
    float scale = NET ? (float)rsqrt(warp_sum(squares) + (double)eps) : 1;
#pragma unroll
    for (int j = 0; j < (KEYS + WARP - 1) / WARP; j++) {
        int i = threadIdx.x % WARP + j * WARP;
        if (i < KEYS)
            to[i] = NET ? x[j] * scale : x[j];
    }
}

/* Tokens list[0] to list[n - 1] made ready. Warps take rows of q, rows of k, and values with gates in turn: in a decode step three
 * of them wait for memory at once. */
template <int KEYS, bool NET>
__device__ static inline void delta_prepare(const struct delta_task &p, const struct delta_room &room, const int32_t *list, int n, int head, int key_head,
                                     int column)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int job = warp; job < 3 * n; job += DELTA_WARPS) {
        int t = job / 3, token = list[t];
        if (job % 3 == 0) {
            delta_load_row<KEYS, NET>(p.q, key_head, token, p.eps_q, room.q + t * KEYS);
        } else if (job % 3 == 1) {
            delta_load_row<KEYS, NET>(p.k, key_head, token, p.eps_k, room.k + t * KEYS);
        } else {
            float2 gates = delta_gates<NET>(p, head, token);
            room.v[t][lane] = column < p.d_v ? *view_f32(p.v, column, head, token, 0) : 0;
            if (lane == 0) {
                room.decay[t] = gates.x;
                room.beta[t] = gates.y;
            }
        }
    }
    __syncthreads();
    for (int t = warp; t < n; t += DELTA_WARPS) {
        float qk = 0;
        for (int i = lane; i < KEYS; i += WARP)
            qk = fmaf(room.q[t * KEYS + i], room.k[t * KEYS + i], qk);
        qk = warp_sum(qk);
        if (lane == 0)
            room.qk[t] = qk;
    }
}

/* The n tokens one after the other; s are this thread's keys of its column. Results go to room.y. */
template <int ROWS> __device__ static inline void delta_steps(const struct delta_task &p, const struct delta_room &room, int n, float (&s)[ROWS])
{
    const int keys = ROWS * DELTA_WARPS, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int t = 0; t < n; t++) {
        const float4 *q = (const float4 *)(room.q + t * keys + warp * ROWS), *k = (const float4 *)(room.k + t * keys + warp * ROWS);
        float kv[2] = {0, 0}, qv[2] = {0, 0};
#pragma unroll
        for (int r = 0; r < ROWS / 4; r++) {
            float4 ks = k[r], qs = q[r];
            kv[0] = fmaf(s[4 * r], ks.x, kv[0]);
            qv[0] = fmaf(s[4 * r], qs.x, qv[0]);
            kv[1] = fmaf(s[4 * r + 1], ks.y, kv[1]);
            qv[1] = fmaf(s[4 * r + 1], qs.y, qv[1]);
            kv[0] = fmaf(s[4 * r + 2], ks.z, kv[0]);
            qv[0] = fmaf(s[4 * r + 2], qs.z, qv[0]);
            kv[1] = fmaf(s[4 * r + 3], ks.w, kv[1]);
            qv[1] = fmaf(s[4 * r + 3], qs.w, qv[1]);
        }
        float2(*sums)[DELTA_COLUMNS] = room.sums[t % 2]; /* the other one may still be read */
        sums[warp][lane] = make_float2(kv[0] + kv[1], qv[0] + qv[1]);
        __syncthreads();
        float2 all = sums[0][lane];
#pragma unroll
        for (int w = 1; w < DELTA_WARPS; w++) {
            all.x += sums[w][lane].x;
            all.y += sums[w][lane].y;
        }
        float decay = room.decay[t], delta = room.beta[t] * fmaf(-decay, all.x, room.v[t][lane]);
        if (warp == 0)
            room.y[t][lane] = p.scale * fmaf(room.qk[t], delta, decay * all.y);
#pragma unroll
        for (int r = 0; r < ROWS / 4; r++) {
            float4 ks = k[r];
            s[4 * r] = fmaf(ks.x, delta, decay * s[4 * r]);
            s[4 * r + 1] = fmaf(ks.y, delta, decay * s[4 * r + 1]);
            s[4 * r + 2] = fmaf(ks.z, delta, decay * s[4 * r + 2]);
            s[4 * r + 3] = fmaf(ks.w, delta, decay * s[4 * r + 3]);
        }
    }
}

/* Rows of the result for n tokens, from room.y; `turn` counts the calls. The whole cluster calls it. */
template <bool NET>
__device__ static inline void delta_finish(const struct delta_task &p, const struct delta_room &room, const int32_t *list, int n, int head, int column, int turn)
{
    namespace cg = cooperative_groups;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads();
    if (NET) {
        double *squares = room.squares[turn % 2]; /* the other one may still be read by the cluster */
        for (int t = warp; t < n; t += DELTA_WARPS) {
            double y = column < p.d_v ? (double)room.y[t][lane] : 0, sum = warp_sum(y * y);
            if (lane == 0)
                squares[t] = sum;
        }
        cg::this_cluster().sync();
    }
    for (int t = warp; t < n; t += DELTA_WARPS) {
        float y = room.y[t][lane];
        if (NET) {
            double total = 0;
            for (unsigned b = 0; b < cg::this_cluster().num_blocks(); b++)
                total += *cg::this_cluster().map_shared_rank(&room.squares[turn % 2][t], b);
            float scale = (float)rsqrt(total / p.d_v + (double)p.eps_out);
            if (column < p.d_v)
                y = delta_gated(p, y, scale, column, head, list[t]);
        }
        if (column < p.d_v)
            *view_f32(p.y, column, head, list[t], 0) = y;
    }
}

template <int ROWS> struct delta_memory {
    float q[DELTA_BLOCK * ROWS * DELTA_WARPS], k[DELTA_BLOCK * ROWS * DELTA_WARPS];
    float v[DELTA_BLOCK][DELTA_COLUMNS], y[DELTA_BLOCK][DELTA_COLUMNS];
    float2 sums[2][DELTA_WARPS][DELTA_COLUMNS];
    double squares[2][DELTA_BLOCK];
    float decay[DELTA_BLOCK], beta[DELTA_BLOCK], qk[DELTA_BLOCK];
    int count;
};

/* Grid: blocks of columns, value heads. Behind the memory lies the list of tokens. */
template <int ROWS, bool NET>
static __global__ void __launch_bounds__(DELTA_THREADS) delta_heads_kernel(const __grid_constant__ struct delta_task p)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    struct delta_memory<ROWS> &m = *(struct delta_memory<ROWS> *)bytes;
    struct delta_room room = {m.q, m.k, m.v, m.y, m.sums, m.decay, m.beta, m.qk, m.squares, (int32_t *)(&m + 1)};
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.y, column = blockIdx.x * DELTA_COLUMNS + lane, turn = 0;
    int key_head = delta_key_head_of(p, head);
    cuda_release();
    cuda_wait();
    int n = recurrent_list(p.sequences, p.n_seq, STRAYS, room.list, &m.count);
    for (int t = warp; t < n; t += DELTA_WARPS)
        if (column < p.d_v)
            *view_f32(p.y, column, head, room.list[t], 0) = NET ? silu(*view_f32(p.z, column, head, room.list[t], 0)) * 0 : 0;
    for (int seq = 0; seq < p.n_seq; seq++) {
        __syncthreads();
        n = recurrent_list(p.sequences, p.n_seq, seq, room.list, &m.count);
        if (n == 0)
            continue;
        int64_t from = recurrent_slot(p.slots, seq, 0, p.state.ne[3]), to = recurrent_slot(p.slots, seq, 1, p.state.ne[3]);
        float s[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = warp * ROWS + r;
            s[r] = from >= 0 && i < p.d_k && column < p.d_v ? *view_f32(p.state, column, i, head, from) : 0;
        }
        for (int t = 0; t < n; t += DELTA_BLOCK, turn++) {
            int some = n - t < DELTA_BLOCK ? n - t : DELTA_BLOCK;
            delta_prepare<ROWS * DELTA_WARPS, NET>(p, room, room.list + t, some, head, key_head, column);
            __syncthreads();
            delta_steps<ROWS>(p, room, some, s);
            delta_finish<NET>(p, room, room.list + t, some, head, column, turn);
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = warp * ROWS + r;
            if (to >= 0 && i < p.d_k && column < p.d_v)
                *view_f32(p.state, column, i, head, to) = s[r];
        }
    }
    if (NET)
        cooperative_groups::this_cluster().sync(); /* no block leaves while others read its sums */
}

/* ---- on the host */

static bool delta_sizes_fit(const struct tensor *k, const struct tensor *v, int n_also, const struct tensor *also, struct reason *r)
{
    if (k->ne[0] > DELTA_MOST_KEYS || v->ne[0] > INT32_MAX / 64)
        return fits_not(r, "keys of %lld and values of %lld", (long long)k->ne[0], (long long)v->ne[0]);
    if (v->ne[2] > RECURRENT_TOKENS || v->ne[1] > 65535)
        return fits_not(r, "%lld tokens, %lld heads", (long long)v->ne[2], (long long)v->ne[1]);
    return !n_also || fits_not(r, "%.60s is read by others", also->name);
}

bool delta_rule_fits(const struct node *n, struct reason *r)
{
    return delta_sizes_fit(n->src[1], n->src[2], 0, NULL, r);
}

bool delta_net_fits(const struct node *n, struct reason *r)
{
    if (n->src[NET_V]->ne[0] > DELTA_MOST_VALUES)
        return fits_not(r, "values of %lld", (long long)n->src[NET_V]->ne[0]);
    return delta_sizes_fit(n->src[NET_K], n->src[NET_V], n->n_also, n->also[0], r);
}

template <int ROWS, bool NET> static int delta_launch(const struct exec *x, const struct delta_task &p, int64_t n_heads, int64_t n_tokens)
{
    unsigned blocks = (unsigned)div_up(p.d_v, DELTA_COLUMNS);
    size_t bytes = sizeof(struct delta_memory<ROWS>) + sizeof(int32_t) * (size_t)n_tokens;
    return cuda_launch_cluster(x, delta_heads_kernel<ROWS, NET>, dim3(blocks, (unsigned)n_heads), dim3(DELTA_THREADS),
                               NET ? blocks : 1, bytes, p);
}

template <bool NET> static int delta_run(const struct exec *x, const struct delta_task &p)
{
    int64_t heads = p.v.ne[1], tokens = p.v.ne[2];
    if (heads == 0 || tokens == 0 || p.d_v == 0)
        return 0;
    if (p.d_k <= 64)
        return delta_launch<8, NET>(x, p, heads, tokens);
    if (p.d_k <= 128)
        return delta_launch<16, NET>(x, p, heads, tokens);
    return delta_launch<32, NET>(x, p, heads, tokens);
}

int delta_rule_run(const struct exec *x, const struct node *n)
{
    struct delta_task p = {};
    p.q = view_of(n->src[0]);
    p.k = view_of(n->src[1]);
    p.v = view_of(n->src[2]);
    p.g = view_of(n->src[3]);
    p.beta = view_of(n->src[4]);
    p.state = view_of(n->src[5]);
    p.sequences = view_of(n->src[6]);
    p.slots = view_of(n->src[7]);
    delta_task_common(&p, n);
    return delta_run<false>(x, p);
}

int delta_net_run(const struct exec *x, const struct node *n)
{
    return delta_run<true>(x, delta_net_task(n));
}
