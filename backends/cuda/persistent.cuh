/* persistent.cuh: a run of decode nodes in one kernel: every multiprocessor has one block, and all blocks go through the phases of a
 * table together (persistent.h).
 *
 * Weights depend on nothing that runs. So one warp of each block asks for that block's rows of all phases, in order, through a ring
 * of slots in shared memory, and never waits for other blocks: while they meet, and while an activation is made ready, the
 * memory works on what comes next. The other warps take the chunks in turn, warp w every sixteenth: a slot belongs to one
 * warp, so a landing's parity says which lap it is. Sums are made in the order of matvec.cuh without splits and of norm.cu, and
 * have their bits.
 *
 * Blocks meet at one counter in device memory: a release by each, an acquire by one thread of each. Before a block waits there it asks for what
 * the next phase reads and no phase writes: its description, the norm's weight, the keys and values of earlier steps.
 *
 * Nothing here waits for ever: who finds that a wait took longer than the limit says so, for the host and its block, and from then on no
 * wait of the block is one: it goes through the phases without waiting, so that the others come to an end too.
 *
 * Blocks that norm and quantise for themselves repeat the work of one block on all of them: it takes less time than to meet
 * once more. */
#ifndef BACKENDS_CUDA_PERSISTENT_CUH
#define BACKENDS_CUDA_PERSISTENT_CUH

#include "backends/cuda/attention_step.cuh"
#include "backends/cuda/persistent.h"
#include "backends/cuda/persistent_ptx.cuh"
#include "backends/cuda/stream.cuh"

/* ---- waiting */

/* After some tries in vain, since `started` (0: this is the first time that it is asked). 0: it takes too long, which the host
 * and the block are told; else since when. */
__device__ static inline uint64_t persist_late(volatile int *quit, uint32_t *failed, uint64_t limit, uint64_t started, int phase)
{
    const uint64_t now = persist_clock();
    if (!started)
        return now;
    if (now - started < limit)
        return started;
    *quit = 1;
    persist_tell(failed, 1 + (uint32_t)phase);
    return 0;
}

/* A block's waits: once one of them took too long, none is. */
struct persist_watch {
    volatile int *quit; /* shared memory */
    uint32_t *failed;
    uint64_t limit;

    /* For a whole warp: false for all of it where it is for one. */
    __device__ __forceinline__ bool landed(struct landing *l, uint32_t parity, int phase) const
    {
        bool done = landing_try(l, parity);
        if (!done) {
            uint64_t started = 0;
            for (uint32_t tries = 1; !(done = landing_try(l, parity)) && !*quit; tries++)
                if (tries % 256 == 0 && !(started = persist_late(quit, failed, limit, started, phase)))
                    break;
        }
        return !__any_sync(0xffffffffu, !done);
    }

    /* For a thread: until the counter, which only grows, has come to `target`. */
    __device__ __forceinline__ void met(const uint32_t *counter, uint32_t target, int phase) const
    {
        uint64_t started = 0;
        for (uint32_t tries = 1; (int32_t)(load_acquire(counter) - target) < 0; tries++)
            if (tries % 64 == 0 && (*quit || (tries % 1024 == 0 && !(started = persist_late(quit, failed, limit, started, phase)))))
                return;
    }
};

/* ---- shared memory */

struct persist_shared {
    unsigned char *ring;
    struct landing *full, *empty;
    struct persist_phase *phases; /* two for those that compute, two for the one that asks */
    float *glu, *room;
    double *room_double;
    volatile int *quit;
    float *cosines, *sines;
    unsigned char *work; /* the activation; or what attention needs */

    __device__ __forceinline__ persist_shared(unsigned char *shared, const struct persist_room &r)
    {
        ring = shared;
        full = (struct landing *)(shared + r.landings);
        empty = full + 64;
        phases = (struct persist_phase *)(shared + r.phases);
        glu = (float *)(shared + r.glu);
        room_double = (double *)(shared + r.sums);
        room = (float *)(room_double + 32);
        quit = (volatile int *)(room + 32);
        cosines = (float *)(shared + r.angles);
        sines = cosines + PERSIST_HEAD / 2;
        work = shared + r.work;
    }
};

