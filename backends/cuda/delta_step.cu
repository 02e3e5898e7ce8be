/* delta_step.cu: conv_delta_net, with or without its quantisation, for the one token of a decode step: the convolution, its
 * activation, the gates, the norms of q and k, the delta rule, the gated norm and the result as A8, in one launch. Keys and
 * values of 64 or 128.
 *
 * A block has a half or a quarter of a value head's columns. All of its state is on the way, 16 bytes a load, before the first
 * value is used; and before the kernel ahead has ended, since nothing else in a step writes it, nor the window of the
 * convolution. Blocks whose heads share a key head are a cluster: each convolves the key and the query for itself (384
 * products, which are cheaper than a launch), and the cluster's barrier keeps the window as it was until all have read it. The
 * same barrier carries the sums of squares of a head's parts, written into each other's shared memory. Two barriers of the
 * block stand between input and output: for keys and queries with the parts of their products, and for the sums over the keys.
 *
 * With kv = S k and qv = S q of the state as it was (delta.cu), raw k and q meet the state, and their norms multiply the sums.
 * Bound by the state's bytes, read and written; in a decode step mostly by the latency of one load after the other: slots, then
 * state. Sums run in a fixed order. More tokens or wider heads take ssm_conv_silu and gated_delta_net. */
#include "backends/cuda/a8.cuh"
#include "backends/cuda/delta.cuh"
#include "backends/cuda/ptx.cuh"

#include <cooperative_groups.h>

enum { STEP_THREADS = 128, STEP_WARPS = STEP_THREADS / WARP, STEP_TAPS = 4, STEP_CLUSTER = 8 };
/* Sources and parts of the nodes (ops/conv_delta_net.c); of gated_delta_net's parts: behind those of the convolution. */
enum {
    STEP_X,
    STEP_CONV,
    STEP_WINDOW,
    STEP_ALPHA,
    STEP_DT,
    STEP_A,
    STEP_B,
    STEP_STATE,
    STEP_SEQUENCES,
    STEP_SLOTS,
    STEP_Z,
    STEP_WEIGHT
};
enum { STEP_NET = 2, STEP_GLU = STEP_NET + 9, STEP_PARTS = STEP_GLU + 1 };

/* One a head: [n_v], or [n_v / n_k, n_k]. */
struct step_values {
    const char *data;
    int inner; /* how many along dimension 0 */
    int64_t nb0, nb1;
};

struct step_task {
    const float *x, *taps, *dt, *a, *z, *weight;
    float *window, *state, *y; /* y NULL: only quantised */
    struct block_a8 *quantized;
    const int32_t *sequences, *slots;
    struct step_values alpha, b;
    int64_t window_row, window_slot, state_row, state_head, state_slot, z_head; /* strides in floats */
    int n_seq, n_slots;
    int q, k, v;    /* first channels */
    int n_k, group; /* heads of k; heads of v that share one */
    bool grouped;
    float scale, eps_q, eps_k, eps_out;
};

template <int KEYS, int COLUMNS> struct step_memory {
    float q[KEYS], k[KEYS], v[COLUMNS];
    float products[STEP_WARPS][4];           /* parts of q . q, k . k, q . k */
    float4 sums[2][STEP_WARPS][COLUMNS / 4]; /* of kv and qv */
    double squares[4];                       /* of the head's parts */
};

__device__ static inline float step_value(const struct step_values &v, int head)
{
    return *(const float *)(v.data + head % v.inner * v.nb0 + head / v.inner * v.nb1);
}

/* The slots that the token's sequence reads and writes; -1: none; to write, -2: of no sequence. Pairs of up to 32 sequences
 * come with the sequence's number, not behind it. */
__device__ static inline int2 step_slots(const struct step_task &p)
{
    int lane = threadIdx.x % WARP, at = lane < p.n_seq ? lane : 0;
    int sequence = p.sequences[0], from = p.slots[2 * at], to = p.slots[2 * at + 1];
    bool known = sequence >= 0 && sequence < p.n_seq;
    from = __shfl_sync(0xffffffffu, from, known ? sequence : 0);
    to = __shfl_sync(0xffffffffu, to, known ? sequence : 0);
    if (known && sequence >= WARP) {
        from = p.slots[2 * sequence];
        to = p.slots[2 * sequence + 1];
    }
    return make_int2(known && from >= 0 && from < p.n_slots ? from : -1, known && to >= 0 && to < p.n_slots ? to
                                                                         : known                            ? -1
                                                                                                            : -2);
}

