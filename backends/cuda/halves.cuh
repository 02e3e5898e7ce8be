/* halves.cuh: prefill: weights in an s32 layout times many tokens, as products of f16 on warpgroups (wgmma.cuh), summed in f32.
 *
 * A block makes tiles of 128 rows times 256 (or 128) tokens. One thread brings the activation, 64 values of k a piece, through
 * a ring in shared memory by copies in bulk; two warpgroups have 64 rows each. A lane loads whole groups of two rows, unpacks
 * them, and has them in its registers just as the product wants its left operand: values of k are numbered so that what a lane
 * needs of a row in 128 values are the 32 of one group. The activation is laid out in that order (product_halves.cu). So
 * weights never go through shared memory, and unpacking, about two instructions a weight, runs beside the products of the other
 * warpgroup.
 *
 * All steps of all tiles, one tile's behind the other's, are dealt out evenly to as many blocks as there are multiprocessors:
 * 80 tiles keep 132 busy. A tile that several blocks share is finished by the one that began it: it adds the others' parts in
 * their order, which they left in device memory. It waits only for blocks with a smaller number, so whatever runs first, none
 * waits forever; and a clock bounds it all the same (wait.cuh).
 *
 * What lost, on gate and up of the 27B shape, where this gave 434 TFLOPS: clusters of two blocks, each bringing half of a piece
 * to both, 362; weights unpacked to memory and a library's product, 378 (its product alone 730), in slices that stay in the
 * second-level cache 260 to 354.
 *
 * Rounding: a weight's scale, where it is a product, and the weight once, to 11 bits; the activation's values once. The 8-bit
 * integer products of matmul.cuh are exact in all of these, but scale each sum of 32 products by instructions, four times as
 * many as there are here. */
#ifndef BACKENDS_CUDA_HALVES_CUH
#define BACKENDS_CUDA_HALVES_CUH

#include "backends/cuda/halves.h"
#include "backends/cuda/product.cuh"
#include "backends/cuda/s32.cuh"
#include "backends/cuda/wait.cuh"
#include "backends/cuda/wgmma.cuh"

#include <cuda_fp16.h>

enum {
    HALVES_THREADS = 384, /* two warpgroups that multiply, and one of which a single thread brings the activation */
    HALVES_WORKERS = 256,
    HALVES_SLOTS = 6
};

struct halves_args {
    const uint8_t *x;
    const float *undo;
    float4 *partial;
    uint32_t *flag;
    uint32_t steps, token_tiles;
    uint64_t all; /* steps of all tiles */
    struct cuda_waiting waiting;
};

template <int N> struct halves_memory {
    static constexpr int PIECE = N * 128; /* bytes: 64 values of N tokens */
    alignas(1024) unsigned char piece[HALVES_SLOTS][PIECE];
    uint64_t full[HALVES_SLOTS], empty[HALVES_SLOTS];
};

