/* activation.cuh: the two sides of a matrix product by rows, a group of a weight's row and the same group of a token: quantised
 * weights in s32 layouts with A8 tokens (act_a8), and weights of single values, in rows, with f32 tokens (act_f32).
 *
 * Tokens lie in shared memory, [token][group]. Blocks of A8 lie there as they do in device memory, 40 bytes apart: eight bytes a load,
 * half of a warp's lanes are in 16 different pairs of banks, and the row comes in by copies of 16 bytes, all at once and through no
 * register. Three stretches, for loads of 16 bytes, take as many passes, and as many trips to the second-level cache as a row has
 * thousands of values: a microsecond each, in which the memory waits. */
#ifndef BACKENDS_CUDA_ACTIVATION_CUH
#define BACKENDS_CUDA_ACTIVATION_CUH

#include "backends/cuda/a8.cuh"
#include "backends/cuda/product.cuh"
#include "backends/cuda/ptx.cuh"

/* ---- A8 */

/* What lane `word` of eight, each with four values of block g of a row, has of it, into the row at `blocks`. */
__device__ static __forceinline__ void a8_put(unsigned char *blocks, uint32_t g, uint32_t word, const struct a8_part &p)
{
    unsigned char *block = blocks + g * sizeof(struct block_a8);
    ((uint32_t *)block)[2 + word] = p.codes;
    if (word == 0)
        *(float *)block = p.d;
    if (word % 4 == 0)
        ((int16_t *)block)[2 + word / 4] = (int16_t)p.sum;
}

template <class F> struct act_a8 {
    static constexpr int group_bytes = 40; /* of shared memory, a token */
    struct part {
        int q[8];
        float d;
        int sum[2];
    };
    struct unpacked {
        uint32_t code[8];
        float scale[2], min[2];
    };
    const unsigned char *blocks;

    /* T rows from `from` on; behind the last of `tokens` it is repeated. Block-wide: the next barrier ends it. */
    template <int T>
    __device__ __forceinline__ void stage(const uint8_t *from, size_t stride, int tokens, uint32_t groups,
                                          unsigned char *shared)
    {
        const uint32_t bytes = groups * group_bytes;
        blocks = shared;
        if (((uintptr_t)from | (T > 1 ? stride | bytes : 0)) % 16 == 0) {
            const uint32_t lines = bytes / 16;
#pragma unroll
            for (int t = 0; t < T; t++) {
                const uint8_t *row = from + (size_t)(t < tokens ? t : tokens - 1) * stride;
                for (uint32_t i = threadIdx.x; i < lines; i += blockDim.x)
                    copy_16_async(shared + t * bytes + 16 * i, row + 16 * i, row);
                if (bytes % 16 && threadIdx.x == 0)
                    ((uint2 *)(shared + t * bytes))[2 * lines] = __ldcg((const uint2 *)row + 2 * lines);
            }
            copies_commit();
            copies_wait<0>();
            return;
        }
        for (int t = 0; t < T; t++) {
            const uint2 *row = (const uint2 *)(from + (size_t)(t < tokens ? t : tokens - 1) * stride);
            for (uint32_t i = threadIdx.x; i < bytes / 8; i += blockDim.x)
                ((uint2 *)(shared + t * bytes))[i] = __ldcg(row + i);
        }
    }

    /* One row of f32, at a multiple of 16 bytes, quantised on the way: the codes and scales of a quantize node. It comes to `room`,
     * groups * 128 bytes of shared memory, all at once; each thread takes what it has copied itself. */
    __device__ __forceinline__ void stage_f32(const float *row, uint32_t groups, unsigned char *shared, unsigned char *room)
    {
        const uint32_t chunks = groups * 8, word = threadIdx.x & 7;
        for (uint32_t c = threadIdx.x; c < chunks; c += blockDim.x)
            copy_16_async(room + 16 * c, (const float4 *)row + c, row);
        copies_commit();
        copies_wait<0>();
        for (uint32_t first = threadIdx.x & ~31u; first < chunks; first += blockDim.x) {
            const uint32_t c = first + (threadIdx.x & 31);
            struct a8_part p = a8_part_of(c < chunks ? ((const float4 *)room)[c] : make_float4(0, 0, 0, 0));
            if (c < chunks)
                a8_put(shared, c / 8, word, p);
        }
        blocks = shared;
    }

    /* One row of f32 under an rms_norm and a mul by its weight (ops/rms_norm.c), quantised. Each block does it for itself. */
    template <int WARPS>
    __device__ __forceinline__ void stage_norm(const float *row, const float *weight, float eps, uint32_t groups, unsigned char *shared,
                                               float *room)
    {
        constexpr int STEPS = PRODUCT_NORM / (128 * WARPS); /* of a row, all of them */
        const uint32_t chunks = groups * 8, word = threadIdx.x & 7;
        float4 v[STEPS], w[STEPS];
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            uint32_t c = threadIdx.x + j * 32 * WARPS;
            v[j] = c < chunks ? __ldcg((const float4 *)row + c) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            uint32_t c = threadIdx.x + j * 32 * WARPS;
            w[j] = c < chunks ? ((const float4 *)weight)[c] : make_float4(0, 0, 0, 0);
        }
        float squares = 0;
#pragma unroll
        for (int j = 0; j < STEPS; j++)
            squares += (v[j].x * v[j].x + v[j].y * v[j].y) + (v[j].z * v[j].z + v[j].w * v[j].w);
        squares = block_sum(squares, room);
        float scale = 1 / sqrtf(squares / (float)(groups * 32) + eps);
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            uint32_t g = (threadIdx.x + j * 32 * WARPS) / 8;
            if (j * 4 * WARPS >= groups)
                break;
            struct a8_part p = a8_part_of(make_float4(v[j].x * scale * w[j].x, v[j].y * scale * w[j].y, v[j].z * scale * w[j].z,
                                                      v[j].w * scale * w[j].w));
            if (g < groups)
                a8_put(shared, g, word, p);
        }
        blocks = shared;
    }

    __device__ __forceinline__ part read(uint32_t at) const
    {
        const uint2 *p = (const uint2 *)(blocks + at * group_bytes);
        uint2 h = p[0], a = p[1], b = p[2], c = p[3], d = p[4];
        return {{(int)a.x, (int)a.y, (int)b.x, (int)b.y, (int)c.x, (int)c.y, (int)d.x, (int)d.y},
                __uint_as_float(h.x),
                {(int)(int16_t)h.y, (int)h.y >> 16}};
    }

    static __device__ __forceinline__ unpacked unpack(const typename F::raw &raw, uint32_t u)
    {
        unpacked w;
        F::codes(raw, w.code);
        F::scales(raw, u, w.scale, w.min);
        return w;
    }

    static __device__ __forceinline__ float dot(const unpacked &w, const part &x)
    {
        float v;
        int sum = x.sum[0] + x.sum[1], dots[2];
        dots[0] = F::halves ? -F::offset * x.sum[0] : -F::offset * sum;
        dots[1] = F::halves ? -F::offset * x.sum[1] : 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            dots[i / 4] = __dp4a((int)w.code[i], x.q[i], dots[i / 4]);
        if constexpr (F::halves)
            v = w.scale[0] * (float)dots[0] + w.scale[1] * (float)dots[1];
        else
            v = w.scale[0] * (float)(dots[0] + dots[1]);
        if constexpr (F::mins && F::halves)
            v += w.min[0] * (float)x.sum[0] + w.min[1] * (float)x.sum[1];
        else if constexpr (F::mins)
            v += w.min[0] * (float)sum;
        return v * x.d;
    }
};