/* A channel's taps, the window before the token, and the token's input. */
struct step_channel {
    float4 taps;
    float window[STEP_TAPS - 1], x;

    __device__ __forceinline__ void ask(const struct step_task &p, int channel, int slot, bool has)
    {
        taps = has ? *(const float4 *)(p.taps + (int64_t)channel * STEP_TAPS) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < STEP_TAPS - 1; i++)
            window[i] = has && slot >= 0 ? __ldcg(p.window + slot * p.window_slot + i * p.window_row + channel) : 0;
    }
    __device__ __forceinline__ float value(void) const
    {
        return silu(fmaf(taps.w, x, fmaf(taps.z, window[2], fmaf(taps.y, window[1], taps.x * window[0]))));
    }
    __device__ __forceinline__ void leave(const struct step_task &p, int channel, int slot) const
    {
        float *to = p.window + slot * p.window_slot + channel;
        to[0] = window[1];
        to[p.window_row] = window[2];
        to[2 * p.window_row] = x;
    }
};

/* 1 / |row|, from the row's squares in f32; where those leave its range, from the row in double. */
template <int KEYS> __device__ static inline float step_norm(float squares, const float *row, float eps)
{
    if (squares > 1e-30f && squares < 1e38f)
        return 1 / sqrtf(squares + eps);
    double again = 0;
    for (int i = 0; i < KEYS; i++)
        again += (double)row[i] * (double)row[i];
    return (float)rsqrt(again + (double)eps);
}

/* 1 / sqrt(mean): in f32, whose root takes a fraction of the time, where that has the range. */
__device__ static inline float step_scale(double mean)
{
    return mean > 1e-36 && mean < 1e36 ? 1 / sqrtf((float)mean) : (float)rsqrt(mean);
}

/* Over the threads that have the same columns. */
template <int GROUPS> __device__ static inline float4 step_columns_sum(float4 x)
{
#pragma unroll
    for (int d = GROUPS; d < WARP; d *= 2) {
        x.x += __shfl_xor_sync(0xffffffffu, x.x, d);
        x.y += __shfl_xor_sync(0xffffffffu, x.y, d);
        x.z += __shfl_xor_sync(0xffffffffu, x.z, d);
        x.w += __shfl_xor_sync(0xffffffffu, x.w, d);
    }
    return x;
}

template <int GROUPS> __device__ static inline float4 step_warps_sum(float4 (*of)[GROUPS], int group)
{
    float4 all = of[0][group];
#pragma unroll
    for (int w = 1; w < STEP_WARPS; w++) {
        float4 x = of[w][group];
        all = make_float4(all.x + x.x, all.y + x.y, all.z + x.z, all.w + x.w);
    }
    return all;
}

__device__ static inline float4 step_fma(float4 a, float b, float4 c)
{
    return make_float4(fmaf(a.x, b, c.x), fmaf(a.y, b, c.y), fmaf(a.z, b, c.z), fmaf(a.w, b, c.w));
}

/* Which head and which part of its columns a block has. */
struct step_place {
    int key_head, head, part, of_group;
};

template <int PARTS> __device__ static inline struct step_place step_place_of(const struct step_task &p)
{
    int size = p.group * PARTS, member = blockIdx.x % size;
    struct step_place at = {(int)blockIdx.x / size, 0, member % PARTS, member / PARTS};
    at.head = p.grouped ? at.key_head * p.group + at.of_group : at.key_head + p.n_k * at.of_group;
    return at;
}

