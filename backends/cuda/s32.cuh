/* s32.cuh: the s32 layouts (formats/s32.h) as a lane sees them: for each format a struct s32_<format> that loads the bytes of
 * one group of 32 values and turns them into eight words of four signed codes, and scales.
 *
 * A group's value: scale[h] * (code - offset) + min[h], h the half (16 values) it is in. Formats without `halves` have one
 * scale, in [0]; min is left alone where `mins` is false. `load` is kept apart from what follows, so that loads can stand far
 * ahead of their use; a group is named by its number in the whole matrix, row * (k / 32) + place in the row, in 32 bits: 2^37
 * values.
 *
 * All of this compiles as plain C++ too, where a test holds it to the formats' own unpack (tests/test_cuda_unpack.cc). */
#ifndef BACKENDS_CUDA_S32_CUH
#define BACKENDS_CUDA_S32_CUH

#include "backends/cuda/s32_matrix.cuh"
#include "formats/formats.h"

#include <stdint.h>
#include <string.h>

/* ---- numbers */

HD float float_of_bits(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
#endif
}

/* The low 16 bits as binary16. */
HD float float_of_half(uint32_t h)
{
#ifdef __CUDA_ARCH__
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)h));
    return f;
#else
    uint32_t sign = (h & 0x8000) << 16, a = h & 0x7fff;
    if (a >= 0x7c00)
        return float_of_bits(sign | 0x7f800000u | (a & 0x3ff) << 13);
    if (a >= 0x0400)
        return float_of_bits(sign | ((a << 13) + 0x38000000u));
    float f = (float)a * 0x1p-24f;
    return sign ? -f : f;
#endif
}

/* Bytes selected from the eight of a (0 to 3) and b (4 to 7) by the low three bits of the selector's four nibbles. */
HD uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, selector);
#else
    uint64_t from = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(from >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return r;
#endif
}

/* ---- codes */

/* Nibbles of 16 bytes: words 0 to 3 are the low ones, 4 to 7 the high ones. */
HD void codes_of_nibbles(const words4 &q, uint32_t *c)
{
    c[0] = q.x & 0x0f0f0f0fu;
    c[1] = q.y & 0x0f0f0f0fu;
    c[2] = q.z & 0x0f0f0f0fu;
    c[3] = q.w & 0x0f0f0f0fu;
    c[4] = q.x >> 4 & 0x0f0f0f0fu;
    c[5] = q.y >> 4 & 0x0f0f0f0fu;
    c[6] = q.z >> 4 & 0x0f0f0f0fu;
    c[7] = q.w >> 4 & 0x0f0f0f0fu;
}

/* Adds single bits: bit v of byte i belongs to byte i of word v, at bit AT there. */
template <int AT> HD void codes_add_bits(uint32_t high, uint32_t *c)
{
    const uint32_t mask = 0x01010101u << AT;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int v = 0; v < 8; v++)
        c[v] |= (v <= AT ? high << (AT > v ? AT - v : 0) : high >> (v > AT ? v - AT : 0)) & mask;
}

/* Pairs of bits at bit AT: word 2 s + h takes bits 2 s of word h of the pair. */
template <int AT> HD uint32_t codes_pair(const words2 &q, int v)
{
    uint32_t word = v & 1 ? q.y : q.x;
    int from = v >> 1 << 1;
    return (from >= AT ? word >> (from - AT) : word << (AT - from)) & 0x03030303u << AT;
}

/* Eight nibbles as indices of a table of 16 bytes in four words; the first four in lo, in the order of the word's nibbles. */
HD uint32_t codes_lookup(uint32_t nibbles, const uint32_t *table)
{
    uint32_t index = nibbles & 0x7777u;
    uint32_t small = permute_bytes(table[0], table[1], index), large = permute_bytes(table[2], table[3], index);
    return permute_bytes(small, large, 0x3210u | (nibbles & 0x8888u) >> 1);
}

