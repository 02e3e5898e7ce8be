/* attention_step.cu: rope_kv_attention, with or without its quantisation, for the one token of a decode step in a context of up
 * to 4096 (wide heads: 2048): the norms and the rope of q and k, the writes into the cache, attention, the gate behind it and the result as A8, in
 * one launch. F16, BF16 or Q8_0, K and V alike, heads of 64, 128 and 256.
 *
 * A cluster of eight blocks has a KV head and up to eight heads of its group. Its 32 warps take tiles of 16 positions in turn
 * (attention_split.cuh), so a context of 512 is one tile a warp. Each block turns the queries for itself; the one that has the
 * last tile turns the new key as well and writes it and the value into the cache before anybody of the block reads there, and
 * no other block has that position. Then each block's result goes into the others' shared memory, and 32 columns of a head a
 * warp are added in the order of the blocks. Angles come from the frequency's logarithm, on the device: a table that travels
 * with the launch is read from memory anew by every launch.
 *
 * Bound by latency: token, map, rows, the cluster's barrier. In longer contexts eight blocks a KV head are too few
 * to read the cache at full rate: rope_kv and attention_split. */
#include "backends/cuda/attention_step.cuh"
#include "backends/cuda/unary.cuh"

#include <cooperative_groups.h>

extern "C" {
#include "ops/glu.h"
#include "ops/rms_norm.h"
}

enum { ATTEND_BLOCKS = 8, ATTEND_CONTEXT = 4096, ATTEND_SPREAD = ATTEND_BLOCKS * SPLIT_WARPS };
/* Sources (ops/rope_kv_attention.c). */
enum {
    ATTEND_Q,
    ATTEND_K,
    ATTEND_V,
    ATTEND_POSITIONS,
    ATTEND_CELLS,
    ATTEND_K_CACHE,
    ATTEND_V_CACHE,
    ATTEND_FACTORS,
    ATTEND_SEQUENCES,
    ATTEND_MAP,
    ATTEND_Q_NORM,
    ATTEND_K_NORM,
    ATTEND_GATE
};

/* Results of warps that have tiles are numbered by their first one, at most ATTEND_SPREAD. */
template <int D> struct attend_memory {
    float q[SPLIT_HEADS][D + 4], row[2][D]; /* the turned queries; the new key and value */
    float inbox[D / 32][ATTEND_SPREAD][32],
        stats[ATTEND_SPREAD][SPLIT_HEADS][2]; /* this block's units of all results; maxima, sums */
    float cosines[D / 2], sines[D / 2];
};

/* A warp's result to those who add it: unit number u, 32 columns of a head, to block u % ATTEND_BLOCKS; maxima and sums to all.
 */
template <int D, class C>
__device__ static inline void attend_send(struct attend_memory<D> &m, const struct split_result<D, C> &o, int number,
                                          int n_heads)
{
    namespace cg = cooperative_groups;
    constexpr int N = split_result<D, C>::N, CHUNKS = split_result<D, C>::CHUNKS;
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = split_sum(o.sum[h]);
        if (2 * c + h < n_heads)
            *(float2 *)cg::this_cluster().map_shared_rank(&m.stats[number][2 * c + h][0], g) = make_float2(o.max[h], sum);
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            int column = (j * 8 + g) * N, unit = (2 * c + h) * (D / 32) + column / 32; /* N neighbours lie in one */
            if (2 * c + h >= n_heads)
                continue;
            float *to =
                cg::this_cluster().map_shared_rank(&m.inbox[unit / ATTEND_BLOCKS][number][column % 32], unit % ATTEND_BLOCKS);
#pragma unroll
            for (int i = 0; i < N / 2; i += 2)
                *(float4 *)(to + 2 * i) =
                    make_float4(o.values[j][i][h], o.values[j][i][h + 2], o.values[j][i + 1][h], o.values[j][i + 1][h + 2]);
        }
}

