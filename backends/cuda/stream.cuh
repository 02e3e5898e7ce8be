/* stream.cuh: decode: up to four weight matrices times one to eight tokens of one activation (activation.cuh), in one launch,
 * with the weights brought to shared memory by the copy engine.
 *
 * Weights depend on nothing that runs. So a block asks for as many as its shared memory holds at once, before it waits for the
 * kernel ahead of it; and since it lets the next kernel begin at once too, and leaves half of a multiprocessor free, the next
 * product's weights are on their way while this one's are multiplied. The memory is busy through the norms and the ends of
 * launches, which between products of some microseconds are as long as the products.
 *
 * A block has a range of rows, which are cut into pieces where there are too few for its warps or a row is too long for a slot. A
 * warp has a range of pieces and a ring of slots of its own, each with one landing (ptx.cuh): a piece or some, of each stream of
 * the layout, as they lie in device memory. It multiplies a slot, a lane a group of 32 values, and asks for what comes `slots`
 * later in its place. No warp waits for another but at the activation and at the end, where sums of pieces meet.
 *
 * Off without HONE_CUDA_STREAM: loads into registers (matvec.cuh) are faster where products are large, by figures in
 * docs/cuda.md. 8 warps a block multiply slower than weights come, and two blocks of a product may crowd on one multiprocessor. */
#ifndef BACKENDS_CUDA_STREAM_CUH
#define BACKENDS_CUDA_STREAM_CUH

#include "backends/cuda/matvec.cuh"
#include "backends/cuda/ptx.cuh"

struct stream_shape {
    uint32_t unit;   /* rows that one block has together; 32: a block of A8 */
    uint32_t split;  /* pieces of a row, each done as a row of its own; the sums meet at the end */
    uint32_t groups; /* of a piece */
    uint32_t rows;   /* pieces that lie in a slot; 1 where rows are split */
    uint32_t slots;  /* of a warp */
    uint32_t slot_bytes;
    uint32_t staged, landings, sums, room, row; /* where they lie in shared memory; the slots are first. row: an f32 activation */
    bool pair;                             /* gate and up: a block has its rows of both */
};

/* ---- the streams of a format */

template <class F> struct stream_of {
    static constexpr int n = (F::bytes[0] > 0) + (F::bytes[1] > 0) + (F::bytes[2] > 0) + (F::bytes[3] > 0);
    static constexpr uint32_t RATE_0 = F::bytes[0] * 128 / F::block, RATE_1 = F::bytes[1] * 128 / F::block,
                              RATE_2 = F::bytes[2] * 128 / F::block, RATE_3 = F::bytes[3] * 128 / F::block;
    /* Quarters of a byte that a group has in a stream. */
    static HD uint32_t rate(int i)
    {
        return i == 0 ? RATE_0 : i == 1 ? RATE_1 : i == 2 ? RATE_2 : RATE_3;
    }
    /* Where a stretch of so many groups has stream i in a tile: copies begin and end at multiples of 16 bytes. */
    static HD uint32_t at(int i, uint32_t groups)
    {
        uint32_t sum = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int j = 0; j < i; j++)
            sum += ((rate(j) * groups + 3) / 4 + 15) / 16 * 16 + (rate(j) % 64 ? 16 : 0);
        return sum;
    }
};

/* A warp's way through its pieces, which it goes twice: as it asks for them and, `slots` slots later, as it multiplies them. */
struct stream_cursor {
    uint32_t at, end; /* the next piece, and the one behind the last, as the block counts them */
    uint32_t stop;    /* where its matrix ends */
    uint32_t in;      /* the next piece's number in its matrix */
    int matrix;
};

__device__ __forceinline__ void stream_seat(stream_cursor &c, const struct product_args &a, const struct stream_shape &s,
                                            uint32_t first, uint32_t rows)
{
    if (s.pair) {
        c.matrix = c.at >= rows * s.split;
        c.in = c.at + (first - (c.matrix ? rows : 0)) * s.split;
        c.stop = min(c.end, (c.matrix ? 2 : 1) * rows * s.split);
        return;
    }
    uint32_t left = a.matrix[0].rows * s.split;
    c.matrix = 0;
    c.in = c.at + first * s.split;
    while (c.matrix + 1 < a.n_matrices && c.in >= left) {
        c.in -= left;
        left = a.matrix[++c.matrix].rows * s.split;
    }
    c.stop = min(c.end, c.at + left - c.in);
}

