/* matvec.cuh: decode: up to four weight matrices times one to eight tokens of one activation (activation.cuh), in one launch.
 *
 * A warp has a range of rows of its own and runs along them, a lane a group of 32 values (or of 16 bytes): 16 bytes of codes a
 * load, a warp's load one stretch of 512 bytes. Two batches of `wide` groups are in flight a lane: of up to four rows, which
 * then share what is read of the activation, or, where a warp has fewer, further along the row. Lanes are added once a row, by
 * halves. Rows are dealt out in contiguous ranges over all warps that the device holds at once, so no second wave of blocks
 * finds it empty. Where there are fewer rows than warps, `split` warps of a block share a row and are added in their order.
 *
 * Weights depend on nothing that runs, so a warp asks for its first two batches before it waits for the kernel ahead of this
 * one. More of them, into the second-level cache, is no gain: what they delay is the activation, which all wait for.
 *
 * Bound: bytes of weights. Per group: 8 integer dot products, 12 instructions to unpack nibbles, and about 10 more: a quarter
 * of the issue slots at full bandwidth, for one token; at eight tokens the dot products are the bound. */
#ifndef BACKENDS_CUDA_MATVEC_CUH
#define BACKENDS_CUDA_MATVEC_CUH

#include "backends/cuda/activation.cuh"

/* ---- one group of R rows */

template <class F, int T, int R>
__device__ __forceinline__ void mv_group(const typename F::raw *raw, const uint32_t *first, uint32_t g, uint32_t groups,
                                         const activation<F> &x, float (*acc)[T])
{
    if constexpr (T == 1) {
        typename activation<F>::part part = x.read(g);
#pragma unroll
        for (int r = 0; r < R; r++)
            acc[r][0] += activation<F>::dot(activation<F>::unpack(raw[r], first[r] + g), part);
    } else {
        typename activation<F>::unpacked w[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            w[r] = activation<F>::unpack(raw[r], first[r] + g);
#pragma unroll
        for (int t = 0; t < T; t++) {
            typename activation<F>::part part = x.read(t * groups + g);
#pragma unroll
            for (int r = 0; r < R; r++)
                acc[r][t] += activation<F>::dot(w[r], part);
        }
    }
}

/* ---- R rows, each lane from group `from` on in steps of `step`. PAIR: half of the rows in each of two matrices. */

template <class F, int R, int U, bool PAIR> struct mv_loads {
    typename F::raw raw[U][R];
    __device__ __forceinline__ void fetch(const s32_matrix &m, const s32_matrix &second, const uint32_t *first, uint32_t g,
                                          uint32_t step, uint32_t groups)
    {
        /* Behind the row's end its last group, which is not used: a load that is not skipped needs no branch. */
#pragma unroll
        for (int u = 0; u < U; u++) {
            uint32_t at = min(g + u * step, groups - 1);
#pragma unroll
            for (int r = 0; r < R; r++)
                raw[u][r] = F::load(PAIR && r >= R / 2 ? second : m, first[r] + at);
        }
    }
};

template <class F, int T, int R, int U, bool PAIR>
__device__ __forceinline__ void mv_multiply(const mv_loads<F, R, U, PAIR> &loads, const uint32_t *first, uint32_t g, uint32_t step,
                                            uint32_t groups, const activation<F> &x, float (*acc)[T])
{
#pragma unroll
    for (int u = 0; u < U; u++)
        if (g + u * step < groups)
            mv_group<F, T, R>(loads.raw[u], first, g + u * step, groups, x, acc);
}

/* `ready` is called once the first loads are on their way. */
template <class F, int T, int R, int U, bool PAIR, class READY>
__device__ __forceinline__ void mv_rows(const s32_matrix &m, const s32_matrix &second, uint32_t row, uint32_t groups,
                                        const activation<F> &x, uint32_t from, uint32_t step, float (*acc)[T], READY &&ready)
{
    uint32_t first[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        first[r] = (row + (PAIR ? r % (R / 2) : r)) * groups;
#pragma unroll
        for (int t = 0; t < T; t++)
            acc[r][t] = 0;
    }
    mv_loads<F, R, U, PAIR> now, next;
    now.fetch(m, second, first, from, step, groups);
    next.fetch(m, second, first, from + U * step, step, groups);
    ready();
    for (uint32_t g = from; g < groups; g += 2 * U * step) { /* two names, since a copy of one to the other waits for its loads */
        mv_multiply<F, T, R, U, PAIR>(now, first, g, step, groups, x, acc);
        now.fetch(m, second, first, g + 2 * U * step, step, groups);
        mv_multiply<F, T, R, U, PAIR>(next, first, g + U * step, step, groups, x, acc);
        next.fetch(m, second, first, g + 3 * U * step, step, groups);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int t = 0; t < T; t++)
            acc[r][t] = warp_sum(acc[r][t]);
}

/* ---- results: all lanes have them */

/* v[lane] for the first N lanes. */
template <int N> __device__ __forceinline__ float mv_own(const float (*v)[1])
{
    const int lane = threadIdx.x & 31;
    float own = v[0][0];
#pragma unroll
    for (int r = 1; r < N; r++)
        own = lane == r ? v[r][0] : own;
    return own;
}

/* What is added to the rows' results: a lane has that of its row. Asked for before the rows are multiplied. */
template <int T, int R, bool PAIR>
__device__ __forceinline__ float mv_add(const struct product_args &a, int matrix, uint32_t row)
{
    const int lane = threadIdx.x & 31;
    const float *add = PAIR || T > 1 ? NULL : a.matrix[matrix].add;
    return add && lane < R ? add[row + lane] : 0;
}

template <int T, int R, bool PAIR>
__device__ __forceinline__ void mv_store(const struct product_args &a, int matrix, uint32_t row, float (*acc)[T], float add)
{
    const int lane = threadIdx.x & 31;
    if constexpr (PAIR) {
        const float gate = mv_own<R / 2>(acc), up = mv_own<R / 2>(acc + R / 2);
        if (lane < R / 2)
            (void)product_store_pair(a, row + lane, 0, gate, up);
    } else if constexpr (T == 1) {
        const float v = mv_own<R>(acc);
        if (lane < R)
            product_store(a.matrix[matrix], row + lane, 0, v, add);
    } else if (lane == 0) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < T; t++)
                if (t < a.tokens)
                    product_store(a.matrix[matrix], row + r, t, acc[r][t]);
    }
}