/* A place in the ring, and how often it came round. */
struct halves_ring {
    int slot;
    uint32_t parity;
    __device__ __forceinline__ void advance()
    {
        if (++slot == HALVES_SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* Which of all shares a block has. */
struct halves_share {
    uint32_t number, of;
};

/* Where share number i of n begins, in steps. */
__device__ __forceinline__ uint64_t halves_from(const struct halves_args &h, uint32_t i, uint32_t n)
{
    return h.all * i / n;
}

/* ---- unpacking */

__device__ __forceinline__ __half2 halves_pair_of(uint32_t bits)
{
    __half2 h;
    memcpy(&h, &bits, sizeof h);
    return h;
}

/* A group of a row: its codes as bytes, none negative, and its scales in both halves of a word. Where a format has minima,
 * codes are counted from the middle and the minimum is that of the middle: so what the scale's rounding errs by is half as
 * large, and the minimum, near zero, has its bits. */
template <class F> struct halves_group {
    static constexpr bool is_signed = F::offset == 0 && !F::mins;
    static constexpr int middle = F::format == FORMAT_Q2_K ? 2 : F::format == FORMAT_Q5_K || F::format == FORMAT_Q5_1 ? 16 : 8;
    static constexpr uint32_t zero = 0x6400u + (is_signed ? 128
                                                : F::mins ? middle
                                                          : F::offset); /* what stands for 0, plus 1024, in f16 */
    uint32_t code[8];
    __half2 scale[F::halves ? 2 : 1], min[F::halves ? 2 : 1];

    __device__ __forceinline__ void unpack(const typename F::raw &raw, uint32_t u)
    {
        float s[2], m[2] = {0, 0};
        F::codes(raw, code);
        F::scales(raw, u, s, m);
        if constexpr (is_signed)
#pragma unroll
            for (int i = 0; i < 8; i++)
                code[i] ^= 0x80808080u;
#pragma unroll
        for (int i = 0; i < (F::halves ? 2 : 1); i++) {
            scale[i] = __floats2half2_rn(s[i], s[i]);
            m[i] += s[i] * middle;
            min[i] = __floats2half2_rn(m[i], m[i]);
        }
    }

    /* Values 4 j and 4 j + 1, or with UPPER the next two. 1024 + c in f16 is c below 0x64 in a byte. */
    template <bool UPPER> __device__ __forceinline__ uint32_t pair(int j) const
    {
        const int i = F::halves ? j / 4 : 0;
        __half2 c = __hsub2(halves_pair_of(permute_bytes(code[j], 0x64646464u, UPPER ? 0x4342u : 0x4140u)),
                            halves_pair_of(zero | zero << 16));
        __half2 w;
        if constexpr (F::mins)
            w = __hfma2(c, scale[i], min[i]);
        else
            w = __hmul2(c, scale[i]);
        uint32_t bits;
        memcpy(&bits, &w, sizeof bits);
        return bits;
    }
};

/* ---- a thread's rows */

/* Two rows of W: 8 apart in a tile of 128; of a pair, the same row of gate and of up, so that both sums of a glu are in one
 * lane, and a tile has 64 rows of each. */
template <class F> struct halves_rows {
    int matrix[2];
    uint32_t row[2];  /* beyond the matrix: its last, and nothing is stored */
    uint32_t unit[2]; /* of the step that is loaded */
    typename F::raw raw[2];

    /* The rows of tile `tile` of all, at step k; loads them. */
    __device__ __forceinline__ void begin(const struct product_args &a, uint32_t tile, uint32_t k)
    {
        const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        const int of = a.pair ? 0 : product_tile(a, HALVES_ROWS, &tile);
        const uint32_t first = a.pair ? tile * (HALVES_ROWS / 2) + warp * 8 : tile * HALVES_ROWS + warp * 16;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t rows = a.matrix[matrix[i] = a.pair ? i : of].rows;
            row[i] = first + (lane >> 2) + (a.pair ? 0 : 8 * i);
            unit[i] = (row[i] < rows ? row[i] : rows - 1) * a.groups + 4 * k + (lane & 3);
        }
        load(a);
    }
    __device__ __forceinline__ void load(const struct product_args &a)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
            raw[i] = F::load(a.matrix[matrix[i]].weight, unit[i]);
    }
};

/* ---- the two sides of the ring */

template <int N>
__device__ static inline void halves_bring(const struct halves_args &h, struct halves_memory<N> &m, uint64_t from, uint64_t to)
{
    constexpr int PIECE = halves_memory<N>::PIECE;
    struct halves_ring r = {0, 0};
    while (from < to) {
        uint32_t tile = (uint32_t)(from / h.steps), k = (uint32_t)(from % h.steps);
        uint32_t n = h.steps - k < to - from ? h.steps - k : (uint32_t)(to - from);
        const uint8_t *x = h.x + ((size_t)(tile % h.token_tiles) * h.steps + k) * 2 * PIECE;
        for (uint32_t i = 0; i < 2 * n; i++, x += PIECE) {
            barrier_wait(&m.empty[r.slot], r.parity ^ 1);
            barrier_expect(&m.full[r.slot], PIECE);
            bulk_copy(m.piece[r.slot], x, PIECE, &m.full[r.slot]);
            r.advance();
        }
        from += n;
    }
}

/* n steps of a tile; the first one's weights are on their way, or in w.raw. Products are given out BATCH at a time, and
 * unpacking is one batch ahead of them. */
template <class F, int N, int BATCH>
__device__ static __forceinline__ void halves_steps(const struct product_args &a, struct halves_memory<N> &m,
                                                    struct halves_ring &r, uint32_t n, struct halves_rows<F> &w,
                                                    float (&acc)[N / 2])
{
    int left = -1; /* the slot that is still read */
#pragma unroll 1
    for (uint32_t s = 0; s < n; s++) {
        halves_group<F> g[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            g[i].unpack(w.raw[i], w.unit[i]);
        if (s + 1 < n) {
            w.unit[0] += 4;
            w.unit[1] += 4;
            w.load(a);
        }
#pragma unroll
        for (int j = 0; j < 8; j += BATCH) {
            uint32_t of_w[BATCH][4];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                of_w[i][0] = g[0].template pair<false>(j + i);
                of_w[i][1] = g[1].template pair<false>(j + i);
                of_w[i][2] = g[0].template pair<true>(j + i);
                of_w[i][3] = g[1].template pair<true>(j + i);
                wgmma_hold(of_w[i]);
            }
            if (j % 4 == 0)
                barrier_wait(&m.full[r.slot], r.parity);
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                wgmma_f16(acc, of_w[i], wgmma_rows_of(m.piece[r.slot], (j + i) % 4), s > 0 || j + i > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (j % 4 == 0) {
                if (left >= 0 && (threadIdx.x & 31) == 0)
                    barrier_arrive(&m.empty[left]);
                left = r.slot;
            }
            if (j % 4 + BATCH == 4)
                r.advance();
        }
    }
    wgmma_wait<0>();
    wgmma_hold(acc);
    if ((threadIdx.x & 31) == 0)
        barrier_arrive(&m.empty[left]);
}

/* ---- results */

/* Adds what those behind this one made of the tile, whose last step is before `end`. */
template <int N>
__device__ static __forceinline__ void halves_gather(const struct halves_args &h, struct halves_share me, uint64_t end,
                                                     float (&acc)[N / 2])
{
    for (uint32_t i = me.number + 1; halves_from(h, i, me.of) < end; i++) {
        uint32_t *flag = h.flag + i;
        const float4 *from = h.partial + (size_t)i * (N / 8 * HALVES_WORKERS) + threadIdx.x;
        if (threadIdx.x == 0)
            wait_for_block(h.waiting, flag, i);
        part_barrier(1, HALVES_WORKERS);
#pragma unroll
        for (int q = 0; q < N / 8; q++) {
            float4 v = __ldcg(from + q * HALVES_WORKERS);
            acc[4 * q] += v.x;
            acc[4 * q + 1] += v.y;
            acc[4 * q + 2] += v.z;
            acc[4 * q + 3] += v.w;
        }
        if (threadIdx.x == 0)
            *flag = 0;
    }
}

template <int N>
__device__ static __forceinline__ void halves_part(const struct halves_args &h, uint32_t number, const float (&acc)[N / 2])
{
    float4 *to = h.partial + (size_t)number * (N / 8 * HALVES_WORKERS) + threadIdx.x;
#pragma unroll
    for (int q = 0; q < N / 8; q++)
        __stcg(to + q * HALVES_WORKERS, make_float4(acc[4 * q], acc[4 * q + 1], acc[4 * q + 2], acc[4 * q + 3]));
    __threadfence();
    part_barrier(1, HALVES_WORKERS);
    if (threadIdx.x == 0)
        flag_set(h.flag + number);
}

/* Where a lane's sums go: its first token, and how many there are from there on. */
struct halves_place {
    uint32_t row;
    int first, left;
    bool stored[2];
};

/* Rows `row` and, 8 further, the lane's other one, 32 sums at a time. What is added to those is read before any is written: behind
 * a write that it might have come from, each read would wait for the one before it. */
template <bool ADD, bool ALONE, int N>
__device__ static __forceinline__ void halves_store_rows(const struct product_matrix &m, const float *undo, const struct halves_place &p,
                                                         float (&acc)[N / 2])
{
    constexpr int SOME = 32;
    float *out = m.out + (size_t)p.first * m.out_stride + p.row;
#pragma unroll
    for (int from = 0; from < N / 2; from += SOME) {
#pragma unroll
        for (int at = from; at < from + SOME; at++) {
            int r = at / 2 % 2, token = at / 4 * 8 + at % 2;
            acc[at] *= __ldcg(undo + token);
            if (ALONE && token < p.left && p.stored[r])
                m.alone[(size_t)(p.first + token) * m.alone_stride + p.row + 8 * r] = acc[at];
        }
#pragma unroll
        for (int at = from; ADD && at < from + SOME; at++) {
            int r = at / 2 % 2, token = at / 4 * 8 + at % 2;
            if (token < p.left && p.stored[r])
                acc[at] += m.add[(size_t)(p.first + token) * m.add_stride + p.row + 8 * r];
        }
#pragma unroll
        for (int at = from; at < from + SOME; at++) {
            int r = at / 2 % 2, token = at / 4 * 8 + at % 2;
            if (token < p.left && p.stored[r])
                out[(size_t)token * m.out_stride + 8 * r] = acc[at];
        }
    }
}

__device__ static __forceinline__ float halves_silu(float x)
{
    return __fdividef(x, 1 + __expf(-x));
}

/* Row `row` of gate and of up. */
template <bool ALONE, int N>
__device__ static __forceinline__ void halves_store_glu(const struct product_args &a, const float *undo,
                                                        const struct halves_place &p, const float (&acc)[N / 2])
{
    const struct product_matrix &gate = a.matrix[0], &up = a.matrix[1];
    float *out = gate.out + (size_t)p.first * gate.out_stride + p.row;
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        float2 u = __ldcg((const float2 *)(undo + 8 * i));
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float of_gate = acc[4 * i + e] * (e ? u.y : u.x), of_up = acc[4 * i + 2 + e] * (e ? u.y : u.x);
            if (8 * i + e >= p.left || !p.stored[0])
                continue;
            if (ALONE && gate.alone)
                gate.alone[(size_t)(p.first + 8 * i + e) * gate.alone_stride + p.row] = of_gate;
            if (ALONE && up.alone)
                up.alone[(size_t)(p.first + 8 * i + e) * up.alone_stride + p.row] = of_up;
            out[(size_t)(8 * i + e) * gate.out_stride] = halves_silu(of_gate) * of_up;
        }
    }
}

