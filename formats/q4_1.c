/* q4_1.c: 32 values as 4-bit codes with a scale and a minimum: w = d q + m, 5 bits a value.
 *
 * Packing spans [min, max] of the block with the sixteen codes: the field's own rule, byte for byte what other tools write. */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q4_1 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = f32_from_f16(b->d), m = f32_from_f16(b->m);
        for (int j = 0; j < 16; j++)
            dst[j] = d * (float)(b->qs[j] & 15) + m;
        for (int j = 0; j < 16; j++)
            dst[j + 16] = d * (float)(b->qs[j] >> 4) + m;
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_q4_1 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float min, max;
        fit_range(src, 32, &min, &max);
        float d = (max - min) / 15, inverse = fit_inverse(d);
        uint8_t q[32];
        for (int j = 0; j < 32; j++)
            q[j] = (uint8_t)(int)fit_clamp((src[j] - min) * inverse + 0.5f, 0, 15);
        b->d = fit_finite(fit_absmax(src, 32)) ? fit_half(d) : FIT_NAN;
        b->m = fit_half(min);
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(q[j] | q[j + 16] << 4);
    }
}

const struct format format_q4_1 = {.name = "Q4_1", .gguf_type = 3, .block = 32, .bytes = 20, .unpack = unpack, .pack = pack};