/* A lane copies one stream; lanes beyond those have nothing to do. */
template <class F> struct stream_ring {
    static constexpr int N = stream_of<F>::n;
    unsigned char *slots;
    struct landing *landings;
    const uint8_t *from; /* of this lane's stream: where the next piece begins */
    uint32_t bytes;      /* of a piece */
    uint32_t offset;     /* in a slot */

    __device__ __forceinline__ void seat(const struct product_args &a, const stream_cursor &c)
    {
        const int lane = threadIdx.x & 31;
        const s32_matrix &w = a.matrix[c.matrix].weight;
        from = w.stream[0];
#pragma unroll
        for (int i = 1; i < N; i++)
            from = i == lane ? w.stream[i] : from;
        from += (uint64_t)c.in * bytes;
    }

    /* The next pieces into slot `to`: whole lines of 16 bytes. */
    __device__ __forceinline__ void fetch(stream_cursor &c, const struct product_args &a, const struct stream_shape &s,
                                          uint32_t first, uint32_t rows, uint32_t to)
    {
        if (c.at >= c.end)
            return;
        if (c.at == c.stop) {
            stream_seat(c, a, s, first, rows);
            seat(a, c);
        }
        const uint32_t n = min(s.rows, c.stop - c.at);
        if ((threadIdx.x & 31) < N) {
            const uint32_t low = (uint32_t)(uintptr_t)from & 15;
            landing_copy(&landings[to], slots + to * s.slot_bytes + offset, from - low, (low + n * bytes + 15) & ~15u);
            from += n * bytes;
        }
        c.at += n;
        c.in += n;
    }

    /* What lies in a slot whose first piece is number `in` of its matrix. */
    __device__ __forceinline__ s32_tile tile(const struct stream_shape &s, uint32_t slot, uint32_t in) const
    {
        s32_tile t;
        const unsigned char *p = slots + slot * s.slot_bytes;
#pragma unroll
        for (int i = 0; i < 4; i++) /* only the low bits of where it begins matter, which 32 bits have */
            t.stream[i] =
                i < N ? p + stream_of<F>::at(i, s.rows * s.groups) + (in * s.groups * stream_of<F>::rate(i) / 4 & 15) : NULL;
        return t;
    }
};

/* ---- sums */

/* v[0] to v[N - 1], each summed over the warp; lane i has the sum of number i / (32 / N). N is a power of two. */
template <int N> __device__ __forceinline__ float warp_sums(float *v)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = N / 2, d = 16; n; n /= 2, d /= 2)
#pragma unroll
        for (int i = 0; i < n; i++) {
            float give = lane & d ? v[i] : v[i + n], keep = lane & d ? v[i + n] : v[i];
            v[i] = keep + __shfl_xor_sync(0xffffffffu, give, d);
        }
#pragma unroll
    for (int d = 16 / N; d; d /= 2)
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], d);
    return v[0];
}

