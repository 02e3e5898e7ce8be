/* attention_split.cuh: attention of one token by tiles of 16 positions, a warp each: K and V straight from memory into the
 * fragments of tensor-core products: positions by heads for the scores (A: K, B: Q), then columns by heads for the result (A:
 * V, its pairs of positions woven together by one byte permutation a register; B: the weights, transposed across the warp).
 *
 * K and V are read once for up to eight heads of a group. Which value of a row meets which k index is free as long as both
 * operands agree, so each lane loads 16 neighbouring bytes. Q and the weights are split in two halves each (mma.cuh), so the
 * result is that of f32. In Q8_0 the codes are the operand, and a block's scale multiplies the score's part or the weight. Each
 * warp keeps a maximum, a sum and a result of its own; those of a block are added in order. */
#ifndef BACKENDS_CUDA_ATTENTION_SPLIT_CUH
#define BACKENDS_CUDA_ATTENTION_SPLIT_CUH

#include "backends/cuda/attention.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/reduce.cuh"

enum {
    SPLIT_WARPS = 4,
    SPLIT_THREADS = SPLIT_WARPS * 32,
    SPLIT_HEADS = 8,
    SPLIT_TILE = 16,
    SPLIT_GRAIN = SPLIT_WARPS * SPLIT_TILE
};

/* ---- what a lane loads of a row. D values a row; K comes in chunks of 4 lanes x KEY_VALUES, V of 8 lanes x VALUE_VALUES. */

template <class KIND> struct halves {
    using kind = KIND;
    static constexpr bool scaled = false;
    template <int D> static constexpr int key_values = D % 32 == 0 ? 8 : 4;
    template <int D> static constexpr int value_values = D % 64 == 0 ? 8 : D % 32 == 0 ? 4 : 2;

    /* N values from number `at` on as N / 2 words; zeros where there is no row. */
    template <int N> __device__ static inline void load(const char *row, int at, uint32_t (&w)[N / 2])
    {
        const char *from = row + at * 2;
        if constexpr (N == 8) {
            uint4 x = row ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
            w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
        } else if constexpr (N == 4) {
            uint2 x = row ? *(const uint2 *)from : make_uint2(0, 0);
            w[0] = x.x, w[1] = x.y;
        } else {
            w[0] = row ? *(const uint32_t *)from : 0;
        }
    }
    __device__ static inline float scale(const char *, int)
    {
        return 1;
    }
};

/* Blocks of 32: a chunk lies in one, for K and V. Codes become f16 by way of 1024 + code + 128, whose low byte is the code. */
struct blocks_q8_0 {
    using kind = kind_f16;
    static constexpr bool scaled = true;
    template <int D> static constexpr int key_values = 8;
    template <int D> static constexpr int value_values = 4;

    template <int N> __device__ static inline void load(const char *row, int at, uint32_t (&w)[N / 2])
    {
        const __half2 offset = __floats2half2_rn(1152, 1152);
        const uint16_t *codes = (const uint16_t *)(row + at / 32 * 34 + 2 + at % 32);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            uint32_t pair = __byte_perm(row ? codes[i] ^ 0x8080u : 0x8080u, 0x64646464u, 0x4140);
            __half2 x = __hsub2(*(__half2 *)&pair, offset);
            w[i] = *(uint32_t *)&x;
        }
    }
    __device__ static inline float scale(const char *row, int at)
    {
        return row ? f32_of_f16(*(const uint16_t *)(row + at / 32 * 34)) : 0;
    }
};

/* ---- */

/* A KV head's cells. */
struct split_cache {
    const char *k, *v;
    int64_t k_row, v_row; /* bytes from cell to cell */
    float softcap;
};

/* Eight heads of a token: B fragments of Q's two halves, and what undoes their powers of two. */
template <int D, class C> struct split_queries {
    static constexpr int N = C::template key_values<D>, CHUNKS = D / (4 * N);
    uint32_t upper[CHUNKS][N / 2], lower[CHUNKS][N / 2];
    float scale[2]; /* of heads 2c and 2c + 1 */

    /* row: of the head lane / 4, its values nb0 bytes apart; NULL: there is no such head. */
    __device__ __forceinline__ void load(const char *row, int64_t nb0, float factor)
    {
        int lane = threadIdx.x % WARP, c = lane % 4;
        float x[CHUNKS][N], most = 0;
        if (nb0 == sizeof(float) && (uintptr_t)row % 16 == 0) {
#pragma unroll
            for (int j = 0; j < CHUNKS; j++)
#pragma unroll
                for (int i = 0; i < N; i += 4) {
                    float4 y = row ? *(const float4 *)(row + (j * 4 * N + c * N + i) * sizeof(float)) : make_float4(0, 0, 0, 0);
                    x[j][i] = y.x, x[j][i + 1] = y.y, x[j][i + 2] = y.z, x[j][i + 3] = y.w;
                }
        } else {
#pragma unroll
            for (int j = 0; j < CHUNKS; j++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    x[j][i] = *(const float *)(row + (j * 4 * N + c * N + i) * nb0);
        }
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                x[j][i] *= factor;
                most = fmaxf(most, fabsf(x[j][i]));
            }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float mine = split_scale(most), inverse = 1 / mine;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                C::kind::split(x[j][2 * i] * inverse, x[j][2 * i + 1] * inverse, &upper[j][i], &lower[j][i]);
        scale[0] = __shfl_sync(0xffffffffu, mine, 8 * c);
        scale[1] = __shfl_sync(0xffffffffu, mine, 8 * c + 4);
    }
};