template <class F, int T, int R, int U, bool PAIR, class READY>
__device__ __forceinline__ void mv_pass(const struct product_args &a, int matrix, uint32_t row, const activation<F> &x,
                                        READY &&ready)
{
    float acc[R][T], add = 0;
    mv_rows<F, T, R, U, PAIR>(a.matrix[matrix].weight, a.matrix[PAIR ? 1 : 0].weight, row, a.groups, x, threadIdx.x & 31, 32, acc,
                              [&] {
                                  ready();
                                  add = mv_add<T, R, PAIR>(a, matrix, row);
                              });
    mv_store<T, R, PAIR>(a, matrix, row, acc, add);
}

/* One row, or pair of rows, shared by a.split warps of the block; `partial` is shared memory. All warps come here once. */
template <class F, int T, int U, bool PAIR, class READY>
__device__ __forceinline__ void mv_split(const struct product_args &a, int matrix, uint32_t row, bool any,
                                         const activation<F> &x, float (*partial)[PAIR ? 2 : 1][T], READY &&ready)
{
    constexpr int R = PAIR ? 2 : 1;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = warp % a.split;
    float acc[R][T], add = 0;
    if (any) {
        mv_rows<F, T, R, U, PAIR>(a.matrix[matrix].weight, a.matrix[PAIR ? 1 : 0].weight, row, a.groups, x, part * 32 + lane,
                                  32 * a.split, acc, [&] {
                                      ready();
                                      add = part == 0 ? mv_add<T, R, PAIR>(a, matrix, row) : 0;
                                  });
        if (lane == 0)
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int t = 0; t < T; t++)
                    partial[warp][r][t] = acc[r][t];
    } else {
        ready();
    }
    __syncthreads();
    if (any && part == 0) {
        for (int p = 1; p < a.split; p++)
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int t = 0; t < T; t++)
                    acc[r][t] += partial[warp + p][r][t];
        mv_store<T, R, PAIR>(a, matrix, row, acc, add);
    }
}