/* R pieces of the slot times the activation from group `from` on. */
template <class F, int T, int R>
__device__ __forceinline__ void stream_rows(const s32_tile &tile, uint32_t piece, uint32_t from, uint32_t groups,
                                            const activation<F> &x, float (*acc)[T])
{
    constexpr int UNROLL = R * T >= 4 ? 1 : R * T == 2 ? 2 : 4;
    uint32_t first[R];
#pragma unroll
    for (int r = 0; r < R; r++)
        first[r] = r * piece - from;
#pragma unroll UNROLL
    for (uint32_t g = threadIdx.x & 31; g < piece; g += 32) {
        typename F::raw raw[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            raw[r] = F::load(tile, r * piece + g);
        mv_group<F, T, R>(raw, first, from + g, groups, x, acc);
    }
}

/* ---- the kernel */

/* Bytes of shared memory for the activation. */
template <class F, int T> HD size_t stream_staged(uint32_t groups)
{
    return ((size_t)T * groups * activation<F>::group_bytes + 15) / 16 * 16;
}

/* The activation, as the weights meet it; f32, quantised by each block; the same under a norm. */
enum stream_from { STREAM_PLAIN, STREAM_F32, STREAM_NORM };

/* All of a warp's pieces; sums[piece][token]. R: most pieces of a slot. */
template <class F, int T, int R>
__device__ __forceinline__ void stream_work(stream_ring<F> &ring, stream_cursor &asked, stream_cursor &c,
                                            const struct product_args &a, const struct stream_shape &s, uint32_t first,
                                            uint32_t rows, const activation<F> &x, float *sums)
{
    constexpr int N = R * T;
    const int lane = threadIdx.x & 31, own = lane / (32 / N);
    uint32_t slot = 0, lap = 0;
    while (c.at < c.end) {
        if (c.at == c.stop)
            stream_seat(c, a, s, first, rows);
        const uint32_t n = min(s.rows, c.stop - c.at), from = s.split > 1 ? (c.in & (s.split - 1)) * s.groups : 0;
        const s32_tile tile = ring.tile(s, slot, c.in);
        float acc[R][T];
#pragma unroll
        for (int i = 0; i < N; i++)
            acc[i / T][i % T] = 0;
        landing_wait(&ring.landings[slot], lap);
        if (R == 1 || n > 1)
            stream_rows<F, T, R>(tile, s.groups, from, a.groups, x, acc);
        else
            stream_rows<F, T, 1>(tile, s.groups, from, a.groups, x, acc);
        __syncwarp();
        ring.fetch(asked, a, s, first, rows, slot);
        if (++slot == s.slots) {
            slot = 0;
            lap ^= 1;
        }
        float sum = warp_sums<N>(acc[0]);
        if (lane % (32 / N) == 0 && own / T < (int)n)
            sums[c.at * T + own] = sum;
        c.at += n;
        c.in += n;
    }
}

/* The sum of row `row` of the block, of its matrix number `second` where it has pairs. */
template <int T>
__device__ __forceinline__ float stream_sum(const struct stream_shape &s, const float *sums, uint32_t row, uint32_t t)
{
    float v = sums[row * s.split * T + t];
    for (uint32_t i = 1; i < s.split; i++)
        v += sums[(row * s.split + i) * T + t];
    return v;
}

/* A block's rows, once their sums are there. */
template <int T>
__device__ __forceinline__ void stream_store(const struct product_args &a, const struct stream_shape &s, uint32_t first,
                                             uint32_t rows, const float *sums)
{
    for (uint32_t i = threadIdx.x; i < rows * T; i += blockDim.x) {
        const uint32_t row = i / T, t = i % T;
        if ((int)t >= a.tokens)
            continue;
        float v = stream_sum<T>(s, sums, row, t);
        if (s.pair) {
            v = product_store_pair(a, first + row, (int)t, v, stream_sum<T>(s, sums, rows + row, t));
            if (a.quantized) /* whole warps: rows are in units of 32 */
                a8_store_1((struct block_a8 *)a.quantized + (first + row) / 32, v);
        } else {
            uint32_t in = first + row;
            const int matrix = product_matrix(a, &in);
            product_store(a.matrix[matrix], in, (int)t, v);
        }
    }
}

template <class F, int T, int R, int FROM, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, WARPS <= 8 ? (T <= 2 ? 3 : 2) : (T <= 2 ? 2 : 1))
    matvec_stream(const __grid_constant__ struct product_args a, const __grid_constant__ struct stream_shape s)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    cuda_release();
    const uint32_t units = (a.rows + s.unit - 1) / s.unit;
    const uint32_t first = (uint32_t)((uint64_t)units * blockIdx.x / gridDim.x) * s.unit;
    const uint32_t rows = min((uint32_t)((uint64_t)units * (blockIdx.x + 1) / gridDim.x) * s.unit, a.rows) - first;
    const uint32_t pieces = rows * s.split * (s.pair ? 2 : 1);
    stream_cursor c = {pieces * warp / WARPS, pieces * (warp + 1) / WARPS, 0, 0, 0};
    c.stop = c.at; /* it has no seat yet */
    stream_cursor asked = c;
    stream_ring<F> ring;
    ring.slots = shared + warp * s.slots * s.slot_bytes;
    ring.landings = (struct landing *)(shared + s.landings) + warp * s.slots;
    ring.bytes = s.groups * stream_of<F>::rate((int)lane) / 4;
    ring.offset = stream_of<F>::at((int)lane % stream_ring<F>::N, s.rows * s.groups);
    if (lane == 0) {
        for (uint32_t i = 0; i < s.slots; i++)
            landing_init(&ring.landings[i], stream_ring<F>::N);
        landings_ready();
    }
    __syncwarp();
    for (uint32_t i = 0; i < s.slots; i++)
        ring.fetch(asked, a, s, first, rows, i);
    cuda_wait();
    activation<F> x;
    if constexpr (FROM == STREAM_F32)
        x.stage_f32((const float *)a.x, a.groups, shared + s.staged, shared + s.row);
    else if constexpr (FROM == STREAM_NORM)
        x.template stage_norm<WARPS>((const float *)a.x, a.norm, a.eps, a.groups, shared + s.staged,
                                     (float *)(shared + s.room));
    else
        x.template stage<T>(a.x, a.x_stride, a.tokens, a.groups, shared + s.staged);
    __syncthreads();
    float *sums = (float *)(shared + s.sums);
    stream_work<F, T, R>(ring, asked, c, a, s, first, rows, x, sums);
    __syncthreads();
    stream_store<T>(a, s, first, rows, sums);
}