HD void codes_of_table(const words4 &q, const uint32_t *table, uint32_t *c)
{
    const uint32_t w[4] = {q.x, q.y, q.z, q.w};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int v = 0; v < 4; v++) {
        uint32_t front = codes_lookup(w[v], table), back = codes_lookup(w[v] >> 16, table);
        c[v] = permute_bytes(front, back, 0x6420);
        c[v + 4] = permute_bytes(front, back, 0x7531);
    }
}

/* The scale and minimum of a group of Q4_K and Q5_K: d and dmin, its byte, and the byte of its nibble. */
struct kquant_raw {
    uint32_t d, low, high;
};

/* From stream i and, d and dmin, the next. */
template <int i, class M> HD kquant_raw kquant_load(const M &m, uint32_t u)
{
    auto block = m.at(u >> 3, 12);
    return {m.load_4(i + 1, m.at(u >> 3, 4)), m.load_1(i, block + (u & 7)), m.load_1(i, block + 8 + ((u & 7) >> 1))};
}

HD void kquant_scale_min(const kquant_raw &r, uint32_t u, float *scale, float *min)
{
    uint32_t s = r.low & 63, m = r.low >> 6 | (r.high >> 4 * (u & 1) & 15) << 2;
    *scale = float_of_half(r.d) * (float)s;
    *min = -float_of_half(r.d >> 16) * (float)m;
}

/* ---- the formats */

struct s32_q4_0 {
    static constexpr enum format_id format = FORMAT_Q4_0;
    static constexpr int bytes[4] = {16, 2, 0, 0}, block = 32, offset = 8, wide = 4;
    static constexpr bool halves = false, mins = false;
    struct raw {
        words4 q;
        uint32_t d;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_2(1, m.at(u, 2))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *)
    {
        scale[0] = float_of_half(r.d);
    }
};

struct s32_q4_1 {
    static constexpr enum format_id format = FORMAT_Q4_1;
    static constexpr int bytes[4] = {16, 4, 0, 0}, block = 32, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = true;
    struct raw {
        words4 q;
        uint32_t dm;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_4(1, m.at(u, 4))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *min)
    {
        scale[0] = float_of_half(r.dm);
        min[0] = float_of_half(r.dm >> 16);
    }
};

struct s32_q5_0 {
    static constexpr enum format_id format = FORMAT_Q5_0;
    static constexpr int bytes[4] = {16, 4, 2, 0}, block = 32, offset = 16, wide = 4;
    static constexpr bool halves = false, mins = false;
    struct raw {
        words4 q;
        uint32_t high, d;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_4(1, m.at(u, 4)),
                m.load_2(2, m.at(u, 2))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
        codes_add_bits<4>(r.high, c);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *)
    {
        scale[0] = float_of_half(r.d);
    }
};

struct s32_q5_1 {
    static constexpr enum format_id format = FORMAT_Q5_1;
    static constexpr int bytes[4] = {16, 4, 4, 0}, block = 32, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = true;
    struct raw {
        words4 q;
        uint32_t high, dm;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_4(1, m.at(u, 4)),
                m.load_4(2, m.at(u, 4))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
        codes_add_bits<4>(r.high, c);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *min)
    {
        scale[0] = float_of_half(r.dm);
        min[0] = float_of_half(r.dm >> 16);
    }
};

struct s32_q8_0 {
    static constexpr enum format_id format = FORMAT_Q8_0;
    static constexpr int bytes[4] = {16, 16, 2, 0}, block = 32, offset = 0, wide = 2;
    static constexpr bool halves = false, mins = false;
    struct raw {
        words4 low, high;
        uint32_t d;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_16(1, m.at(u, 16)),
                m.load_2(2, m.at(u, 2))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        c[0] = r.low.x, c[1] = r.low.y, c[2] = r.low.z, c[3] = r.low.w;
        c[4] = r.high.x, c[5] = r.high.y, c[6] = r.high.z, c[7] = r.high.w;
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *)
    {
        scale[0] = float_of_half(r.d);
    }
};

