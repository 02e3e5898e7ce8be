/* q5_0.c: Q4_0 with a fifth bit: w = d (q - 16), 5.5 bits a value. Packing as in q4_0.c. */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"
#include "formats/q5.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q5_0 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = f32_from_f16(b->d);
        uint32_t high = q5_high(b->qh);
        for (int j = 0; j < 16; j++)
            dst[j] = d * (float)((b->qs[j] & 15) - (high & q5_mask[j] ? 0 : 16));
        for (int j = 0; j < 16; j++)
            dst[j + 16] = d * (float)((b->qs[j] >> 4) - (high & q5_mask[j + 16] ? 0 : 16));
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_q5_0 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = fit_absmax(src, 32), d = fit_signed_max(src, 32, absmax) / -16, inverse = fit_inverse(d);
        uint8_t q[32];
        for (int j = 0; j < 32; j++)
            q[j] = (uint8_t)(int)fit_clamp(src[j] * inverse + 16.5f, 0, 31);
        b->d = fit_finite(absmax) ? fit_half(d) : FIT_NAN;
        q5_store(q, b->qh, b->qs);
    }
}

const struct format format_q5_0 = {.name = "Q5_0", .gguf_type = 6, .block = 32, .bytes = 22, .unpack = unpack, .pack = pack};