/* ---- which rows a block has */

struct persist_rows {
    uint32_t first, last, before;

    __device__ __forceinline__ explicit persist_rows(const struct persist_phase &p)
    {
        first = p.units * blockIdx.x / gridDim.x * p.unit;
        last = p.units * (blockIdx.x + 1) / gridDim.x * p.unit;
        before = 0;
    }

    /* Of the next matrix: rows *low to *high - 1, none where they are equal. */
    __device__ __forceinline__ void next(const struct persist_phase &p, const struct persist_matrix &m, uint32_t *low, uint32_t *high)
    {
        if (p.pair) {
            *low = first;
            *high = last;
            return;
        }
        const uint32_t end = before + m.rows;
        *low = min(max(first, before), end) - before;
        *high = min(max(last, before), end) - before;
        before = end;
    }
};

/* A phase's description, from table to shared memory, while the thread goes on (copies_wait). */
__device__ static inline void persist_bring(struct persist_phase *to, const struct persist_phase *from, int thread, int threads)
{
    static_assert(sizeof(struct persist_phase) % 16 == 0, "whole copies");
    for (int i = thread; i < (int)(sizeof(struct persist_phase) / 16); i += threads)
        copy_16_async((char *)to + 16 * i, (const char *)from + 16 * i, from);
    copies_commit();
}

/* ---- the warp that asks for weights */

struct persist_asked {
    uint32_t slot, lap, n; /* the next chunk's; how many so far */
};

__device__ __forceinline__ bool persist_ask(const struct persist_args &a, const persist_shared &s, const persist_watch &w,
                                            persist_asked &k, const uint8_t *from, uint32_t offset, uint32_t bytes, uint32_t all, int phase)
{
    if (k.lap && !w.landed(&s.empty[k.slot], (k.lap - 1) & 1, phase))
        return false;
    if (a.in_flight && k.n >= a.in_flight) {
        const bool wraps = k.slot < a.in_flight;
        if (!w.landed(&s.full[wraps ? k.slot + a.room.slots - a.in_flight : k.slot - a.in_flight], (k.lap - wraps) & 1, phase))
            return false;
    }
    struct landing *l = &s.full[k.slot];
    if ((threadIdx.x & 31) == 0)
        landing_expect(l, all);
    __syncwarp();
    if (bytes)
        landing_fetch(l, s.ring + k.slot * a.room.slot_bytes + offset, from, bytes);
    k.n++;
    if (++k.slot == a.room.slots) {
        k.slot = 0;
        k.lap++;
    }
    return true;
}

/* A lane has a stream. */
__device__ static void persist_ask_all(const struct persist_args &a, const persist_shared &s, const persist_watch &w)
{
    const int lane = threadIdx.x & 31;
    struct persist_phase *own = s.phases + 2;
    persist_asked k = {0, 0, 0};
    bool goes_on = true;
    persist_bring(own, a.phases, lane, 32);
    for (int q = 0; q < a.n_phases && goes_on; q++) {
        copies_wait<0>();
        __syncwarp();
        const struct persist_phase &p = own[q & 1];
        if (q + 1 < a.n_phases)
            persist_bring(own + ((q + 1) & 1), a.phases + q + 1, lane, 32);
        persist_rows rows(p);
        for (int m = 0; m < p.n_matrices && goes_on; m++) {
            const struct persist_matrix &x = p.matrix[m];
            const uint32_t chunk = x.chunk, row = lane < 4 ? x.row_bytes[lane] : 0;
            uint32_t low, high, offset = 0, all = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                offset += i < lane ? chunk * x.row_bytes[i] : 0;
                all += x.row_bytes[i];
            }
            rows.next(p, x, &low, &high);
            const uint8_t *from = lane < 4 ? x.stream[lane] + (size_t)low * row : NULL;
            for (; low < high && goes_on; low += chunk) {
                const uint32_t n = min(chunk, high - low);
                goes_on = persist_ask(a, s, w, k, from, offset, n * row, n * all, q);
                from += n * row;
            }
        }
    }
    /* Nothing may be on its way to a block that is gone. */
    for (uint32_t left = min(k.n, a.room.slots); left; left--) {
        const bool wraps = k.slot == 0;
        k.slot = wraps ? a.room.slots - 1 : k.slot - 1;
        k.lap -= wraps;
        for (uint32_t tries = 0; tries < 1 << 16 && !landing_try(&s.full[k.slot], k.lap & 1); tries++)
            ;
    }
}

