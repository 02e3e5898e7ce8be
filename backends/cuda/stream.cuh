/* stream.cuh: decode: up to four weight matrices times one to eight tokens of one activation (activation.cuh), in one launch,
 * with the weights brought to shared memory by the copy engine.
 *
 * Weights depend on nothing that runs. So a block asks for as many as its shared memory holds at once, before it waits for the
 * kernel ahead of it; and since it lets the next kernel begin at once too, and leaves half of a multiprocessor free, the next
 * product's weights are on their way while this one's are multiplied. The memory is busy through the norms and the ends of
 * launches, which between products of some microseconds are as long as the products.
 *
 * A block has a range of rows, and each of its warps a range of those. A warp has a ring of slots of its own, each with one
 * landing (ptx.cuh): some rows, or a part of one, of each stream of the layout, as they lie in device memory. It multiplies a
 * slot, a lane a group of 32 values, and asks for what comes `slots` later in its place. No warp waits for another but at the
 * activation. Sums of lanes are added by halves, several rows and tokens at once, so that each ends in a lane of its own, which
 * stores it.
 *
 * The alternative, loads into registers (matvec.cuh), has fewer bytes in flight, and none before the activation is there.
 * One producer warp for all was another: its cursor and two barriers a slot cost more than a lane's four copies. */
#ifndef BACKENDS_CUDA_STREAM_CUH
#define BACKENDS_CUDA_STREAM_CUH

#include "backends/cuda/matvec.cuh"
#include "backends/cuda/ptx.cuh"

struct stream_shape {
    uint32_t unit;                   /* rows that one block has together; 32: a block of A8 */
    uint32_t rows;                   /* that lie in a slot, of each matrix of a pair */
    uint32_t parts, part;            /* slots of a row, and groups of each; more than one: rows is 1 */
    uint32_t slots;                  /* of a warp */
    uint32_t slot_bytes, tile_bytes; /* of a slot, and of a matrix in it */
    uint32_t block_rows;             /* most that a block has */
    uint32_t room;                   /* where 32 sums lie in shared memory */
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

/* What a lane copies: one stream of one matrix of a slot. Lanes beyond those have nothing to do. */
template <class F, bool PAIR> struct stream_ring {
    static constexpr int N = stream_of<F>::n, COPIES = PAIR ? 2 * N : N;
    const struct product_args &a;
    const struct stream_shape &s;
    unsigned char *slots;
    struct landing *landings;
    uint32_t row, end, part; /* the next to be asked for */
    uint32_t rate, offset;   /* of this lane */
    int stream, second;

    __device__ __forceinline__ stream_ring(const struct product_args &a, const struct stream_shape &s, unsigned char *slots,
                                           struct landing *landings, uint32_t row, uint32_t end)
        : a(a), s(s), slots(slots), landings(landings), row(row), end(end), part(0), rate(0), offset(0)
    {
        int lane = threadIdx.x & 31;
        stream = lane % N;
        second = PAIR ? lane / N % 2 : 0;
        uint32_t groups = s.parts > 1 ? s.part : s.rows * a.groups;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i == stream) {
                rate = stream_of<F>::rate(i);
                offset = stream_of<F>::at(i, groups) + (uint32_t)second * s.tile_bytes;
            }
    }

    /* Rows of the slot that begins with `row`; they are of one matrix, where it is row *in. */
    __device__ __forceinline__ uint32_t rows_of(uint32_t row, int *matrix, uint32_t *in) const
    {
        *in = row;
        *matrix = PAIR ? 0 : product_matrix(a, in);
        return min(min(s.rows, end - row), a.matrix[*matrix].rows - *in);
    }

    __device__ __forceinline__ const uint8_t *base(int matrix) const
    {
        const s32_matrix &w = a.matrix[PAIR ? second : matrix].weight;
        const uint8_t *p = w.stream[0];
#pragma unroll
        for (int i = 1; i < N; i++)
            p = i == stream ? w.stream[i] : p;
        return p;
    }

    /* The next stretch into slot `to`. */
    __device__ __forceinline__ void fetch(uint32_t to)
    {
        if (row >= end)
            return;
        int matrix;
        uint32_t in, n = rows_of(row, &matrix, &in);
        if ((threadIdx.x & 31) < COPIES) {
            uint64_t first = (uint64_t)in * a.groups + part * s.part;
            uint64_t last = s.parts > 1 ? min(first + s.part, (uint64_t)(in + 1) * a.groups) : first + n * a.groups;
            uint64_t from = first * rate / 4 / 16 * 16, behind = ((last * rate + 3) / 4 + 15) / 16 * 16;
            landing_copy(&landings[to], slots + to * s.slot_bytes + offset, base(matrix) + from, (uint32_t)(behind - from));
        }
        if (s.parts > 1 && part + 1 < s.parts) {
            part++;
        } else {
            part = 0;
            row += n;
        }
    }