/* One of this block's units, added in the results' order. */
template <int D>
__device__ static inline void attend_merge(const struct attend_task &p, const struct attend_memory<D> &m, int results, int slot,
                                           int h, int head, int column)
{
    int lane = threadIdx.x % WARP;
    float gate = p.gate.rows ? *((const float *)(p.gate.rows + head * p.gate.head) + column + lane) : 0;
    float2 its = lane < results ? *(const float2 *)m.stats[lane][h] : make_float2(-INFINITY, 0);
    float weight = attention_weight(its.x, warp_max(its.x)), total = warp_sum(weight * its.y), y[2] = {0, 0};
#pragma unroll 4
    for (int b = 0; b < results; b++)
        y[b % 2] = fmaf(__shfl_sync(0xffffffffu, weight, b), m.inbox[slot][b][lane], y[b % 2]);
    float all = total == 0 ? 0 : (y[0] + y[1]) / total;
    if (p.gate.rows)
        all *= unary_value(p.kind, gate);
    if (p.y)
        p.y[head * D + column + lane] = all;
    if (p.quantized)
        a8_store_1(p.quantized + (head * D + column) / 32, all);
}

/* Grid: KV heads times parts of a group, times the cluster's blocks. */
template <int D, class C>
static __global__ void __launch_bounds__(SPLIT_THREADS) attention_step(const __grid_constant__ struct attend_task p)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    struct attend_memory<D> &m = *(struct attend_memory<D> *)bytes;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, block = blockIdx.x % ATTEND_BLOCKS,
              of = blockIdx.x / ATTEND_BLOCKS;
    const int kv_head = of / p.parts, part = of % p.parts, head = kv_head * p.group + part * SPLIT_HEADS;
    const int n_heads = min((int)SPLIT_HEADS, p.group - part * SPLIT_HEADS);
    cuda_release();
    cluster_arrive();
    const struct attention_span span = attend_span(p);
    const int tiles = (span.high - span.low + SPLIT_TILE) / SPLIT_TILE, results = min((int)ATTEND_SPREAD, tiles);
    const bool writes = block == (tiles > 0 ? (tiles - 1) % ATTEND_BLOCKS : 0);
    const int number = block + ATTEND_BLOCKS * warp;
    int tile = number, cell = attend_cell(p, span, tile);
    for (int later = tile + ATTEND_SPREAD; later < tiles; later += ATTEND_SPREAD)
        attend_ahead<D>(p, kv_head, attend_cell(p, span, later));
    /* What was in the cache before this step needs not wait for the kernel ahead; the last tile is read again when the token is
     * in it. */
    struct split_cache cache = {p.k_cache + kv_head * p.k_head, p.v_cache + kv_head * p.v_head, p.k_cell, p.v_cell, p.softcap};
    struct split_keys<D, C> keys;
    struct split_values<D, C> values;
    keys.load(cache, cell);
    values.find(cache, cell);
    if (D <= 128)
        values.load();
    else
        attend_ahead<D>(p, kv_head, cell);
    attend_angles_make(p, m.cosines, m.sines, SPLIT_THREADS);
    cuda_wait();
    __syncthreads();
    for (int job = warp; job < n_heads + 2 * writes; job += SPLIT_WARPS) {
        if (job < 2 * writes) {
            attend_write<D>(p, m.cosines, m.sines, m.row[job == 1], kv_head, job == 1);
        } else {
            int h = job - 2 * writes;
            attend_load<D>(p.q, head + h, m.q[h]);
            attend_turn(p.angles, m.cosines, m.sines, m.q[h]);
        }
    }
    __syncthreads();
    struct split_result<D, C> o = {
    };
    o.max[0] = o.max[1] = -INFINITY;
    if (tile < tiles) {
        struct split_queries<D, C> q;
        float periods = p.temperature != 0 && span.high > 0 ? (float)(span.high / p.temperature_period) : 0;
        if (tile == tiles - 1) {
            keys.load(cache, cell);
            if (D <= 128)
                values.load();
        }
        q.load(lane / 4 < n_heads ? (const char *)m.q[lane / 4] : NULL, sizeof(float),
               p.scale * (1 + p.temperature * logf(1 + periods)));
        while (tile < tiles) {
            float s[4], w[4], rescale[2];
            tile += ATTEND_SPREAD;
            cell = attend_cell(p, span, tile);
            keys.scores(q, p.softcap, s);
            if (D <= 128)
                keys.load(cache, cell); /* the next tile's, while this one's values are added */
            else
                values.load(); /* there are no registers for more */
            split_weigh<D, C>(o, s, w, rescale);
            values.add(o, w, rescale);
            values.find(cache, cell);
            if (D <= 128)
                values.load();
            else
                keys.load(cache, cell);
        }
    }
    cluster_wait(); /* all blocks have begun */
    if (number < results)
        attend_send<D, C>(m, o, number, n_heads);
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    for (int slot = warp, unit; (unit = slot * ATTEND_BLOCKS + block) < n_heads * (D / 32); slot += SPLIT_WARPS)
        attend_merge<D>(p, m, results, slot, unit / (D / 32), head + unit / (D / 32), unit % (D / 32) * 32);
}