struct s32_q4_K {
    static constexpr enum format_id format = FORMAT_Q4_K;
    static constexpr int bytes[4] = {128, 12, 4, 0}, block = 256, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = true;
    struct raw {
        words4 q;
        kquant_raw scales;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), kquant_load<1>(m, u)};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
    }
    static HD void scales(const raw &r, uint32_t u, float *scale, float *min)
    {
        kquant_scale_min(r.scales, u, scale, min);
    }
};

struct s32_q5_K {
    static constexpr enum format_id format = FORMAT_Q5_K;
    static constexpr int bytes[4] = {128, 32, 12, 4}, block = 256, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = true;
    struct raw {
        words4 q;
        uint32_t high;
        kquant_raw scales;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_4(1, m.at(u, 4)),
                kquant_load<2>(m, u)};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
        codes_add_bits<4>(r.high, c);
    }
    static HD void scales(const raw &r, uint32_t u, float *scale, float *min)
    {
        kquant_scale_min(r.scales, u, scale, min);
    }
};

struct s32_q6_K {
    static constexpr enum format_id format = FORMAT_Q6_K;
    static constexpr int bytes[4] = {128, 64, 16, 2}, block = 256, offset = 32, wide = 4;
    static constexpr bool halves = true, mins = false;
    struct raw {
        words4 q;
        words2 high;
        uint32_t scales, d;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_8(1, m.at(u, 8)), m.load_2(2, m.at(u, 2)),
                m.load_2(3, m.at(u >> 3, 2))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        codes_of_nibbles(r.q, c);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int v = 0; v < 8; v++)
            c[v] |= codes_pair<4>(r.high, v);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *)
    {
        float d = float_of_half(r.d);
        scale[0] = d * (float)(int8_t)r.scales;
        scale[1] = d * (float)(int8_t)(r.scales >> 8);
    }
};

struct s32_q2_K {
    static constexpr enum format_id format = FORMAT_Q2_K;
    static constexpr int bytes[4] = {64, 16, 4, 0}, block = 256, offset = 0, wide = 4;
    static constexpr bool halves = true, mins = true;
    struct raw {
        words2 q;
        uint32_t scales, dm;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_8(0, m.at(u, 8)), m.load_2(1, m.at(u, 2)),
                m.load_4(2, m.at(u >> 3, 4))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int v = 0; v < 8; v++)
            c[v] = codes_pair<0>(r.q, v);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *min)
    {
        float d = float_of_half(r.dm), dmin = -float_of_half(r.dm >> 16);
        scale[0] = d * (float)(r.scales & 15);
        scale[1] = d * (float)(r.scales >> 8 & 15);
        min[0] = dmin * (float)(r.scales >> 4 & 15);
        min[1] = dmin * (float)(r.scales >> 12 & 15);
    }
};

struct s32_q3_K {
    static constexpr enum format_id format = FORMAT_Q3_K;
    static constexpr int bytes[4] = {64, 32, 12, 2}, block = 256, offset = 4, wide = 4;
    static constexpr bool halves = true, mins = false;
    struct raw {
        words2 q;
        uint32_t bits, low, high, d;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        auto scales = m.at(u >> 3, 12);
        return {m.load_8(0, m.at(u, 8)), m.load_4(1, m.at(u, 4)), m.load_2(2, scales + 2 * (u & 3)),
                m.load_2(2, scales + 8 + 2 * (u & 1)), m.load_2(3, m.at(u >> 3, 2))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int v = 0; v < 8; v++)
            c[v] = codes_pair<0>(r.q, v);
        codes_add_bits<2>(r.bits, c);
    }
    /* Groups 2 g and 2 g + 1 of 16 values: their nibbles in bytes 2 g and 2 g + 1 modulo 8, high from group 8 on; the upper
     * pairs of bits in bytes 8 + (2 g modulo 4) and the next, at bits 2 (2 g / 4). */
    static HD void scales(const raw &r, uint32_t u, float *scale, float *)
    {
        int g = (int)(u & 7), nibble = g / 4 * 4, pair = g / 2 * 2;
        float d = float_of_half(r.d);
        uint32_t a = (r.low >> nibble & 15) | (r.high >> pair & 3) << 4;
        uint32_t b = (r.low >> (8 + nibble) & 15) | (r.high >> (8 + pair) & 3) << 4;
        scale[0] = d * (float)((int)a - 32);
        scale[1] = d * (float)((int)b - 32);
    }
};