    /* A slot's matrix that begins with group `first` of W. */
    __device__ __forceinline__ s32_tile tile(uint32_t slot, int of, uint32_t first) const
    {
        s32_tile t;
        const unsigned char *p = slots + slot * s.slot_bytes + (uint32_t)of * s.tile_bytes;
        uint32_t groups = s.parts > 1 ? s.part : s.rows * a.groups;
#pragma unroll
        for (int i = 0; i < 4; i++) /* only the low bits of where it begins matter, which 32 bits have */
            t.stream[i] = i < N ? p + stream_of<F>::at(i, groups) + (first * stream_of<F>::rate(i) / 4 & 15) : NULL;
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

/* R rows of the slot, whose groups begin at group `from` of the activation; `stride` groups from row to row. */
template <class F, int T, int R, int TILES, int MOST>
__device__ __forceinline__ void stream_rows(const s32_tile *tile, uint32_t stride, uint32_t from, uint32_t n, uint32_t groups,
                                            const activation<F> &x, float (*acc)[MOST][T])
{
    constexpr int UNROLL = R * TILES * T >= 4 ? 1 : 2;
    float sum[R * TILES][T];
    uint32_t first[R * TILES];
#pragma unroll
    for (int r = 0; r < R * TILES; r++) {
        first[r] = (uint32_t)(r % R) * stride - from;
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[r][t] = acc[r / R][r % R][t];
    }
#pragma unroll UNROLL
    for (uint32_t g = threadIdx.x & 31; g < n; g += 32) {
        typename F::raw raw[R * TILES];
#pragma unroll
        for (int r = 0; r < R * TILES; r++)
            raw[r] = F::load(tile[r / R], (uint32_t)(r % R) * stride + g);
        mv_group<F, T, R * TILES>(raw, first, from + g, groups, x, sum);
    }
#pragma unroll
    for (int r = 0; r < R * TILES; r++)
#pragma unroll
        for (int t = 0; t < T; t++)
            acc[r / R][r % R][t] = sum[r][t];
}

/* ---- the kernel */

/* Bytes of shared memory for the activation. */
template <class F, int T> HD size_t stream_staged(uint32_t groups)
{
    return ((size_t)T * groups * activation<F>::group_bytes + 15) / 16 * 16;
}

/* The activation, as the weights meet it; f32, quantised by each block; the same under a norm. */
enum stream_from { STREAM_PLAIN, STREAM_F32, STREAM_NORM };

/* R: most rows of a slot. */
template <class F, int T, int R, bool PAIR>
__device__ __forceinline__ void stream_work(stream_ring<F, PAIR> &ring, uint32_t row, const activation<F> &x, float *y,
                                            uint32_t y_first)
{
    constexpr int TILES = PAIR ? 2 : 1, N = R * T;
    const struct product_args &a = ring.a;
    const int lane = threadIdx.x & 31, own = lane / (32 / N), t = own % T;
    uint32_t slot = 0, lap = 0;
    while (row < ring.end) {
        int matrix;
        uint32_t in, n = ring.rows_of(row, &matrix, &in);
        const struct product_matrix &m = a.matrix[matrix];
        const bool mine = lane % (32 / N) == 0 && own / T < (int)n && t < a.tokens;
        const uint32_t at = in + own / T;
        const float add = mine && m.add ? m.add[(size_t)t * m.add_stride + at] : 0;
        float acc[TILES][N]; /* row by row, each row's tokens */
#pragma unroll
        for (int i = 0; i < TILES * N; i++)
            acc[i / N][i % N] = 0;
        for (uint32_t part = 0; part < ring.s.parts; part++) {
            uint32_t from = part * ring.s.part, some = ring.s.parts > 1 ? min(ring.s.part, a.groups - from) : a.groups;
            s32_tile tile[TILES];
#pragma unroll
            for (int i = 0; i < TILES; i++)
                tile[i] = ring.tile(slot, i, in * a.groups + from);
            landing_wait(&ring.landings[slot], lap);
            if (R == 1 || n > 1)
                stream_rows<F, T, R, TILES>(tile, a.groups, from, some, a.groups, x, (float(*)[R][T])acc);
            else
                stream_rows<F, T, 1, TILES>(tile, a.groups, from, some, a.groups, x, (float(*)[R][T])acc);
            __syncwarp();
            ring.fetch(slot);
            if (++slot == ring.s.slots) {
                slot = 0;
                lap ^= 1;
            }
        }
        float sum = warp_sums<N>(acc[0]);
        if constexpr (PAIR) {
            float up = warp_sums<N>(acc[1]);
            if (mine) {
                float v = product_store_pair(a, at, t, sum, up);
                if (y)
                    y[at - y_first] = v;
            }
        } else if (mine) {
            product_store(m, at, t, sum, add);
        }
        row += n;
    }
}

template <class F, int T, int R, bool PAIR, int FROM>
__global__ void __launch_bounds__(32 * PRODUCT_WARPS, T <= 2 ? 3 : 2)
    matvec_stream(const __grid_constant__ struct product_args a, const __grid_constant__ struct stream_shape s)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    cuda_release();
    unsigned char *staged = shared + PRODUCT_WARPS * s.slots * s.slot_bytes;
    struct landing *landings = (struct landing *)(staged + stream_staged<F, T>(a.groups)) + warp * s.slots;
    float *y = (float *)(landings + (PRODUCT_WARPS - warp) * s.slots);
    const uint32_t units = (a.rows + s.unit - 1) / s.unit;
    const uint32_t first = (uint32_t)((uint64_t)units * blockIdx.x / gridDim.x) * s.unit;
    const uint32_t last = min((uint32_t)((uint64_t)units * (blockIdx.x + 1) / gridDim.x) * s.unit, a.rows), rows = last - first;
    const uint32_t row = first + rows * warp / PRODUCT_WARPS, end = first + rows * (warp + 1) / PRODUCT_WARPS;
    stream_ring<F, PAIR> ring(a, s, shared + warp * s.slots * s.slot_bytes, landings, row, end);
    if (lane == 0) {
        for (uint32_t i = 0; i < s.slots; i++)
            landing_init(&landings[i], stream_ring<F, PAIR>::COPIES);
        landings_ready();
    }
    __syncwarp();
    for (uint32_t i = 0; i < s.slots; i++)
        ring.fetch(i);
    cuda_wait();
    activation<F> x;
    if constexpr (FROM == STREAM_F32)
        x.stage_f32((const float *)a.x, a.groups, staged);
    else if constexpr (FROM == STREAM_NORM)
        x.stage_norm((const float *)a.x, a.norm, a.eps, a.groups, staged, (float *)(shared + s.room));
    else
        x.template stage<T>(a.x, a.x_stride, a.tokens, a.groups, staged);
    __syncthreads();
    stream_work<F, T, R, PAIR>(ring, row, x, PAIR && a.quantized ? y : NULL, first);
    if constexpr (PAIR) {
        if (!a.quantized)
            return;
        __syncthreads();
        for (uint32_t i = warp; i * 32 < rows; i += PRODUCT_WARPS)
            a8_store_1((struct block_a8 *)a.quantized + first / 32 + i, y[i * 32 + lane]);
    }
}

/* ---- the host's side */

enum {
    STREAM_SLOTS = 16,        /* of a warp, at most, */
    STREAM_DEEP = 3,          /* and at least */
    STREAM_BLOCK = 110 << 10, /* bytes of shared memory of a block, of which a multiprocessor then holds two */
    STREAM_ALONE = 224 << 10, /* where the activation alone takes much of that */
    STREAM_LEAST = 40 << 10   /* for slots */
};

template <class F> static inline void stream_slot(struct stream_shape *s, uint32_t groups, bool pair)
{
    s->tile_bytes = stream_of<F>::at(stream_of<F>::n, groups);
    s->slot_bytes = ((pair ? 2 : 1) * s->tile_bytes + 127) / 128 * 128;
}

/* How rows are cut into slots, so that a warp has some in flight while it multiplies another. */
template <class F, int T>
static struct stream_shape stream_shape_of(const struct product_args *a, bool pair, uint32_t blocks, uint32_t unit, size_t room)
{
    struct stream_shape s = {};
    const uint32_t units = (a->rows + unit - 1) / unit, per_warp = (uint32_t)(room / PRODUCT_WARPS);
    s.unit = unit;
    s.block_rows = (units + blocks - 1) / blocks * unit;
    s.rows = T == 1 && !pair ? 4 : T <= 2 ? 2 : 1;
    const uint32_t rows = (s.block_rows + PRODUCT_WARPS - 1) / PRODUCT_WARPS;
    for (;; s.rows /= 2) {
        stream_slot<F>(&s, s.rows * a->groups, pair);
        if (s.rows == 1 || (s.slot_bytes * STREAM_DEEP <= per_warp && s.rows * 2 <= rows))
            break;
    }
    s.parts = 1;
    s.part = a->groups;
    while (s.slot_bytes * STREAM_DEEP > per_warp && s.part > 32) {
        s.parts++;
        s.part = ((a->groups + s.parts - 1) / s.parts + 31) / 32 * 32;
        stream_slot<F>(&s, s.part, pair);
    }
    s.parts = (a->groups + s.part - 1) / s.part;
    const uint32_t all = (rows + s.rows - 1) / s.rows * s.parts, fit = per_warp / s.slot_bytes;
    s.slots = fit < 1 ? 1 : fit < STREAM_SLOTS ? fit : STREAM_SLOTS;
    s.slots = s.slots < all ? s.slots : all;
    return s;
}

template <class F, int T> static int stream_launch(const struct exec *x, const struct product_args &a, bool pair)
{
    const uint32_t multiprocessors = (uint32_t)cuda_units(x->device), unit = a.quantized ? 32 : 1;
    uint32_t blocks;
    if (a.quantized) {
        uint32_t units = a.rows / unit, each = units / multiprocessors ? units / multiprocessors : 1;
        blocks = (units + each - 1) / each;
    } else {
        blocks = (a.rows + PRODUCT_WARPS - 1) / PRODUCT_WARPS;
        blocks = blocks < multiprocessors ? blocks : multiprocessors;
    }
    const size_t beside = stream_staged<F, T>(a.groups) + (size_t)PRODUCT_WARPS * STREAM_SLOTS * sizeof(struct landing) + 128 +
                          (a.quantized ? ((a.rows / unit + blocks - 1) / blocks * unit) * sizeof(float) : 0);
    const size_t block = beside + STREAM_LEAST <= STREAM_BLOCK ? STREAM_BLOCK : STREAM_ALONE;
    struct stream_shape s = stream_shape_of<F, T>(&a, pair, blocks, unit, block - beside);
    const size_t shared = beside + (size_t)PRODUCT_WARPS * s.slots * s.slot_bytes;
    s.room = (uint32_t)shared - 128;
    const dim3 grid(blocks);
#define STREAM_GO(R, PAIR, FROM)                                                                                               \
    cuda_launch(x, matvec_stream<F, T, R, PAIR, FROM>, grid, dim3(32 * PRODUCT_WARPS), shared, a, s)
    if constexpr (T == 1 && !is_single<F>) {
        if (a.norm && pair)
            return s.rows == 1 ? STREAM_GO(1, true, STREAM_NORM) : STREAM_GO(2, true, STREAM_NORM);
        if (a.norm)
            return s.rows == 1   ? STREAM_GO(1, false, STREAM_NORM)
                   : s.rows == 2 ? STREAM_GO(2, false, STREAM_NORM)
                                 : STREAM_GO(4, false, STREAM_NORM);
        if (a.from_f32)
            return s.rows == 1   ? STREAM_GO(1, false, STREAM_F32)
                   : s.rows == 2 ? STREAM_GO(2, false, STREAM_F32)
                                 : STREAM_GO(4, false, STREAM_F32);
    }
    if constexpr (T == 1) {
        if (pair)
            return s.rows == 1 ? STREAM_GO(1, true, STREAM_PLAIN) : STREAM_GO(2, true, STREAM_PLAIN);
        if (s.rows == 4)
            return STREAM_GO(4, false, STREAM_PLAIN);
    }
    if constexpr (T <= 2) {
        if (s.rows == 2)
            return STREAM_GO(2, false, STREAM_PLAIN);
    }
    return STREAM_GO(1, false, STREAM_PLAIN);
#undef STREAM_GO
}

/* Without HONE_CUDA_STREAM=1 matvec.cuh does it. All tokens of the node, at most eight at a time, and no more than shared
 * memory holds; of a pair there is one. */
template <class F> static int stream_run(const struct exec *x, struct product_args a, bool pair)
{
    int rc = 0;
    if (!product_streams())
        return mv_run<F>(x, a, pair);
    for (int left = a.tokens; left > 0 && !rc;) {
        int most = (int)(PRODUCT_SHARED / ((size_t)a.groups * activation<F>::group_bytes));
        a.tokens = left > 4 && most >= 8   ? (left < 8 ? left : 8)
                   : left > 2 && most >= 4 ? (left < 4 ? left : 4)
                   : left > 1 && most >= 2 ? 2
                                           : 1;
        rc = a.tokens > 4   ? stream_launch<F, 8>(x, a, pair)
             : a.tokens > 2 ? stream_launch<F, 4>(x, a, pair)
             : a.tokens > 1 ? stream_launch<F, 2>(x, a, pair)
                            : stream_launch<F, 1>(x, a, pair);
        left -= a.tokens;
        product_advance(&a);
    }
    return rc;
}

#endif