/* ---- the activation */

struct persist_activation {
    unsigned char *blocks; /* as act_a8 has them */

    __device__ __forceinline__ persist_activation(unsigned char *work) : blocks(work)
    {
    }

    /* Values 4 c to 4 c + 3 of the row; all lanes of the warp come here, those behind the row with `has` false. */
    __device__ __forceinline__ void quantise(uint32_t c, float4 v, bool has)
    {
        const uint32_t g = c / 8, word = c & 7;
        struct a8_part p = a8_part_of(v);
        if (!has)
            return;
        a8_put(blocks, g, word, p);
    }

    __device__ __forceinline__ void copy(const uint8_t *from, uint32_t groups)
    {
        constexpr int BATCH = 4;
        const uint32_t all = groups * 5;
        for (uint32_t first = threadIdx.x; first < all; first += BATCH * PERSIST_WORKERS) {
            uint2 v[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                v[j] = __ldcg((const uint2 *)from + min(first + j * PERSIST_WORKERS, all - 1));
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const uint32_t i = first + j * PERSIST_WORKERS;
                if (i < all)
                    ((uint2 *)blocks)[i] = v[j];
            }
        }
    }
};

enum { PERSIST_STEPS = (PERSIST_NORM / 4 + PERSIST_WORKERS - 1) / PERSIST_WORKERS };

template <class T> __device__ __forceinline__ T persist_sum(T x, T *room)
{
    x = warp_sum(x);
    if ((threadIdx.x & 31) == 0)
        room[threadIdx.x >> 5] = x;
    persist_sync();
    return warp_sum((threadIdx.x & 31) < PERSIST_WARPS ? room[threadIdx.x & 31] : (T)0);
}

/* An f32 row under a norm; w: the norm's weight, asked for before. */
__device__ static __forceinline__ void persist_norm(const struct persist_phase &p, const float4 (&w)[PERSIST_STEPS], const persist_shared &s)
{
    const uint32_t chunks = p.groups * 8;
    persist_activation to(s.work);
    float4 x[PERSIST_STEPS];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < PERSIST_STEPS; j++) {
        const uint32_t c = threadIdx.x + j * PERSIST_WORKERS;
        x[j] = c < chunks ? __ldcg((const float4 *)p.x + c) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < PERSIST_STEPS; j++)
        squares += (x[j].x * x[j].x + x[j].y * x[j].y) + (x[j].z * x[j].z + x[j].w * x[j].w);
    squares = persist_sum(squares, s.room);
    float scale = 1 / sqrtf(fmaf(squares, p.share, p.eps));
    if (!(squares > 1e-30f && squares < 1e38f)) { /* the same for all threads */
        double again = 0;
#pragma unroll
        for (int j = 0; j < PERSIST_STEPS; j++)
            again += ((double)x[j].x * x[j].x + (double)x[j].y * x[j].y) + ((double)x[j].z * x[j].z + (double)x[j].w * x[j].w);
        scale = (float)(1 / sqrt(persist_sum(again, s.room_double) * (double)p.share + (double)p.eps));
    }
#pragma unroll
    for (int j = 0; j < PERSIST_STEPS; j++) {
        const uint32_t c = threadIdx.x + j * PERSIST_WORKERS;
        if (j * PERSIST_WORKERS >= chunks)
            break;
        float4 y = make_float4(x[j].x * scale * w[j].x, x[j].y * scale * w[j].y, x[j].z * scale * w[j].z, x[j].w * scale * w[j].w);
        to.quantise(c, y, c < chunks);
    }
}

