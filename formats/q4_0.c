/* q4_0.c: 32 values as 4-bit codes around 8 under one half-precision scale: w = d (q - 8), 4.5 bits a value.
 *
 * Packing puts the value of largest magnitude, with its sign, on code 0 (that is, -8), so that the one code without a mirror is
 * used. This is the field's own rule and not a search: byte for byte what other tools write, so that files compare. */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q4_0 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = f32_from_f16(b->d);
        for (int j = 0; j < 16; j++)
            dst[j] = d * (float)((b->qs[j] & 15) - 8);
        for (int j = 0; j < 16; j++)
            dst[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_q4_0 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = fit_absmax(src, 32), d = fit_signed_max(src, 32, absmax) / -8, inverse = fit_inverse(d);
        uint8_t q[32];
        for (int j = 0; j < 32; j++)
            q[j] = (uint8_t)(int)fit_clamp(src[j] * inverse + 8.5f, 0, 15);
        b->d = fit_finite(absmax) ? fit_half(d) : FIT_NAN;
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(q[j] | q[j + 16] << 4);
    }
}

const struct format format_q4_0 = {.name = "Q4_0", .gguf_type = 2, .block = 32, .bytes = 18, .unpack = unpack, .pack = pack};