/* ---- on the host */

/* The parts by what they are; absent ones NULL. */
struct attend_parts {
    const struct node *q_norm, *k_norm, *q, *k, *write_k, *write_v, *attention, *glu, *quantize;
};

static struct attend_parts attend_parts_of(const struct node *n)
{
    struct attend_parts s = {};
    for (int i = 0; i < n->n_parts; i++) {
        const struct node *part = n->parts[i], **one = NULL, **two = NULL;
        switch (part->op) {
        case OP_RMS_NORM:
            one = &s.q_norm, two = &s.k_norm;
            break;
        case OP_ROPE:
            one = &s.q, two = &s.k;
            break;
        case OP_KV_WRITE:
            one = &s.write_k, two = &s.write_v;
            break;
        case OP_ATTENTION:
            one = &s.attention;
            break;
        case OP_GLU:
            one = &s.glu;
            break;
        case OP_QUANTIZE:
            one = &s.quantize;
            break;
        default:
            continue;
        }
        *(*one && two ? two : one) = part;
    }
    return s;
}

static bool attend_cache_fits(const struct tensor *k, const struct tensor *v, struct reason *r)
{
    if (k->format != v->format || k->ne[0] != v->ne[0])
        return fits_not(r, "K and V differ");
    if (k->format != FORMAT_F16 && k->format != FORMAT_BF16 && k->format != FORMAT_Q8_0)
        return fits_not(r, "a cache in %s", format_get(k->format)->name);
    if (k->ne[0] != 64 && k->ne[0] != 128 && k->ne[0] != 256)
        return fits_not(r, "heads of %lld", (long long)k->ne[0]);
    size_t unit = k->format == FORMAT_Q8_0 ? 2 : 16;
    const struct tensor *both[] = {k, v};
    for (const struct tensor *t : both)
        if (!tensor_rows_contiguous(t) || t->offset % unit || t->nb[1] % unit || t->nb[2] % unit || t->ne[1] > INT32_MAX)
            return fits_not(r, "the rows of the cache are not aligned");
    return true;
}

/* Heads whose rows are whole, at any distance. */
static bool attend_rows_fit(const struct tensor *t, struct reason *r)
{
    return (tensor_rows_contiguous(t) && t->ne[2] == 1) || fits_not(r, "the values of %.60s lie apart", t->name);
}