/* A tile's keys: for this lane those of positions g and g + 8. */
template <int D, class C> struct split_keys {
    static constexpr int N = split_queries<D, C>::N, CHUNKS = split_queries<D, C>::CHUNKS;
    const char *row, *row_8; /* NULL: there is no such position */
    uint32_t k[CHUNKS][N / 2], k_8[CHUNKS][N / 2];

    __device__ __forceinline__ void load(const struct split_cache &p, int cell)
    {
        int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
        int at = __shfl_sync(0xffffffffu, cell, g), at_8 = __shfl_sync(0xffffffffu, cell, g + 8);
        row = at < 0 ? NULL : p.k + at * p.k_row;
        row_8 = at_8 < 0 ? NULL : p.k + at_8 * p.k_row;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            C::template load<N>(row, (j * 4 + c) * N, k[j]);
            C::template load<N>(row_8, (j * 4 + c) * N, k_8[j]);
        }
    }

    /* Scores of the 16 positions as a C fragment, positions by heads. Even and odd chunks are summed apart: two chains of
     * products wait for each other half as long as one. */
    __device__ __forceinline__ void scores(const struct split_queries<D, C> &q, float softcap, float (&s)[4]) const
    {
        float upper[2][4] = {}, lower[2][4] = {};
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                uint32_t a[4] = {k[j][2 * i], k_8[j][2 * i], k[j][2 * i + 1], k_8[j][2 * i + 1]};
                C::kind::mma(lower[j % 2], a, q.lower[j][2 * i], q.lower[j][2 * i + 1]);
                C::kind::mma(upper[j % 2], a, q.upper[j][2 * i], q.upper[j][2 * i + 1]);
            }
            if constexpr (C::scaled) { /* a chunk is a block */
                float d = C::scale(row, j * 32), d_8 = C::scale(row_8, j * 32);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    s[i] = fmaf(i < 2 ? d : d_8, upper[j % 2][i] + lower[j % 2][i], j ? s[i] : 0);
                    upper[j % 2][i] = lower[j % 2][i] = 0;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float sum = C::scaled ? s[i] : (upper[0][i] + upper[1][i]) + (lower[0][i] + lower[1][i]);
            s[i] = (i < 2 ? row : row_8) ? attention_cap(softcap, sum * q.scale[i % 2]) : -INFINITY;
        }
    }
};

/* One warp's part of the result: heads 2c and 2c + 1 of the fragments' columns. */
template <int D, class C> struct split_result {
    static constexpr int N = C::template value_values<D>, CHUNKS = D / (8 * N);
    float max[2], sum[2], values[CHUNKS][N / 2][4];
};