/* ---- the host's side */

enum {
    STREAM_WARPS = 16,
    STREAM_SLOTS = 8,         /* of a warp, at most, */
    STREAM_DEEP = 2,          /* and at least */
    STREAM_MANY = 120 << 10,  /* bytes of shared memory of a block with several matrices, */
    STREAM_ONE = 100 << 10,   /* and with one: a multiprocessor holds one of each, and no two of the former */
    STREAM_ALONE = 224 << 10, /* where the activation alone takes much of that */
    STREAM_LEAST = 32 << 10,  /* for slots */
    STREAM_ROWS = 1024        /* of a block */
};

template <class F> static inline uint32_t stream_slot(uint32_t groups)
{
    return (stream_of<F>::at(stream_of<F>::n, groups) + 127) / 128 * 128;
}

/* Into how many a row may be cut: each has a sum in shared memory. */
static inline uint32_t stream_pieces(uint32_t block_rows)
{
    return block_rows <= 64 ? 8 : 4;
}

/* How rows are cut into pieces and slots, so that every warp has as many pieces, and some in flight while it multiplies
 * another. False: there is no room for that. */
template <class F, int T>
static bool stream_cut(struct stream_shape *s, const struct product_args *a, uint32_t block_rows, uint32_t warps, size_t room)
{
    const uint32_t most = stream_pieces(block_rows), per_warp = (uint32_t)(room / warps), all = block_rows * (s->pair ? 2 : 1),
                   grain = 32 * 8 / F::block == 1 ? 8 : 1;
    s->split = 1;
    s->groups = a->groups;
    while (s->split < most && s->groups % (2 * grain) == 0 && s->groups >= 64 &&
           (stream_slot<F>(s->groups) * STREAM_DEEP > per_warp || all * s->split < warps ||
            (all * s->split < 4 * warps && (all * s->split + warps - 1) / warps * warps * 9 > all * s->split * 10))) {
        s->split *= 2;
        s->groups /= 2;
    }
    s->rows = 1;
    while (T <= 2 && s->split == 1 && s->rows < (T == 1 ? 4 : 2) && s->rows * 4 * warps <= all &&
           stream_slot<F>(2 * s->rows * s->groups) * STREAM_DEEP <= per_warp)
        s->rows *= 2;
    s->slot_bytes = stream_slot<F>(s->rows * s->groups);
    const uint32_t fit = per_warp / s->slot_bytes, needed = ((all * s->split + warps - 1) / warps + s->rows - 1) / s->rows;
    s->slots = fit < 1 ? 1 : fit < STREAM_SLOTS ? fit : STREAM_SLOTS;
    s->slots = s->slots < needed ? s->slots : needed;
    return fit >= s->slots && (fit >= STREAM_DEEP || fit >= needed);
}