template <class F, int N>
__device__ static __forceinline__ void halves_store(const struct product_args &a, const struct halves_args &h,
                                                    const struct halves_rows<F> &w, uint32_t token_tile,
                                                    float (&acc)[N / 2])
{
    const struct product_matrix &m = a.matrix[w.matrix[0]];
    struct halves_place p = {w.row[0], (int)(token_tile * N) + 2 * (int)(threadIdx.x & 3)};
    p.left = a.tokens - p.first;
    p.stored[0] = w.row[0] < m.rows;
    p.stored[1] = w.row[1] < m.rows;
    const float *undo = h.undo + p.first;
    if (a.pair) {
        if (m.alone || a.matrix[1].alone)
            halves_store_glu<true, N>(a, undo, p, acc);
        else
            halves_store_glu<false, N>(a, undo, p, acc);
    } else if (m.alone) {
        if (m.add)
            halves_store_rows<true, true, N>(m, undo, p, acc);
        else
            halves_store_rows<false, true, N>(m, undo, p, acc);
    } else if (m.add) {
        halves_store_rows<true, false, N>(m, undo, p, acc);
    } else {
        halves_store_rows<false, false, N>(m, undo, p, acc);
    }
}

template <class F, int N, int BATCH>
__device__ static inline void halves_multiply(const struct product_args &a, const struct halves_args &h,
                                              struct halves_memory<N> &m, struct halves_share me)
{
    float acc[N / 2];
    struct halves_ring r = {0, 0};
    struct halves_rows<F> w, next;
    uint64_t at = halves_from(h, me.number, me.of), to = halves_from(h, me.number + 1, me.of);
    w.begin(a, (uint32_t)(at / h.steps) / h.token_tiles, (uint32_t)(at % h.steps));
    while (at < to) {
        uint32_t tile = (uint32_t)(at / h.steps), k = (uint32_t)(at % h.steps);
        uint32_t n = h.steps - k < to - at ? h.steps - k : (uint32_t)(to - at);
        halves_steps<F, N, BATCH>(a, m, r, n, w, acc);
        if (at + n < to) /* on its way while results are written */
            next.begin(a, (tile + 1) / h.token_tiles, 0);
        if (k > 0) {
            halves_part<N>(h, me.number, acc);
        } else {
            if (n < h.steps)
                halves_gather<N>(h, me, at + h.steps, acc);
            halves_store<F, N>(a, h, w, tile % h.token_tiles, acc);
        }
        w = next;
        at += n;
    }
}