/* A tile's values: for this lane those of positions 2c, 2c + 1, 2c + 8 and 2c + 9. */
template <int D, class C> struct split_values {
    static constexpr int N = split_result<D, C>::N, CHUNKS = split_result<D, C>::CHUNKS;
    const char *rows[4];
    uint32_t v[CHUNKS][4][N / 2];

    __device__ __forceinline__ void find(const struct split_cache &p, int cell)
    {
        int c = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int of = __shfl_sync(0xffffffffu, cell, 2 * c + r % 2 + r / 2 * 8);
            rows[r] = of < 0 ? NULL : p.v + of * p.v_row;
        }
    }

    __device__ __forceinline__ void load(void)
    {
        int g = threadIdx.x % WARP / 4;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                C::template load<N>(rows[r], (j * 8 + g) * N, v[j][r]);
    }

    /* w: the positions' weights for head g. */
    __device__ __forceinline__ void add(struct split_result<D, C> &o, const float (&w)[4], const float (&rescale)[2]) const
    {
        uint32_t upper[2], lower[2];
        C::kind::split(w[0], w[1], &upper[0], &lower[0]);
        C::kind::split(w[2], w[3], &upper[1], &lower[1]);
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            float back = 1; /* weights times small scales leave the range where two halves of f16 are exact: up by 64 where that
                               is safe */
            if constexpr (C::scaled) {
                float x[4], most = 0;
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    x[r] = C::scale(rows[r], j * 32);
                    most = fmaxf(most, fabsf(x[r]));
                }
                float up = __any_sync(0xffffffffu, most > 512) ? 1 : 64;
                back = 1 / up;
                C::kind::split(w[0] * x[0] * up, w[1] * x[1] * up, &upper[0], &lower[0]);
                C::kind::split(w[2] * x[2] * up, w[3] * x[3] * up, &upper[1], &lower[1]);
            }
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                uint32_t a[4] = {__byte_perm(v[j][0][i], v[j][1][i], 0x5410), __byte_perm(v[j][0][i], v[j][1][i], 0x7632),
                                 __byte_perm(v[j][2][i], v[j][3][i], 0x5410), __byte_perm(v[j][2][i], v[j][3][i], 0x7632)};
                float part[4] = {0, 0, 0, 0};
                C::kind::mma(part, a, lower[0], lower[1]);
                C::kind::mma(part, a, upper[0], upper[1]);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o.values[j][i][e] = fmaf(o.values[j][i][e], rescale[e % 2], C::scaled ? part[e] * back : part[e]);
            }
        }
    }
};

/* A tile's scores into the running maxima and sums; w: their weights, for split_values, and what the result so far is to be
 * multiplied by. */
template <int D, class C>
__device__ static __forceinline__ void split_weigh(struct split_result<D, C> &o, const float (&s)[4], float (&w)[4],
                                                   float (&rescale)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = fmaxf(s[h], s[h + 2]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 4));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 8));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 16));
        most = fmaxf(most, o.max[h]);
        rescale[h] = attention_weight(o.max[h], most);
        o.max[h] = most;
        w[h] = attention_weight(s[h], most);
        w[h + 2] = attention_weight(s[h + 2], most);
        o.sum[h] = fmaf(o.sum[h], rescale[h], w[h] + w[h + 2]);
    }
    transpose_8x8(&w[0], &w[1]);
    transpose_8x8(&w[2], &w[3]);
}

/* A tile: the cell of position number `lane` of 16 (lanes above hold none), or -1. */
template <int D, class C>
__device__ static __forceinline__ void split_tile(const struct split_cache &p, const struct split_queries<D, C> &q,
                                                  struct split_result<D, C> &o, int cell)
{
    struct split_keys<D, C> keys;
    struct split_values<D, C> values;
    float s[4], w[4], rescale[2];
    keys.load(p, cell);
    values.find(p, cell);
    if (D <= 128) /* registers for both */
        values.load();
    keys.scores(q, p.softcap, s);
    if (D > 128)
        values.load();
    split_weigh<D, C>(o, s, w, rescale);
    values.add(o, w, rescale);
}

/* A head's sum over the lanes that have positions of it: all of them know it. */
__device__ static __forceinline__ float split_sum(float sum)
{
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 16);
}

/* The warps' results, with their maxima and sums, into shared memory; a barrier follows. */
template <int D, class C>
__device__ static __forceinline__ void split_gather(const struct split_result<D, C> &o, float (*all)[SPLIT_HEADS][D],
                                                    float (*stats)[SPLIT_HEADS][2])
{
    constexpr int N = split_result<D, C>::N, CHUNKS = split_result<D, C>::CHUNKS;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = split_sum(o.sum[h]);
        if (g == 0) {
            stats[warp][2 * c + h][0] = o.max[h];
            stats[warp][2 * c + h][1] = sum;
        }
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                all[warp][2 * c + e % 2][(j * 8 + g) * N + 2 * i + e / 2] = o.values[j][i][e];
    __syncthreads();
}

/* The warps' parts of a head's column, added in order; and those of its sum. */
template <int D>
__device__ static __forceinline__ float split_add(float (*all)[SPLIT_HEADS][D], float (*stats)[SPLIT_HEADS][2], int h,
                                                  int column, float *most, float *sum)
{
    float value = 0;
    *most = -INFINITY;
    *sum = 0;
    for (int w = 0; w < SPLIT_WARPS; w++)
        *most = fmaxf(*most, stats[w][h][0]);
    for (int w = 0; w < SPLIT_WARPS; w++) {
        float weight = attention_weight(stats[w][h][0], *most);
        *sum = fmaf(weight, stats[w][h][1], *sum);
        value = fmaf(weight, all[w][h][column], value);
    }
    return value;
}

#endif