/* Blocks a multiprocessor: as many as registers allow without spilling. */
template <class F, int T> constexpr int mv_resident = T == 1 && sizeof(typename F::raw) <= 20 ? 3 : 2;

/* A block's shared memory: T tokens, and behind them MV_SUMS floats a token, in which its warps give each other sums. It
 * declares none: that would count against the same limits without the host, which asks for a size, seeing it. */
enum { MV_SUMS = 32 };
static_assert(MV_SUMS >= 2 * PRODUCT_WARPS, "a pair's sums of all warps, or 32 rows' results");

template <class F, int T> HD size_t mv_staged(uint32_t groups)
{
    return (size_t)T * groups * activation<F>::group_bytes;
}

/* Where an f32 row comes to, to be quantised: behind what one token needs. */
template <class F> HD size_t mv_room(uint32_t groups)
{
    return (mv_staged<F, 1>(groups) + MV_SUMS * sizeof(float) + 15) / 16 * 16;
}

/* FROM_F32: the activation is quantised by each block: less work than a launch of its own, where rows are short. */
template <class F, int T, bool PAIR, bool FROM_F32>
__global__ void __launch_bounds__(32 * PRODUCT_WARPS, mv_resident<F, T>) matvec(const __grid_constant__ struct product_args a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    /* Groups in flight; rows of one row's work; and how many such are done together, at most four. */
    constexpr int WIDE = T >= 4 ? 2 : F::wide, LEAST = PAIR ? 2 : 1, TWO = WIDE >= 2 * LEAST ? 2 : 1,
                  FOUR = WIDE >= 4 * LEAST ? 4 : TWO;
    cuda_release();
    uint32_t warp = threadIdx.x >> 5, share = PRODUCT_WARPS / a.split, slots = gridDim.x * share,
             slot = blockIdx.x * share + warp / a.split;
    uint32_t row = (uint32_t)((uint64_t)a.rows * slot / slots), last = (uint32_t)((uint64_t)a.rows * (slot + 1) / slots);
    activation<F> x;
    bool waits = true;
    auto ready = [&] { /* the first loads of each warp are on their way when it waits */
        if (!waits)
            return;
        waits = false;
        cuda_wait();
        if constexpr (FROM_F32)
            x.stage_f32((const float *)a.x, a.groups, shared, shared + mv_room<F>(a.groups));
        else
            x.template stage<T>(a.x, a.x_stride, a.tokens, a.groups, shared);
        __syncthreads();
    };
    if (a.split > 1) {
        uint32_t in = row;
        int matrix = PAIR ? 0 : product_matrix(a, &in);
        mv_split<F, T, WIDE / LEAST, PAIR>(a, matrix, in, row < last, x,
                                           (float(*)[LEAST][T])(shared + mv_staged<F, T>(a.groups)), ready);
        return;
    }
    while (row < last) {
        uint32_t in = row, n = last - row;
        int matrix = 0;
        if (!PAIR) {
            matrix = product_matrix(a, &in);
            n = min(n, a.matrix[matrix].rows - in);
        }
        if (FOUR > 2 && n >= 4) {
            mv_pass<F, T, FOUR * LEAST, WIDE / (FOUR * LEAST), PAIR>(a, matrix, in, x, ready);
            n = 4;
        } else if (TWO > 1 && n >= 2) {
            mv_pass<F, T, TWO * LEAST, WIDE / (TWO * LEAST), PAIR>(a, matrix, in, x, ready);
            n = 2;
        } else {
            mv_pass<F, T, LEAST, WIDE / LEAST, PAIR>(a, matrix, in, x, ready);
            n = 1;
        }
        row += n;
    }
    ready(); /* a warp without rows has staged its share too */
}