/* The parts' squares to each of the head's blocks, once all blocks have read the window. */
template <int KEYS, int PARTS>
__device__ static inline double step_exchange(struct step_memory<KEYS, KEYS / PARTS> &m, const struct step_place &at,
                                              double squares)
{
    namespace cg = cooperative_groups;
    cluster_wait(); /* all blocks have begun */
    if (threadIdx.x < PARTS)
        *cg::this_cluster().map_shared_rank(&m.squares[at.part], at.of_group * PARTS + threadIdx.x) = squares;
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    double all = m.squares[0];
#pragma unroll
    for (int i = 1; i < PARTS; i++)
        all += m.squares[i];
    return all;
}

/* The result's columns, four a lane of the first warp's; lanes beyond them do what others do. */
template <int COLUMNS>
__device__ static inline void step_leave(const struct step_task &p, int first, float4 y, float scale, float4 z, float4 w)
{
    int lane = threadIdx.x % WARP;
    bool has = lane < COLUMNS / 4;
    y = make_float4(silu(z.x) * (y.x * scale * w.x), silu(z.y) * (y.y * scale * w.y), silu(z.z) * (y.z * scale * w.z),
                    silu(z.w) * (y.w * scale * w.w));
    if (p.y && has)
        *(float4 *)(p.y + first) = y;
    if (p.quantized)
        a8_store_4(has ? p.quantized + first / 32 : NULL, y);
}

/* Grid: key heads times the cluster's blocks: value heads of a key head, each in PARTS. */
template <int KEYS, int PARTS>
static __global__ void __launch_bounds__(STEP_THREADS) delta_step(const __grid_constant__ struct step_task p)
{
    constexpr int COLUMNS = KEYS / PARTS, GROUPS = COLUMNS / 4, ROWS = KEYS / (STEP_THREADS / GROUPS);
    extern __shared__ __align__(16) unsigned char bytes[];
    struct step_memory<KEYS, COLUMNS> &m = *(struct step_memory<KEYS, COLUMNS> *)bytes;
    const int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, group = tid % GROUPS, share = tid / GROUPS;
    const struct step_place at = step_place_of<PARTS>(p);
    const int column = at.part * COLUMNS + 4 * group, first = p.k + at.key_head * KEYS + tid;
    const int channels[3] = {p.q + at.key_head * KEYS + tid, first, p.v + at.head * KEYS + at.part * COLUMNS + tid};
    cuda_release();
    cluster_arrive();
    int2 slot = step_slots(p);
    struct step_channel c[3];
#pragma unroll
    for (int i = 0; i < 3; i++)
        c[i].ask(p, channels[i], slot.x, tid < (i < 2 ? KEYS : COLUMNS));
    float4 s[ROWS];
    float *state = p.state + at.head * p.state_head + share * ROWS * p.state_row + column;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        s[r] =
            slot.x >= 0 ? __ldcg((const float4 *)(state + slot.x * p.state_slot + r * p.state_row)) : make_float4(0, 0, 0, 0);
    float dt = p.dt[at.head], a = p.a[at.head];
    float4 w = *(const float4 *)(p.weight + column);
    cuda_wait();
#pragma unroll
    for (int i = 0; i < 3; i++)
        c[i].x = tid < (i < 2 ? KEYS : COLUMNS) ? p.x[channels[i]] : 0;
    float alpha = step_value(p.alpha, at.head), beta = sigmoid(step_value(p.b, at.head)),
          decay = expf(softplus(alpha + dt) * a);
    float4 z = *(const float4 *)(p.z + at.head * p.z_head + column);

    float q = c[0].value(), k = c[1].value();
    if (tid < KEYS) {
        m.q[tid] = q;
        m.k[tid] = k;
    }
    if (tid < COLUMNS)
        m.v[tid] = c[2].value();
    float qq = warp_sum(q * q), kk = warp_sum(k * k), qk = warp_sum(q * k);
    if (lane == 0)
        *(float4 *)m.products[warp] = make_float4(qq, kk, qk, 0);
    __syncthreads();

    float4 kv = make_float4(0, 0, 0, 0), qv = kv;
    const float4 *keys = (const float4 *)(m.k + share * ROWS), *queries = (const float4 *)(m.q + share * ROWS);
#pragma unroll
    for (int r = 0; r < ROWS / 4; r++) {
        float4 k4 = keys[r], q4 = queries[r];
        kv = step_fma(s[4 * r + 3], k4.w,
                      step_fma(s[4 * r + 2], k4.z, step_fma(s[4 * r + 1], k4.y, step_fma(s[4 * r], k4.x, kv))));
        qv = step_fma(s[4 * r + 3], q4.w,
                      step_fma(s[4 * r + 2], q4.z, step_fma(s[4 * r + 1], q4.y, step_fma(s[4 * r], q4.x, qv))));
    }
    kv = step_columns_sum<GROUPS>(kv);
    qv = step_columns_sum<GROUPS>(qv);
    if (lane < GROUPS) {
        m.sums[0][warp][lane] = kv;
        m.sums[1][warp][lane] = qv;
    }
    float4 total = *(const float4 *)m.products[0];
#pragma unroll
    for (int i = 1; i < STEP_WARPS; i++) {
        float4 part = *(const float4 *)m.products[i];
        total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, 0);
    }
    float of_q = step_norm<KEYS>(total.x, m.q, p.eps_q), of_k = step_norm<KEYS>(total.y, m.k, p.eps_k);
    __syncthreads();

    kv = step_warps_sum<GROUPS>(m.sums[0], group);
    qv = step_warps_sum<GROUPS>(m.sums[1], group);
    float4 v = *(const float4 *)(m.v + 4 * group), delta, y;
    float keep = -decay * of_k, both = total.z * of_q * of_k, old = decay * of_q;
    delta = make_float4(beta * fmaf(keep, kv.x, v.x), beta * fmaf(keep, kv.y, v.y), beta * fmaf(keep, kv.z, v.z),
                        beta * fmaf(keep, kv.w, v.w));
    y = make_float4(p.scale * fmaf(both, delta.x, old * qv.x), p.scale * fmaf(both, delta.y, old * qv.y),
                    p.scale * fmaf(both, delta.z, old * qv.z), p.scale * fmaf(both, delta.w, old * qv.w));
    if (slot.y == -2) /* of no sequence */
        y = make_float4(0, 0, 0, 0);
    float squares = (y.x * y.x + y.y * y.y) + (y.z * y.z + y.w * y.w);
