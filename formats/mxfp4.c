/* mxfp4.c: 32 values as FP4 (e2m1) numbers under one power of two, 4.25 bits a value (OCP Microscaling Formats 1.0): w = 2^(e -
 * 128) v, where v is twice the FP4 number, so that it is an integer: 0 1 2 3 4 6 8 12 and their negatives.
 *
 * The scale's byte 255, NaN in the specification, is read as the power of two that it would be, as other readers do. Packing
 * tries the power that brings the largest value just inside the range and the next one up, and keeps the smaller squared error.
 */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"

#include <math.h>

/* 2^(e - 128); the two smallest are denormal. */
static inline float scale_of(unsigned e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Magnitude codes 5, 6 and 7 are 1, 2 and 5 above themselves. Sums of comparisons vectorise; a table would not. */
static inline int8_t value_of(uint8_t q)
{
    uint8_t m = q & 7, past4 = m > 4, past5 = m > 5, past6 = m > 6, negative = q > 7 ? 255 : 0;
    uint8_t v = (uint8_t)(m + past4 + past5 + 3 * past6);
    return (int8_t)((v ^ negative) - negative);
}

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_mxfp4 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = scale_of(b->e);
        uint8_t q[32];
        int8_t v[32];
        for (int j = 0; j < 16; j++)
            q[j] = b->qs[j] & 15;
        for (int j = 0; j < 16; j++)
            q[j + 16] = b->qs[j] >> 4;
        for (int j = 0; j < 32; j++)
            v[j] = value_of(q[j]);
        for (int j = 0; j < 32; j++)
            dst[j] = d * (float)v[j];
    }
}

/* Nearest codes at one scale, without their signs; returns the squared error in units of the scale. */
static inline float codes_at(const float *restrict x, float inverse, uint8_t *restrict q)
{
    float v[32], value[32];
    for (int j = 0; j < 32; j++) {
        float a = fabsf(x[j]) * inverse;
        /* Thresholds lie midway between the values 0 1 2 3 4 6 8 12; a tie goes to the smaller. */
        int c = (a > 0.5f) + (a > 1.5f) + (a > 2.5f) + (a > 3.5f) + (a > 5) + (a > 7) + (a > 10);
        v[j] = a;
        value[j] = (float)value_of((uint8_t)c);
        q[j] = (uint8_t)c;
    }
    return fit_error(v, value, 32, 1, 0);
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_mxfp4 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = fit_absmax(src, 32);
        uint8_t q[2][32] = {{0}};
        unsigned e = 0, pick = 0;
        if (!fit_finite(absmax)) {
            e = 255;
            for (int j = 0; j < 32; j++)
                q[0][j] = 7;
        } else if (absmax > 0) {
            int exponent;
            frexpf(absmax, &exponent); /* absmax is in [0.5, 1) 2^exponent: v in [8, 16), and in [4, 8) one scale up */
            int want = exponent + 128 - 4;
            e = want < 2 ? 2 : (unsigned)want; /* the scales below have no finite reciprocal */
            float d = scale_of(e), error = codes_at(src, 1 / d, q[0]);
            /* Errors one scale up are in units twice as large. At the very top 8 of them would round to infinity. */
            pick = 4 * codes_at(src, 0.5f / d, q[1]) < error && e < 252;
        }
        b->e = (uint8_t)(e + pick);
        for (int j = 0; j < 16; j++) {
            unsigned low = q[pick][j] | (unsigned)(src[j] < 0) << 3, high = q[pick][j + 16] | (unsigned)(src[j + 16] < 0) << 3;
            b->qs[j] = (uint8_t)(low | high << 4);
        }
    }
}

const struct format format_mxfp4 = {.name = "MXFP4", .gguf_type = 39, .block = 32, .bytes = 17, .unpack = unpack, .pack = pack};