/* Gate and up of one token, and their glu as A8: 32 rows a block of threads, four pairs a warp. */
template <class F>
__global__ void __launch_bounds__(32 * PRODUCT_WARPS, mv_resident<F, 1>)
    matvec_a8(const __grid_constant__ struct product_args a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    float *y = (float *)(shared + mv_staged<F, 1>(a.groups));
    constexpr int R = F::wide < 4 ? F::wide : 4, PAIRS = R / 2;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t first = blockIdx.x * 32 + warp * 4;
    cuda_release();
    activation<F> x;
    bool waits = true;
    auto ready = [&] {
        if (!waits)
            return;
        waits = false;
        cuda_wait();
        x.template stage<1>(a.x, a.x_stride, 1, a.groups, shared);
        __syncthreads();
    };
#pragma unroll 1
    for (int i = 0; i < 4; i += PAIRS) {
        float acc[R][1];
        mv_rows<F, 1, R, F::wide / R, true>(a.matrix[0].weight, a.matrix[1].weight, first + i, a.groups, x, lane, 32, acc, ready);
        const float gate = mv_own<PAIRS>(acc), up = mv_own<PAIRS>(acc + PAIRS);
        if (lane < PAIRS)
            y[4 * warp + i + lane] = product_store_pair(a, first + i + lane, 0, gate, up);
    }
    __syncthreads();
    if (warp == 0)
        a8_store_1((struct block_a8 *)a.quantized + blockIdx.x, y[lane]);
}

/* ---- the host's side */

template <class F, int T> static int mv_launch(const struct exec *x, struct product_args a, bool pair)
{
    size_t shared = a.from_f32 ? mv_room<F>(a.groups) + (size_t)a.groups * 128 : mv_staged<F, T>(a.groups) + T * MV_SUMS * sizeof(float);
    int blocks = cuda_units(x->device) * product_resident(shared, mv_resident<F, T>);
    a.split = product_split(a.rows, a.groups, blocks);
    uint32_t share = PRODUCT_WARPS / a.split, needed = (a.rows + share - 1) / share;
    dim3 grid(needed < (uint32_t)blocks ? needed : (uint32_t)blocks);
    dim3 threads(32 * PRODUCT_WARPS);
    if constexpr (T == 1 && !is_single<F>) {
        if (a.from_f32)
            return cuda_launch(x, matvec<F, 1, false, true>, grid, threads, shared, a);
        if (a.quantized)
            return cuda_launch(x, matvec_a8<F>, dim3(a.rows / 32), threads, shared, a);
    }
    if constexpr (T == 1) {
        if (pair)
            return cuda_launch(x, matvec<F, 1, true, false>, grid, threads, shared, a);
    }
    return cuda_launch(x, matvec<F, T, false, false>, grid, threads, shared, a);
}

/* All tokens of the node, at most eight at a time, and no more than shared memory holds; of a pair there is one. */
template <class F> static int mv_run(const struct exec *x, struct product_args a, bool pair)
{
    int rc = 0;
    for (int left = a.tokens; left > 0 && !rc;) {
        int most = (int)(PRODUCT_SHARED / ((size_t)a.groups * activation<F>::group_bytes));
        a.tokens = left > 4 && most >= 8   ? (left < 8 ? left : 8)
                   : left > 2 && most >= 4 ? (left < 4 ? left : 4)
                   : left > 1 && most >= 2 ? 2
                                           : 1;
        rc = a.tokens > 4   ? mv_launch<F, 8>(x, a, pair)
             : a.tokens > 2 ? mv_launch<F, 4>(x, a, pair)
             : a.tokens > 1 ? mv_launch<F, 2>(x, a, pair)
                            : mv_launch<F, 1>(x, a, pair);
        left -= a.tokens;
        product_advance(&a);
    }
    return rc;
}

#endif