bool attend_fits(const struct node *n, struct reason *r)
{
    struct attend_parts s = attend_parts_of(n);
    const struct tensor *q = n->src[ATTEND_Q], *k_cache = n->src[ATTEND_K_CACHE], *map = n->src[ATTEND_MAP];
    if (q->ne[2] != 1)
        return fits_not(r, "%lld tokens, not one", (long long)q->ne[2]);
    if (map->ne[0] > (k_cache->ne[0] > 128 ? (int)ATTEND_CONTEXT / 2 : (int)ATTEND_CONTEXT))
        return fits_not(r, "a context of %lld", (long long)map->ne[0]);
    if (!attend_cache_fits(k_cache, n->src[ATTEND_V_CACHE], r) || !attend_rows_fit(q, r) ||
        !attend_rows_fit(n->src[ATTEND_K], r) || !attend_rows_fit(n->src[ATTEND_V], r))
        return false;
    if (node_params(s.q, struct rope_params)->mode > ROPE_NEOX)
        return fits_not(r, "a rope in sections");
    if (s.write_k->src[0] != s.k->out || s.attention->src[0] != s.q->out)
        return fits_not(r, "q or k is viewed otherwise behind its rope");
    const struct tensor *vectors[] = {map,
                                      n->src[ATTEND_SEQUENCES],
                                      n->src[ATTEND_POSITIONS],
                                      n->src[ATTEND_CELLS],
                                      n->src[ATTEND_FACTORS],
                                      n->src[ATTEND_Q_NORM],
                                      n->src[ATTEND_K_NORM],
                                      s.attention->out,
                                      s.glu ? s.glu->out : NULL,
                                      s.quantize ? s.quantize->out : NULL};
    for (const struct tensor *t : vectors)
        if (t && !tensor_contiguous(t) && t != map)
            return fits_not(r, "the values of %.60s lie apart", t->name);
    if (map->nb[0] != sizeof(int32_t))
        return fits_not(r, "the map's entries lie apart");
    if (s.glu && !attend_rows_fit(n->src[ATTEND_GATE], r))
        return false;
    if (s.quantize && s.quantize->out->format != FORMAT_A8)
        return fits_not(r, "a result in %s", format_get(s.quantize->out->format)->name);
    const struct tensor *result = s.glu ? s.glu->out : s.attention->out;
    for (int i = 0; i < n->n_also; i++)
        if (!s.quantize || n->also[i] != result)
            return fits_not(r, "%.60s is read by others", n->also[i]->name);
    return true;
}

/* The same as rope.cu's table, as a function. */
static struct attend_angles attend_angles_of(const struct node *rope, const struct tensor *factors)
{
    const struct rope_params *of = node_params(rope, struct rope_params);
    struct attend_angles a = {};
    double magnitude = (double)of->attn_factor, base = (double)of->base;
    a.ratio = -2.0 / of->n_dims * log2(base);
    a.scale = (double)of->freq_scale;
    a.extension = (double)of->ext_factor;
    a.span = 1;
    if (of->ext_factor != 0) {
        double turn = 6.28318530717958647693,
               low = of->n_dims * log(of->n_ctx_orig / ((double)of->beta_fast * turn)) / (2 * log(base)),
               high = of->n_dims * log(of->n_ctx_orig / ((double)of->beta_slow * turn)) / (2 * log(base));
        a.low = fmax(0, floor(low));
        a.span = fmax(0.001, fmin(of->n_dims - 1, ceil(high)) - a.low);
        magnitude *= 1 + 0.1 * log(1 / (double)of->freq_scale);
    }
    a.magnitude = (float)magnitude;
    a.factors = factors ? (const float *)factors->data : NULL;
    a.pairs = of->n_dims / 2;
    a.neighbours = of->mode == ROPE_NORM;
    return a;
}

static struct attend_rows attend_rows_of(const struct tensor *t, const struct tensor *weight, const struct node *norm)
{
    struct attend_rows s = {};
    if (t) {
        s.rows = (const char *)t->data;
        s.head = (int64_t)t->nb[1];
    }
    if (norm) {
        s.norm = (const float *)weight->data;
        s.eps = node_params(norm, struct rms_norm_params)->eps;
    }
    return s;
}