template <class F, int T, int WARPS> static int stream_launch(const struct exec *x, const struct product_args &a, bool pair)
{
    const uint32_t multiprocessors = (uint32_t)cuda_units(x->device);
    struct stream_shape s = {};
    s.unit = a.quantized ? 32 : 1;
    s.pair = pair;
    uint32_t blocks;
    if (a.quantized) {
        uint32_t units = a.rows / s.unit, each = units / multiprocessors ? units / multiprocessors : 1;
        blocks = (units + each - 1) / each;
    } else {
        blocks = (a.rows + 7) / 8;
        blocks = blocks < multiprocessors ? blocks : multiprocessors * ((a.rows / multiprocessors + STREAM_ROWS) / STREAM_ROWS);
    }
    const uint32_t block_rows = ((a.rows + s.unit - 1) / s.unit + blocks - 1) / blocks * s.unit;
    const size_t staged = stream_staged<F, T>(a.groups), landings = (size_t)WARPS * STREAM_SLOTS * sizeof(struct landing);
    const size_t sums = (size_t)block_rows * (pair ? 2 : 1) * T * sizeof(float);
    const size_t row = a.from_f32 ? (size_t)a.groups * 128 : 0;
    const size_t beside = staged + landings + row + stream_pieces(block_rows) * sums + 128;
    const size_t block = a.n_matrices > 1 ? STREAM_MANY : STREAM_ONE;
    if (beside + STREAM_LEAST > block || !stream_cut<F, T>(&s, &a, block_rows, WARPS, block - beside))
        if (beside + STREAM_LEAST > STREAM_ALONE || !stream_cut<F, T>(&s, &a, block_rows, WARPS, STREAM_ALONE - beside))
            return a.norm ? cuda_fault("a row of %u groups has no room in shared memory", a.groups)
                          : mv_launch<F, T>(x, a, pair);
    s.staged = (uint32_t)WARPS * s.slots * s.slot_bytes;
    s.landings = s.staged + (uint32_t)staged;
    s.room = s.landings + (uint32_t)landings;
    s.row = s.room + 128;
    s.sums = s.row + (uint32_t)row;
    const size_t shared = s.sums + sums * s.split;
    const dim3 grid(blocks);
#define STREAM_GO(R, FROM) cuda_launch(x, matvec_stream<F, T, R, FROM, WARPS>, grid, dim3(32 * WARPS), shared, a, s)
    if constexpr (T == 1 && !is_single<F>) {
        if (a.norm)
            return s.rows == 1   ? STREAM_GO(1, STREAM_NORM)
                   : s.rows == 2 ? STREAM_GO(2, STREAM_NORM)
                                 : STREAM_GO(4, STREAM_NORM);
        if (a.from_f32)
            return s.rows == 1 ? STREAM_GO(1, STREAM_F32) : s.rows == 2 ? STREAM_GO(2, STREAM_F32) : STREAM_GO(4, STREAM_F32);
    }
    if constexpr (T == 1) {
        if (s.rows == 4)
            return STREAM_GO(4, STREAM_PLAIN);
    }
    if constexpr (T <= 2) {
        if (s.rows == 2)
            return STREAM_GO(2, STREAM_PLAIN);
    }
    return STREAM_GO(1, STREAM_PLAIN);
#undef STREAM_GO
}

/* Larger weights matvec.cuh brings. All tokens of the node, at most eight at a time, and no more than shared
 * memory holds; of a pair there is one. */
template <class F> static int stream_run(const struct exec *x, struct product_args a, bool pair)
{
    int rc = 0;
    if (!a.norm && !product_streams(product_weight_bytes(&a, F::format)))
        return mv_run<F>(x, a, pair);
    for (int left = a.tokens; left > 0 && !rc;) {
        int most = (int)(PRODUCT_SHARED / ((size_t)a.groups * activation<F>::group_bytes));
        a.tokens = left > 4 && most >= 8   ? (left < 8 ? left : 8)
                   : left > 2 && most >= 4 ? (left < 4 ? left : 4)
                   : left > 1 && most >= 2 ? 2
                                           : 1;
        rc = a.tokens > 4   ? stream_launch<F, 8, STREAM_WARPS>(x, a, pair)
             : a.tokens > 2 ? stream_launch<F, 4, STREAM_WARPS>(x, a, pair)
             : a.tokens > 1 ? stream_launch<F, 2, STREAM_WARPS>(x, a, pair)
                            : stream_launch<F, 1, STREAM_WARPS>(x, a, pair);
        left -= a.tokens;
        product_advance(&a);
    }
    return rc;
}

#endif