template <class F, int N, int BATCH>
__global__ void __launch_bounds__(HALVES_THREADS, 1)
    halves_product(const __grid_constant__ struct product_args a, const __grid_constant__ struct halves_args h)
{
    extern __shared__ __align__(1024) unsigned char ring[];
    struct halves_memory<N> &m = *(struct halves_memory<N> *)ring;
    const struct halves_share me = {gridDim.x - 1 - blockIdx.x,
                                    gridDim.x}; /* blocks that come later begin earlier: see above */
    if (threadIdx.x == 0) {
        for (int i = 0; i < HALVES_SLOTS; i++) {
            barrier_init(&m.full[i], 1);
            barrier_init(&m.empty[i], HALVES_WORKERS / 32);
        }
        barriers_ready();
    }
    cuda_release();
    __syncthreads();
    cuda_wait();
    if (threadIdx.x >= HALVES_WORKERS) {
        registers_give<40>();
        if (threadIdx.x == HALVES_WORKERS)
            halves_bring<N>(h, m, halves_from(h, me.number, me.of), halves_from(h, me.number + 1, me.of));
    } else {
        registers_take<232>();
        halves_multiply<F, N, BATCH>(a, h, m, me);
    }
}

/* ---- the host's side */

template <class F, int N, int BATCH>
static int halves_launch(const struct exec *x, const struct product_args *a, const struct halves_room *room)
{
    struct halves_args h = {room->x, room->undo, (float4 *)room->partial, room->flag};
    h.steps = a->groups * 32 / HALVES_DEPTH;
    h.token_tiles = (uint32_t)((a->tokens + N - 1) / N);
    uint32_t tiles = a->pair ? (a->rows + HALVES_ROWS / 2 - 1) / (HALVES_ROWS / 2) : product_tiles(a, HALVES_ROWS);
    h.all = (uint64_t)tiles * h.token_tiles * h.steps;
    h.waiting = cuda_waiting_at(x, a->name);
    uint64_t most = (uint64_t)cuda_units(x->device), worth = h.all / HALVES_STEPS;
    most = most < HALVES_MOST ? most : HALVES_MOST;
    return cuda_launch(x, halves_product<F, N, BATCH>,
                       dim3((unsigned)(worth < 1      ? 1
                                       : worth < most ? worth
                                                      : most)),
                       dim3(HALVES_THREADS), sizeof(struct halves_memory<N>), *a, h);
}

#ifndef HALVES_BATCH
#define HALVES_BATCH 2
#endif

template <class F> static int halves_run(const struct exec *x, const struct product_args *a, const struct halves_room *room)
{
    return room->width == 256 ? halves_launch<F, 256, HALVES_BATCH>(x, a, room)
                              : halves_launch<F, 128, HALVES_BATCH>(x, a, room);
}

/* A format's row: see halves.h. */
#define HALVES_FORMAT(ID, id)                                                                                                  \
    extern "C" {                                                                                                               \
    const struct halves_format halves_##id = {FORMAT_##ID, halves_run<s32_##id>};                                              \
    }

#endif