/* What `splits` blocks have of each head, added in their order. */
__device__ static __forceinline__ void persist_parts(const struct persist_phase &p, int splits, const persist_shared &s)
{
    const uint32_t chunks = p.groups * 8, columns = p.groups * 32;
    persist_activation to(s.work);
    for (uint32_t first = 0; first < chunks; first += PERSIST_WORKERS) {
        const uint32_t c = first + threadIdx.x, at = min(c, chunks - 1), head = at * 4 / (uint32_t)p.width;
        float2 of[PERSIST_SPLITS];
#pragma unroll
        for (int i = 0; i < PERSIST_SPLITS; i++)
            of[i] = i < splits ? __ldcg((const float2 *)p.stats + i * p.heads + head) : make_float2(-INFINITY, 0);
        float most = -INFINITY, total = 0;
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < PERSIST_SPLITS; i++)
            most = fmaxf(most, of[i].x);
#pragma unroll
        for (int i = 0; i < PERSIST_SPLITS; i++) {
            if (i >= splits)
                break;
            const float4 v = __ldcg((const float4 *)(p.values + (size_t)i * columns) + at);
            const float weight = attention_weight(of[i].x, most);
            total = fmaf(weight, of[i].y, total);
            y = make_float4(fmaf(weight, v.x, y.x), fmaf(weight, v.y, y.y), fmaf(weight, v.z, y.z), fmaf(weight, v.w, y.w));
        }
        if (total == 0)
            y = make_float4(0, 0, 0, 0);
        else
            y = make_float4(y.x / total, y.y / total, y.z / total, y.w / total);
        to.quantise(c, y, c < chunks);
    }
}

/* ---- products */

/* Lane i of the first R has the sum of row i. */
template <class F, int R> __device__ __forceinline__ float persist_sums(const s32_tile &t, uint32_t groups, const act_a8<F> &x)
{
    float acc[R][1];
#pragma unroll
    for (int r = 0; r < R; r++)
        acc[r][0] = 0;
    stream_rows<F, 1, R>(t, groups, 0, groups, x, acc);
    const float sum = warp_sums<R>(acc[0]);
    return R == 1 ? sum : __shfl_sync(0xffffffffu, sum, (threadIdx.x & 31) * (32 / R) & 31);
}

template <class F> __device__ __forceinline__ float persist_multiply(const s32_tile &t, uint32_t n, uint32_t groups, const persist_activation &x)
{
    act_a8<F> of;
    of.blocks = x.blocks;
    return n > 2 ? persist_sums<F, 4>(t, groups, of) : n == 2 ? persist_sums<F, 2>(t, groups, of) : persist_sums<F, 1>(t, groups, of);
}

/* Chunks are dealt out by differences modulo the warps, of numbers without sign. */
static_assert((PERSIST_WARPS & (PERSIST_WARPS - 1)) == 0, "a power of two");

/* A warp's way along its slots. */
struct persist_taken {
    uint32_t slot, lap;
    uint32_t before; /* chunks that came before the matrix at hand, modulo the warps */
};

