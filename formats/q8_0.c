/* q8_0.c: 32 values as signed bytes under one half-precision scale: w = q d, 8.5 bits a value. Also the format in which
 * activations are quantised, which is why a non-finite value must poison its block: a NaN made in one op is to be found in the
 * next.
 *
 * Packing: d = max |x| / 127 and codes rounded half away from zero, byte for byte what other tools write. */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q8_0 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = f32_from_f16(b->d);
        for (int j = 0; j < 32; j++)
            dst[j] = (float)b->qs[j] * d;
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_q8_0 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = fit_absmax(src, 32), d = absmax / 127, inverse = fit_inverse(d);
        b->d = fit_finite(absmax) ? fit_half(d) : FIT_NAN;
        for (int j = 0; j < 32; j++) {
            float v = fit_clamp(src[j] * inverse, -127, 127);
            int whole = (int)v; /* towards zero; adding 0.5 first would round 0.49999997 up */
            float rest = v - (float)whole;
            b->qs[j] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
        }
    }
}

const struct format format_q8_0 = {.name = "Q8_0", .gguf_type = 8, .block = 32, .bytes = 34, .unpack = unpack, .pack = pack};