#pragma unroll
    for (int d = 1; d < GROUPS; d *= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, d);
    double sum = (double)squares;
    if (!(squares > 1e-30f && squares < 1e30f)) { /* the same in the whole block: out of f32's range, or nearly */
        sum = (double)y.x * (double)y.x + (double)y.y * (double)y.y + ((double)y.z * (double)y.z + (double)y.w * (double)y.w);
#pragma unroll
        for (int d = 1; d < GROUPS; d *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, d);
    }
    double all = step_exchange<KEYS, PARTS>(m, at, sum);
    if (warp == 0)
        step_leave<COLUMNS>(p, at.head * KEYS + column, y, step_scale(all * (1.0 / KEYS) + (double)p.eps_out), z, w);
    if (slot.y < 0)
        return;
    state += slot.y * p.state_slot;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float key = m.k[share * ROWS + r] * of_k;
        float4 x = make_float4(decay * s[r].x, decay * s[r].y, decay * s[r].z, decay * s[r].w);
        *(float4 *)(state + r * p.state_row) = step_fma(delta, key, x);
    }
    if (tid < COLUMNS)
        c[2].leave(p, channels[2], slot.y);
    if (at.part == 0 && at.of_group == 0 && tid < KEYS) {
        c[0].leave(p, channels[0], slot.y);
        c[1].leave(p, channels[1], slot.y);
    }
}

/* ---- on the host */

static const struct tensor *step_qkv(const struct node *n, int i)
{
    const struct node *rule = n->parts[(int)STEP_NET + (int)NET_RULE];
    return i == 2 ? rule->src[2] : n->parts[(int)STEP_NET + (int)(i ? NET_L2_K : NET_L2_Q)]->src[0];
}

/* Blocks of a value head. */
static int step_parts(int64_t keys, int64_t group)
{
    return keys == 128 && group * 4 <= STEP_CLUSTER ? 4 : 2;
}