__device__ static __forceinline__ void persist_products(const struct persist_phase &p, const struct persist_args &a, const persist_shared &s,
                                                        const persist_watch &w, persist_taken &k, int phase)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const persist_activation x(s.work);
    persist_rows rows(p);
    for (int i = 0; i < p.n_matrices; i++) {
        const struct persist_matrix &m = p.matrix[i];
        const uint32_t chunk = m.chunk;
        uint32_t low, high;
        rows.next(p, m, &low, &high);
        const uint32_t n_chunks = (high - low + chunk - 1) / chunk;
        uint32_t at[4], offset = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            at[j] = offset;
            offset += chunk * m.row_bytes[j];
        }
        for (uint32_t c = (warp - k.before) % PERSIST_WARPS; c < n_chunks; c += PERSIST_WARPS) {
            const uint32_t row = low + c * chunk, n = min(chunk, high - row);
            const float add = m.add && lane < n ? __ldcg(m.add + row + lane) : 0;
            const unsigned char *slot = s.ring + k.slot * a.room.slot_bytes;
            s32_tile t;
#pragma unroll
            for (int j = 0; j < 4; j++)
                t.stream[j] = slot + at[j];
            float v = 0;
            const bool here = w.landed(&s.full[k.slot], k.lap & 1, phase);
            switch (here ? m.format : -1) {
            case FORMAT_Q4_0:
                v = persist_multiply<s32_q4_0>(t, n, p.groups, x);
                break;
            case FORMAT_Q4_K:
                v = persist_multiply<s32_q4_K>(t, n, p.groups, x);
                break;
            case FORMAT_Q6_K:
                v = persist_multiply<s32_q6_K>(t, n, p.groups, x);
                break;
            default:
                break;
            }
            __syncwarp();
            if (lane == 0)
                landing_arrive(&s.empty[k.slot]);
            k.slot += PERSIST_WARPS;
            if (k.slot >= a.room.slots) {
                k.slot -= a.room.slots;
                k.lap++;
            }
            if (lane >= n)
                continue;
            if (p.pair)
                s.glu[i * PERSIST_PAIR + (row - low) + lane] = v;
            else
                m.out[row + lane] = m.add ? v + add : v;
        }
        k.before = (k.before + n_chunks) % PERSIST_WARPS;
    }
    if (!p.pair)
        return;
    persist_sync();
    for (uint32_t u = warp; u < (rows.last - rows.first) / 32; u += PERSIST_WARPS) {
        const float gate = s.glu[u * 32 + lane], up = s.glu[PERSIST_PAIR + u * 32 + lane];
        a8_store_1((struct block_a8 *)p.quantized + rows.first / 32 + u, unary_value(p.pair - 1, gate) * up);
    }
}

/* ---- attention */

template <int D> struct persist_attention_memory {
    float q[SPLIT_HEADS][D + 4], row[2][D + 4];
    float stats[PERSIST_WARPS][SPLIT_HEADS][2];
    float values[1]; /* [warp][head of the block][D] */
};

