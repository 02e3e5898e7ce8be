/* unpack.cuh: one value of a row in file order, for every format: what reads weights and activations that are in no packed
 * layout. The arithmetic is that of the formats' own unpack (formats/<format>.c), in the same order; bytes are read one by one,
 * since blocks begin anywhere. Slow, and right: kernels for speed read s32 layouts (s32.cuh). Compiles as plain C++ for its
 * test. */
#ifndef BACKENDS_CUDA_UNPACK_CUH
#define BACKENDS_CUDA_UNPACK_CUH

#include "backends/cuda/s32.cuh"
#include "formats/blocks.h"

HD uint32_t bytes_2(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

HD uint32_t bytes_4(const uint8_t *p)
{
    return bytes_2(p) | bytes_2(p + 2) << 16;
}

/* Nibble i of a block of 32. */
HD int unpack_nibble(const uint8_t *qs, int i)
{
    return qs[i & 15] >> (i >> 4 << 2) & 15;
}

/* Nibble i of 256, paired as in Q4_K and Q5_K. */
HD int unpack_paired(const uint8_t *qs, int i)
{
    return qs[32 * (i >> 6) + (i & 31)] >> (i >> 5 & 1) * 4 & 15;
}

HD int unpack_two_bits(const uint8_t *qs, int i)
{
    return qs[32 * (i >> 7) + (i & 31)] >> (i >> 5 & 3) * 2 & 3;
}

HD float unpack_iq4(int q)
{
    const uint32_t table[4] = IQ4_TABLE;
    return (float)(int8_t)(table[q >> 2] >> 8 * (q & 3));
}

HD float unpack_affine_k(const uint8_t *b, int i, int q)
{
    int g = i >> 5, s, m;
    const uint8_t *p = b + 4;
    if (g < 4) {
        s = p[g] & 63;
        m = p[g + 4] & 63;
    } else {
        s = (p[g + 4] & 15) | p[g - 4] >> 6 << 4;
        m = p[g + 4] >> 4 | p[g] >> 6 << 4;
    }
    float scale = float_of_half(bytes_2(b)) * (float)s, min = float_of_half(bytes_2(b + 2)) * (float)m;
    return scale * (float)q - min;
}

/* Value i of the block at b. */
HD float unpack_value(int format, const uint8_t *b, int i)
{
    switch (format) {
    case FORMAT_F32:
        return float_of_bits(bytes_4(b));
    case FORMAT_F16:
        return float_of_half(bytes_2(b));
    case FORMAT_BF16:
        return float_of_bits(bytes_2(b) << 16);
    case FORMAT_Q4_0:
        return float_of_half(bytes_2(b)) * (float)(unpack_nibble(b + 2, i) - 8);
    case FORMAT_Q4_1:
        return float_of_half(bytes_2(b)) * (float)unpack_nibble(b + 4, i) + float_of_half(bytes_2(b + 2));
    case FORMAT_Q5_0:
        return float_of_half(bytes_2(b)) * (float)((unpack_nibble(b + 6, i) | (b[2 + (i >> 3)] >> (i & 7) & 1) << 4) - 16);
    case FORMAT_Q5_1:
        return float_of_half(bytes_2(b)) * (float)(unpack_nibble(b + 8, i) | (b[4 + (i >> 3)] >> (i & 7) & 1) << 4) +
               float_of_half(bytes_2(b + 2));
    case FORMAT_Q8_0:
        return (float)(int8_t)b[2 + i] * float_of_half(bytes_2(b));
    case FORMAT_IQ4_NL:
        return float_of_half(bytes_2(b)) * unpack_iq4(unpack_nibble(b + 2, i));
    case FORMAT_MXFP4: {
        const uint32_t twice[2] = {0x03020100u, 0x0c080604u};
        int q = unpack_nibble(b + 1, i), v = (int)(twice[q >> 2 & 1] >> 8 * (q & 3) & 255);
        return float_of_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23) * (float)(q & 8 ? -v : v);
    }
    case FORMAT_Q2_K: {
        uint32_t s = b[i >> 4];
        float scale = float_of_half(bytes_2(b + 80)) * (float)(s & 15), min = float_of_half(bytes_2(b + 82)) * (float)(s >> 4);
        return scale * (float)unpack_two_bits(b + 16, i) - min;
    }
    case FORMAT_Q3_K: {
        const uint8_t *p = b + 96;
        int g = i >> 4, s = (p[g & 7] >> (g >> 3) * 4 & 15) | (p[8 + (g & 3)] >> (g >> 2) * 2 & 3) << 4;
        int q = unpack_two_bits(b + 32, i) + (b[i & 31] >> (i >> 5) & 1) * 4 - 4;
        return float_of_half(bytes_2(b + 108)) * (float)(s - 32) * (float)q;
    }
    case FORMAT_Q4_K:
        return unpack_affine_k(b, i, unpack_paired(b + 16, i));
    case FORMAT_Q5_K:
        return unpack_affine_k(b, i, unpack_paired(b + 48, i) | (b[16 + (i & 31)] >> (i >> 5) & 1) << 4);
    case FORMAT_Q6_K: {
        int half = i >> 7, low = b[64 * half + (i & 63)] >> (i >> 6 & 1) * 4 & 15;
        int q = (low | (b[128 + 32 * half + (i & 31)] >> (i >> 5 & 3) * 2 & 3) << 4) - 32;
        return float_of_half(bytes_2(b + 208)) * (float)(int8_t)b[192 + (i >> 4)] * (float)q;
    }
    case FORMAT_IQ4_XS: {
        int g = i >> 5, s = (b[4 + (g >> 1)] >> (g & 1) * 4 & 15) | (int)(bytes_2(b + 2) >> 2 * g & 3) << 4;
        return float_of_half(bytes_2(b)) * (float)(s - 32) * unpack_iq4(unpack_nibble(b + 8 + 16 * g, i & 31));
    }
    case FORMAT_A8:
        return float_of_bits(bytes_4(b)) * (float)(int8_t)b[8 + i];
    default:
        return 0;
    }
}

/* A row as kernels see it: its format, and bytes from block to block. */
struct unpack_row {
    int format, shift; /* a block has 2^shift values */
    size_t step;
};

HD float unpack_at(const unpack_row &r, const uint8_t *row, int64_t i)
{
    return unpack_value(r.format, row + (size_t)(i >> r.shift) * r.step, (int)(i & ((1 << r.shift) - 1)));
}

static inline unpack_row unpack_row_of(enum format_id format, size_t step)
{
    int block = format_get(format)->block;
    return {(int)format, block == 1 ? 0 : block == 32 ? 5 : 8, step};
}

#endif