/* Rows of 16-byte vectors, wherever the tensor's memory begins. */
static bool step_vectors(const struct tensor *t)
{
    bool whole = tensor_rows_contiguous(t) && t->offset % 16 == 0;
    for (int i = 1; i < MAX_DIMS; i++)
        whole = whole && (t->ne[i] == 1 || t->nb[i] % 16 == 0);
    return whole;
}

static bool step_sizes_fit(const struct node *n, struct reason *r)
{
    const struct tensor *q = step_qkv(n, 0), *v = step_qkv(n, 2), *taps = n->src[STEP_CONV];
    if (tensor_rows(n->src[STEP_X]) != 1)
        return fits_not(r, "%lld tokens, not one", (long long)tensor_rows(n->src[STEP_X]));
    if ((v->ne[0] != 64 && v->ne[0] != 128) || q->ne[0] != v->ne[0])
        return fits_not(r, "keys of %lld and values of %lld", (long long)q->ne[0], (long long)v->ne[0]);
    if (v->ne[1] % q->ne[1] || v->ne[1] / q->ne[1] > STEP_CLUSTER / 2 || v->ne[1] > 65535)
        return fits_not(r, "%lld heads of V for %lld of K", (long long)v->ne[1], (long long)q->ne[1]);
    if (n->src[STEP_WINDOW]->ne[2] != n->src[STEP_STATE]->ne[3])
        return fits_not(r, "%lld windows and %lld states", (long long)n->src[STEP_WINDOW]->ne[2],
                        (long long)n->src[STEP_STATE]->ne[3]);
    if (taps->ne[0] != STEP_TAPS || !tensor_contiguous(taps) || taps->ne[1] > INT32_MAX / STEP_TAPS)
        return fits_not(r, "a window of %lld", (long long)taps->ne[0]);
    return true;
}

static bool step_fits(const struct node *n, struct reason *r)
{
    if (!step_sizes_fit(n, r))
        return false;
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = step_qkv(n, i);
        if (t->base != n->parts[1]->out || t->nb[0] != sizeof(float) || t->nb[1] != sizeof(float) * (size_t)t->ne[0])
            return fits_not(r, "the heads of %.60s do not lie one behind the other in the convolution's result", t->name);
    }
    if (!tensor_rows_contiguous(n->src[STEP_X]) || !tensor_rows_contiguous(n->src[STEP_WINDOW]) ||
        !tensor_contiguous(n->src[STEP_DT]) || !tensor_contiguous(n->src[STEP_A]) || !tensor_contiguous(n->src[STEP_SLOTS]))
        return fits_not(r, "values of a row lie apart");
    if (!step_vectors(n->src[STEP_STATE]) || !step_vectors(n->src[STEP_Z]) || !step_vectors(n->src[STEP_WEIGHT]) ||
        n->src[STEP_CONV]->offset % 16)
        return fits_not(r, "rows begin at odd places");
    const struct tensor *glu = n->parts[STEP_GLU]->out;
    bool quantizes = n->n_parts > STEP_PARTS;
    if (quantizes && (n->out->format != FORMAT_A8 || !tensor_contiguous(n->out)))
        return fits_not(r, "a result in %s", format_get(n->out->format)->name);
    if (!tensor_contiguous(glu))
        return fits_not(r, "the result's rows lie apart");
    for (int i = 0; i < n->n_also; i++)
        if (!quantizes || n->also[i] != glu)
            return fits_not(r, "%.60s is read by others", n->also[i]->name);
    return true;
}

static struct step_values step_values_of(const struct tensor *t)
{
    struct step_values v = {(const char *)t->data, (int)t->ne[0], (int64_t)t->nb[0], (int64_t)t->nb[1]};
    return v;
}

static int64_t step_stride(const struct tensor *t, int i)
{
    return (int64_t)(t->nb[i] / sizeof(float));
}

/* First channel of q, k or v: where in the convolution's result its view begins. */
static int step_channel_of(const struct node *n, int i)
{
    return (int)(step_qkv(n, i)->offset / sizeof(float));
}