/* A block's share of a phase of attention; what of it needs no phase before is done as it is made. */
template <int D, class C> struct persist_attention {
    const struct attend_task &p;
    struct attention_span span;
    struct split_cache cache;
    struct split_keys<D, C> keys;
    struct split_values<D, C> values;
    int splits, tiles, tile, cell, kv_head, head, n_heads;
    bool mine, writes;

    __device__ __forceinline__ persist_attention(const struct persist_phase &f, const persist_shared &s) : p(f.attend)
    {
        span = attend_span(p);
        tiles = (span.high - span.low + SPLIT_TILE) / SPLIT_TILE;
        splits = persist_splits(tiles, f.most_splits);
        const int of = blockIdx.x / splits, split = blockIdx.x % splits, part = of % p.parts;
        mine = of < (int)f.units;
        kv_head = of / p.parts;
        head = kv_head * p.group + part * f.block_heads;
        n_heads = min(f.block_heads, p.group - part * f.block_heads);
        writes = split == (tiles > 0 ? (tiles - 1) % splits : 0);
        tile = split + splits * (int)(threadIdx.x / WARP);
        cache = {p.k_cache + kv_head * p.k_head, p.v_cache + kv_head * p.v_head, p.k_cell, p.v_cell, p.softcap};
        if (!f.same_angles) /* by all blocks: which of them attend may change */
            attend_angles_make(p, s.cosines, s.sines, PERSIST_WORKERS);
        cell = -1;
        if (!mine)
            return;
        cell = attend_cell(p, span, tile);
        keys.load(cache, cell);
        values.find(cache, cell);
        if (D <= 64)
            values.load();
        else
            attend_ahead<D>(p, kv_head, cell);
    }

    /* The warps' results to shared memory. */
    __device__ __forceinline__ void gather(const struct split_result<D, C> &o, persist_attention_memory<D> &m) const
    {
        constexpr int N = split_result<D, C>::N, CHUNKS = split_result<D, C>::CHUNKS;
        const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float sum = split_sum(o.sum[h]);
            if (g == 0 && 2 * c + h < n_heads)
                *(float2 *)m.stats[warp][2 * c + h] = make_float2(o.max[h], sum);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (2 * c + h >= n_heads)
                continue;
            float *to = m.values + (warp * n_heads + 2 * c + h) * D;
#pragma unroll
            for (int j = 0; j < CHUNKS; j++)
#pragma unroll
                for (int i = 0; i < N / 2; i += 2)
                    *(float4 *)(to + (j * 8 + g) * N + 2 * i) =
                        make_float4(o.values[j][i][h], o.values[j][i][h + 2], o.values[j][i + 1][h], o.values[j][i + 1][h + 2]);
        }
    }

    /* 32 columns of a head a warp. */
    __device__ __forceinline__ void merge(const struct persist_phase &f, const persist_attention_memory<D> &m) const
    {
        const int lane = threadIdx.x % WARP, split = blockIdx.x % splits, results = min((int)PERSIST_WARPS, (tiles - split + splits - 1) / splits);
        for (int unit = threadIdx.x / WARP; unit < n_heads * (D / 32); unit += PERSIST_WARPS) {
            const int h = unit / (D / 32), column = unit % (D / 32) * 32 + lane;
            const float2 its = lane < results ? *(const float2 *)m.stats[lane][h] : make_float2(-INFINITY, 0);
            const float most = warp_max(its.x), weight = attention_weight(its.x, most), total = warp_sum(weight * its.y);
            float y[2] = {0, 0};
#pragma unroll 4
            for (int b = 0; b < results; b++)
                y[b % 2] = fmaf(__shfl_sync(0xffffffffu, weight, b), m.values[(b * n_heads + h) * D + column], y[b % 2]);
            f.values[((size_t)split * f.heads + head + h) * D + column] = y[0] + y[1];
            if (column == 0)
                *(float2 *)(f.stats + 2 * (split * f.heads + head + h)) = make_float2(most, total);
        }
    }

    __device__ __forceinline__ void work(const struct persist_phase &f, const persist_shared &s)
    {
        persist_attention_memory<D> &m = *(persist_attention_memory<D> *)s.work;
        const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        if (!mine) /* the whole block */
            return;
        for (int job = warp; job < n_heads + 2 * writes; job += PERSIST_WARPS) {
            if (job < 2 * writes) {
                attend_write<D>(p, s.cosines, s.sines, m.row[job], kv_head, job == 1);
            } else {
                const int h = job - 2 * writes;
                attend_load<D>(p.q, head + h, m.q[h]);
                attend_turn(p.angles, s.cosines, s.sines, m.q[h]);
            }
        }
        persist_sync();
        struct split_result<D, C> o = {};
        o.max[0] = o.max[1] = -INFINITY;
        if (tile < tiles) {
            struct split_queries<D, C> q;
            const float periods = p.temperature != 0 && span.high > 0 ? (float)(span.high / p.temperature_period) : 0;
            if (tile == tiles - 1) { /* now with the new one */
                keys.load(cache, cell);
                if (D <= 64)
                    values.load();
            }
            q.load(lane / 4 < n_heads ? (const char *)m.q[lane / 4] : NULL, sizeof(float), p.scale * (1 + p.temperature * logf(1 + periods)));
            while (tile < tiles) {
                float score[4], weight[4], rescale[2];
                tile += splits * PERSIST_WARPS;
                cell = attend_cell(p, span, tile);
                keys.scores(q, p.softcap, score);
                if (D <= 64)
                    keys.load(cache, cell); /* the next tile's, while this one's values are added */
                else
                    values.load(); /* there are no registers for more */
                split_weigh<D, C>(o, score, weight, rescale);
                values.add(o, weight, rescale);
                values.find(cache, cell);
                if (D <= 64)
                    values.load();
                else
                    keys.load(cache, cell);
            }
        }
        gather(o, m);
        persist_sync();
        merge(f, m);
    }
};

