/* q5_1.c: Q4_1 with a fifth bit: w = d q + m, 6 bits a value. Packing as in q4_1.c. */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"
#include "formats/q5.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q5_1 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = f32_from_f16(b->d), m = f32_from_f16(b->m);
        uint32_t high = q5_high(b->qh);
        for (int j = 0; j < 16; j++)
            dst[j] = d * (float)((b->qs[j] & 15) + (high & q5_mask[j] ? 16 : 0)) + m;
        for (int j = 0; j < 16; j++)
            dst[j + 16] = d * (float)((b->qs[j] >> 4) + (high & q5_mask[j + 16] ? 16 : 0)) + m;
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_q5_1 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float min, max;
        fit_range(src, 32, &min, &max);
        float d = (max - min) / 31, inverse = fit_inverse(d);
        uint8_t q[32];
        for (int j = 0; j < 32; j++)
            q[j] = (uint8_t)(int)fit_clamp((src[j] - min) * inverse + 0.5f, 0, 31);
        b->d = fit_finite(fit_absmax(src, 32)) ? fit_half(d) : FIT_NAN;
        b->m = fit_half(min);
        q5_store(q, b->qh, b->qs);
    }
}

const struct format format_q5_1 = {.name = "Q5_1", .gguf_type = 7, .block = 32, .bytes = 24, .unpack = unpack, .pack = pack};