/* ---- f32 */

/* Weights of single values: a group is 16 bytes of a row. */
struct rows_f16 {
    static constexpr enum format_id format = FORMAT_F16;
    static constexpr int values = 8, wide = 4;
    static __device__ __forceinline__ void unpack(const words4 &r, float *v)
    {
        const uint32_t w[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = float_of_half(w[i]);
            v[2 * i + 1] = float_of_half(w[i] >> 16);
        }
    }
};

struct rows_bf16 {
    static constexpr enum format_id format = FORMAT_BF16;
    static constexpr int values = 8, wide = 4;
    static __device__ __forceinline__ void unpack(const words4 &r, float *v)
    {
        const uint32_t w[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = __uint_as_float(w[i] << 16);
            v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
    }
};

struct rows_f32 {
    static constexpr enum format_id format = FORMAT_F32;
    static constexpr int values = 4, wide = 4;
    static __device__ __forceinline__ void unpack(const words4 &r, float *v)
    {
        v[0] = __uint_as_float(r.x);
        v[1] = __uint_as_float(r.y);
        v[2] = __uint_as_float(r.z);
        v[3] = __uint_as_float(r.w);
    }
};

template <class S> struct single {
    typedef words4 raw;
    static constexpr enum format_id format = S::format;
    static constexpr int bytes[4] = {16, 0, 0, 0}, block = 32, wide = S::wide; /* as if a group were a block */
    template <class M> static __device__ __forceinline__ raw load(const M &m, uint32_t u)
    {
        return m.load_16(0, m.at(u, 16));
    }
};

template <class S> struct act_f32 {
    static constexpr int group_bytes = S::values * 4;
    struct part {
        float v[S::values];
    };
    typedef part unpacked;
    const float4 *quad[S::values / 4];

    template <int T>
    __device__ __forceinline__ void stage(const uint8_t *from, size_t stride, int tokens, uint32_t groups,
                                          unsigned char *shared)
    {
        constexpr int QUADS = S::values / 4;
        float4 *to = (float4 *)shared;
#pragma unroll
        for (int t = 0; t < T; t++) {
            const float4 *row = (const float4 *)(from + (size_t)(t < tokens ? t : tokens - 1) * stride);
            for (uint32_t i = threadIdx.x; i < groups * QUADS; i += blockDim.x)
                to[(i % QUADS * T + t) * groups + i / QUADS] = __ldcg(row + i);
        }
#pragma unroll
        for (int q = 0; q < QUADS; q++)
            quad[q] = to + q * T * groups;
    }

    __device__ __forceinline__ part read(uint32_t at) const
    {
        part p;
#pragma unroll
        for (int q = 0; q < S::values / 4; q++) {
            float4 x = quad[q][at];
            p.v[4 * q] = x.x;
            p.v[4 * q + 1] = x.y;
            p.v[4 * q + 2] = x.z;
            p.v[4 * q + 3] = x.w;
        }
        return p;
    }

    static __device__ __forceinline__ unpacked unpack(const words4 &raw, uint32_t)
    {
        unpacked w;
        S::unpack(raw, w.v);
        return w;
    }

    static __device__ __forceinline__ float dot(const unpacked &w, const part &x)
    {
        float v = 0;
#pragma unroll
        for (int i = 0; i < S::values; i++)
            v += w.v[i] * x.v[i];
        return v;
    }
};

/* The activation that weights of format F meet. */
template <class F> struct activation_of {
    typedef act_a8<F> type;
};
template <class S> struct activation_of<single<S>> {
    typedef act_f32<S> type;
};
template <class F> constexpr bool is_single = false;
template <class S> constexpr bool is_single<single<S>> = true;
template <class F> using activation = typename activation_of<F>::type;

#endif