/* ---- the kernel */

template <bool TIMES> __device__ __forceinline__ void persist_time(const struct persist_args &a, int phase, int which)
{
    if constexpr (TIMES)
        if (threadIdx.x == 0)
            a.times[((size_t)phase * gridDim.x + blockIdx.x) * 4 + which] = persist_clock();
}

/* All phases before this one are done, by all blocks. */
__device__ __forceinline__ void persist_wait(const struct persist_args &a, const persist_watch &w, int phase)
{
    if (threadIdx.x == 0 && phase)
        w.met(a.counter, (uint32_t)phase * gridDim.x, phase);
    persist_sync();
}

template <int D, class C, bool TIMES>
__device__ static void persist_work(const struct persist_args &a, const persist_shared &s, const persist_watch &w)
{
    persist_taken k = {threadIdx.x >> 5, 0, 0};
    int splits = 1;
    for (int q = 0; q < a.n_phases; q++) {
        const struct persist_phase &p = s.phases[q & 1];
        if (p.from == PERSIST_FROM_NONE) {
            persist_attention<D, C> attention(p, s);
            splits = attention.splits;
            persist_wait(a, w, q);
            persist_time<TIMES>(a, q, 0);
            if (q + 1 < a.n_phases)
                persist_bring(s.phases + ((q + 1) & 1), a.phases + q + 1, threadIdx.x, PERSIST_WORKERS);
            persist_time<TIMES>(a, q, 1);
            attention.work(p, s);
        } else {
            float4 norm[PERSIST_STEPS];
#pragma unroll
            for (int j = 0; j < PERSIST_STEPS; j++) {
                const uint32_t c = threadIdx.x + j * PERSIST_WORKERS;
                norm[j] = p.from == PERSIST_FROM_NORM && c < p.groups * 8 ? __ldg((const float4 *)p.norm + c) : make_float4(0, 0, 0, 0);
            }
            persist_wait(a, w, q);
            persist_time<TIMES>(a, q, 0);
            if (q + 1 < a.n_phases)
                persist_bring(s.phases + ((q + 1) & 1), a.phases + q + 1, threadIdx.x, PERSIST_WORKERS);
            if (p.from == PERSIST_FROM_NORM)
                persist_norm(p, norm, s);
            else if (p.from == PERSIST_FROM_A8)
                persist_activation(s.work).copy((const uint8_t *)p.x, p.groups);
            else
                persist_parts(p, splits, s);
            persist_sync();
            persist_time<TIMES>(a, q, 1);
            persist_products(p, a, s, w, k, q);
        }
        copies_wait<0>();
        persist_sync();
        persist_time<TIMES>(a, q, 2);
        if (threadIdx.x == 0 && q + 1 < a.n_phases)
            add_release(a.counter);
    }
}

/* Grid: a block a multiprocessor, all at once (a cooperative launch). */
template <int D, class C, bool TIMES>
__global__ void __launch_bounds__(PERSIST_THREADS, 1) persistent(const __grid_constant__ struct persist_args a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const persist_shared s(shared, a.room);
    const persist_watch w = {s.quit, a.failed, a.limit_ns};
    if (threadIdx.x == 0) {
        *s.quit = 0;
        for (uint32_t i = 0; i < a.room.slots; i++) {
            landing_init(&s.full[i], 1);
            landing_init(&s.empty[i], 1);
        }
        landings_ready();
    }
    if (threadIdx.x < PERSIST_WORKERS) {
        persist_bring(s.phases, a.phases, threadIdx.x, PERSIST_WORKERS);
        copies_wait<0>();
    }
    __syncthreads();
    if (threadIdx.x >= PERSIST_WORKERS) {
        persist_ask_all(a, s, w);
        return;
    }
    persist_work<D, C, TIMES>(a, s, w);
    /* The last block of all to come here leaves the counter as it was. */
    if (threadIdx.x == 0 && add_acquire(a.counter) == (uint32_t)a.n_phases * gridDim.x - 1)
        *a.counter = 0;
}

#endif