struct attend_task attend_task_of(const struct node *n)
{
    struct attend_parts s = attend_parts_of(n);
    const struct tensor *k = n->src[ATTEND_K_CACHE], *v = n->src[ATTEND_V_CACHE], *map = n->src[ATTEND_MAP],
                        *result = s.glu ? s.glu->out : s.attention->out;
    const struct attention_params *of = node_params(s.attention, struct attention_params);
    struct attend_task p = {};
    p.q = attend_rows_of(n->src[ATTEND_Q], n->src[ATTEND_Q_NORM], s.q_norm);
    p.k = attend_rows_of(n->src[ATTEND_K], n->src[ATTEND_K_NORM], s.k_norm);
    p.v = attend_rows_of(n->src[ATTEND_V], NULL, NULL);
    p.gate = attend_rows_of(s.glu ? n->src[ATTEND_GATE] : NULL, NULL, NULL);
    p.kind = s.glu ? node_params(s.glu, struct glu_params)->kind : 0;
    p.k_cache = (char *)k->data;
    p.v_cache = (char *)v->data;
    p.k_cell = (int64_t)k->nb[1];
    p.k_head = (int64_t)k->nb[2];
    p.v_cell = (int64_t)v->nb[1];
    p.v_head = (int64_t)v->nb[2];
    p.n_cells = (int)k->ne[1];
    p.format = (int)k->format;
    p.positions = (const int32_t *)n->src[ATTEND_POSITIONS]->data;
    p.cells = (const int32_t *)n->src[ATTEND_CELLS]->data;
    p.sequences = (const int32_t *)n->src[ATTEND_SEQUENCES]->data;
    p.map = (const int32_t *)map->data;
    p.map_sequence = (int64_t)(map->nb[1] / sizeof(int32_t));
    p.n_ctx = (int)map->ne[0];
    p.n_seq = (int)map->ne[1];
    p.group = (int)(n->src[ATTEND_Q]->ne[1] / k->ne[2]);
    p.parts = (p.group + SPLIT_HEADS - 1) / SPLIT_HEADS;
    p.scale = of->scale;
    p.softcap = of->softcap;
    p.window = of->window;
    p.temperature = of->temperature;
    p.temperature_period = of->temperature_period;
    p.y = node_leaves(n, result) ? (float *)result->data : NULL;
    p.quantized = s.quantize ? (struct block_a8 *)s.quantize->out->data : NULL;
    p.angles = attend_angles_of(s.q, n->src[ATTEND_FACTORS]);
    return p;
}

template <int D> static int attend_launch(const struct exec *x, const struct attend_task &p, int64_t kv_heads)
{
    dim3 grid((unsigned)(kv_heads * p.parts * ATTEND_BLOCKS));
    size_t bytes = sizeof(struct attend_memory<D>);
    if (p.format == FORMAT_F16)
        return cuda_launch_cluster(x, attention_step<D, halves<kind_f16>>, grid, dim3(SPLIT_THREADS), ATTEND_BLOCKS, bytes, p);
    if (p.format == FORMAT_BF16)
        return cuda_launch_cluster(x, attention_step<D, halves<kind_bf16>>, grid, dim3(SPLIT_THREADS), ATTEND_BLOCKS, bytes, p);
    return cuda_launch_cluster(x, attention_step<D, blocks_q8_0>, grid, dim3(SPLIT_THREADS), ATTEND_BLOCKS, bytes, p);
}

static int attend_run(const struct exec *x, const struct node *n)
{
    struct attend_task p = attend_task_of(n);
    const struct tensor *k = n->src[ATTEND_K_CACHE];
    switch (k->ne[0]) {
    case 64:
        return attend_launch<64>(x, p, k->ne[2]);
    case 128:
        return attend_launch<128>(x, p, k->ne[2]);
    default:
        return attend_launch<256>(x, p, k->ne[2]);
    }
}

CUDA_KERNEL(rope_kv_attention_step) = {
    .op = OP_ROPE_KV_ATTENTION, .variant = "step", .needs = CUDA_SM90, .fits = attend_fits, .run = attend_run};
CUDA_KERNEL(rope_kv_attention_quantize_step) = {
    .op = OP_ROPE_KV_ATTENTION_QUANTIZE, .variant = "step", .needs = CUDA_SM90, .fits = attend_fits, .run = attend_run};