static struct step_task step_task_of(const struct node *n)
{
    const struct node *l2_q = n->parts[(int)STEP_NET + (int)NET_L2_Q], *l2_k = n->parts[(int)STEP_NET + (int)NET_L2_K];
    const struct gated_delta_rule_params *of = node_params(n, struct gated_delta_rule_params);
    const struct tensor *window = n->src[STEP_WINDOW], *state = n->src[STEP_STATE], *glu = n->parts[STEP_GLU]->out,
                        *v = step_qkv(n, 2);
    struct step_task p = {};
    p.x = (const float *)n->src[STEP_X]->data;
    p.taps = (const float *)n->src[STEP_CONV]->data;
    p.dt = (const float *)n->src[STEP_DT]->data;
    p.a = (const float *)n->src[STEP_A]->data;
    p.z = (const float *)n->src[STEP_Z]->data;
    p.weight = (const float *)n->src[STEP_WEIGHT]->data;
    p.window = (float *)window->data;
    p.state = (float *)state->data;
    p.y = node_leaves(n, glu) ? (float *)glu->data : NULL;
    p.quantized = n->n_parts > STEP_PARTS ? (struct block_a8 *)n->out->data : NULL;
    p.sequences = (const int32_t *)n->src[STEP_SEQUENCES]->data;
    p.slots = (const int32_t *)n->src[STEP_SLOTS]->data;
    p.alpha = step_values_of(n->src[STEP_ALPHA]);
    p.b = step_values_of(n->src[STEP_B]);
    p.window_row = step_stride(window, 1);
    p.window_slot = step_stride(window, 2);
    p.state_row = step_stride(state, 1);
    p.state_head = step_stride(state, 2);
    p.state_slot = step_stride(state, 3);
    p.z_head = step_stride(n->src[STEP_Z], 1);
    p.n_seq = (int)n->src[STEP_SLOTS]->ne[1];
    p.n_slots = (int)state->ne[3];
    p.q = step_channel_of(n, 0);
    p.k = step_channel_of(n, 1);
    p.v = step_channel_of(n, 2);
    p.n_k = (int)step_qkv(n, 0)->ne[1];
    p.group = (int)v->ne[1] / p.n_k;
    p.grouped = of->heads == DELTA_GROUPED;
    p.scale = of->scale;
    p.eps_q = node_params(l2_q, struct l2_norm_params)->eps;
    p.eps_k = node_params(l2_k, struct l2_norm_params)->eps;
    p.eps_out = node_params(n->parts[(int)STEP_NET + (int)NET_RMS_NORM], struct rms_norm_params)->eps;
    return p;
}

template <int KEYS, int PARTS> static int step_launch(const struct exec *x, const struct step_task &p)
{
    unsigned size = (unsigned)(p.group * PARTS);
    return cuda_launch_cluster(x, delta_step<KEYS, PARTS>, dim3((unsigned)p.n_k * size), dim3(STEP_THREADS), size,
                               sizeof(struct step_memory<KEYS, KEYS / PARTS>), p);
}

static int step_run(const struct exec *x, const struct node *n)
{
    struct step_task p = step_task_of(n);
    const void *vectors[] = {p.taps, p.z, p.weight, p.state, p.y, p.quantized};
    for (const void *v : vectors)
        if ((uintptr_t)v % 8 || (v != p.quantized && (uintptr_t)v % 16))
            return cuda_fault("a source of a delta step begins at %p, no multiple of 16 bytes", v);
    if (step_qkv(n, 2)->ne[0] == 64)
        return step_launch<64, 2>(x, p);
    return step_parts(128, p.group) == 4 ? step_launch<128, 4>(x, p) : step_launch<128, 2>(x, p);
}

CUDA_KERNEL(conv_delta_net_step) = {
    .op = OP_CONV_DELTA_NET, .variant = "step", .needs = CUDA_SM90, .fits = step_fits, .run = step_run};
CUDA_KERNEL(conv_delta_net_quantize_step) = {
    .op = OP_CONV_DELTA_NET_QUANTIZE, .variant = "step", .needs = CUDA_SM90, .fits = step_fits, .run = step_run};
