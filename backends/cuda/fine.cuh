/* fine.cuh: an activation in two terms of 8 bits each, for weights in s32 layouts: the values as A8 (a8.cuh), and what that
 * leaves of them as A8 again, with a scale of its own. Two integer dot products a word where one is enough for A8; the weights
 * are read once.
 *
 * fine<F> is format F with such an activation, so matvec.cuh does its rows as those of F. Values as f32 were the alternative:
 * 64 instructions more a group, to convert codes and multiply, where this has 16. */
#ifndef BACKENDS_CUDA_FINE_CUH
#define BACKENDS_CUDA_FINE_CUH

#include "backends/cuda/activation.cuh"

template <class F> struct fine : F {
};

/* What A8 leaves of the four values of a lane. */
__device__ static inline float4 a8_left(float4 x, const struct a8_part &p)
{
    return make_float4(x.x - p.d * (float)(int8_t)p.codes, x.y - p.d * (float)(int8_t)(p.codes >> 8),
                       x.z - p.d * (float)(int8_t)(p.codes >> 16), x.w - p.d * (float)(int8_t)(p.codes >> 24));
}

template <class F> struct act_fine {
    static constexpr int group_bytes = 80; /* of shared memory */
    struct part {
        typename act_a8<F>::part term[2];
    };
    typedef typename act_a8<F>::unpacked unpacked;
    const uint4 *low[2], *high[2]; /* codes of values 0 to 15 and 16 to 31 of both terms */
    const uint4 *head;             /* both scales, both terms' sums */

    /* One row of f32, at a multiple of 16 bytes: eight lanes a group. */
    template <int T>
    __device__ __forceinline__ void stage(const uint8_t *from, size_t, int, uint32_t groups, unsigned char *shared)
    {
        static_assert(T == 1, "tokens are staged one by one");
        const float4 *row = (const float4 *)from;
        const uint32_t word = threadIdx.x & 7, step = blockDim.x / 8;
        uint4 *to = (uint4 *)shared;
        for (uint32_t first = threadIdx.x / 32 * 4; first < groups; first += step) {
            uint32_t g = first + (threadIdx.x & 31) / 8;
            float4 x = __ldcg(row + min(g, groups - 1) * 8 + word);
            struct a8_part p[2];
            p[0] = a8_part_of(x);
            p[1] = a8_part_of(a8_left(x, p[0]));
            if (g >= groups)
                continue;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                ((uint32_t *)(to + (2 * i + word / 4) * groups + g))[word & 3] = p[i].codes;
                uint32_t *h = (uint32_t *)(to + 4 * groups + g);
                if (word == 0)
                    h[i] = __float_as_uint(p[i].d);
                if (word % 4 == 0)
                    ((int16_t *)(h + 2 + i))[word / 4] = (int16_t)p[i].sum;
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            low[i] = to + 2 * i * groups;
            high[i] = to + (2 * i + 1) * groups;
        }
        head = to + 4 * groups;
    }

    __device__ __forceinline__ part read(uint32_t at) const
    {
        uint4 h = head[at];
        const uint32_t d[2] = {h.x, h.y}, sums[2] = {h.z, h.w};
        part p;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 a = low[i][at], b = high[i][at];
            p.term[i] = {{(int)a.x, (int)a.y, (int)a.z, (int)a.w, (int)b.x, (int)b.y, (int)b.z, (int)b.w},
                         __uint_as_float(d[i]),
                         {(int)(int16_t)sums[i], (int)sums[i] >> 16}};
        }
        return p;
    }

    static __device__ __forceinline__ unpacked unpack(const typename F::raw &raw, uint32_t u)
    {
        return act_a8<F>::unpack(raw, u);
    }

    static __device__ __forceinline__ float dot(const unpacked &w, const part &x)
    {
        return act_a8<F>::dot(w, x.term[0]) + act_a8<F>::dot(w, x.term[1]);
    }
};

template <class F> struct activation_of<fine<F>> {
    typedef act_fine<F> type;
};

#endif