/* The table of iq4.h, a byte each. */
#define IQ4_TABLE                                                                                                              \
    {                                                                                                                          \
        0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u                                                                     \
    }

struct s32_iq4_nl {
    static constexpr enum format_id format = FORMAT_IQ4_NL;
    static constexpr int bytes[4] = {16, 2, 0, 0}, block = 32, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = false;
    typedef s32_q4_0::raw raw;
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return s32_q4_0::load(m, u);
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        const uint32_t table[4] = IQ4_TABLE;
        codes_of_table(r.q, table, c);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *)
    {
        scale[0] = float_of_half(r.d);
    }
};

struct s32_iq4_xs {
    static constexpr enum format_id format = FORMAT_IQ4_XS;
    static constexpr int bytes[4] = {128, 8, 0, 0}, block = 256, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = false;
    struct raw {
        words4 q;
        words2 head;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_8(1, m.at(u >> 3, 8))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        const uint32_t table[4] = IQ4_TABLE;
        codes_of_table(r.q, table, c);
    }
    static HD void scales(const raw &r, uint32_t u, float *scale, float *)
    {
        int g = (int)(u & 7);
        uint32_t s = (r.head.y >> 4 * g & 15) | (r.head.x >> (16 + 2 * g) & 3) << 4;
        scale[0] = float_of_half(r.head.x) * (float)((int)s - 32);
    }
};

struct s32_mxfp4 {
    static constexpr enum format_id format = FORMAT_MXFP4;
    static constexpr int bytes[4] = {16, 1, 0, 0}, block = 32, offset = 0, wide = 4;
    static constexpr bool halves = false, mins = false;
    struct raw {
        words4 q;
        uint32_t e;
    };
    template <class M> static HD raw load(const M &m, uint32_t u)
    {
        return {m.load_16(0, m.at(u, 16)), m.load_1(1, m.at(u, 1))};
    }
    static HD void codes(const raw &r, uint32_t *c)
    {
        const uint32_t table[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
        codes_of_table(r.q, table, c);
    }
    static HD void scales(const raw &r, uint32_t, float *scale, float *)
    {
        scale[0] = float_of_bits(r.e < 2 ? 0x00200000u << r.e : (r.e - 1) << 23);
    }
};

/* X(ID, id): the formats that have an s32 layout. */
#define S32_FORMATS(X)                                                                                                         \
    X(Q4_0, q4_0)                                                                                                              \
    X(Q4_1, q4_1)                                                                                                              \
    X(Q5_0, q5_0)                                                                                                              \
    X(Q5_1, q5_1)                                                                                                              \
    X(Q8_0, q8_0)                                                                                                              \
    X(Q2_K, q2_K)                                                                                                              \
    X(Q3_K, q3_K)                                                                                                              \
    X(Q4_K, q4_K)                                                                                                              \
    X(Q5_K, q5_K)                                                                                                              \
    X(Q6_K, q6_K)                                                                                                              \
    X(IQ4_NL, iq4_nl)                                                                                                          \
    X(IQ4_XS, iq4_xs)                                                                                                          \
    X(MXFP4, mxfp4)

/* 32 values as f32, in the order of operations of the format's own unpack but for the offset, which is exact. */
template <class F> HD void s32_values(const typename F::raw &r, uint32_t u, float *y)
{
    uint32_t c[8];
    float scale[2], min[2] = {0, 0};
    F::codes(r, c);
    F::scales(r, u, scale, min);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < 32; i++) {
        int h = F::halves ? i / 16 : 0;
        float v = scale[h] * (float)((int8_t)(c[i / 4] >> 8 * (i % 4)) - F::offset);
        y[i] = F::mins ? v + min[h] : v;
    }
}

#endif
