/* q3_K.c: 16 groups of 16 values as 3-bit codes around 4 with 6-bit scales around 32, 3.4375 bits a value:
 * w = (d (scale - 32)) (q - 4), in this order of single-precision operations.
 *
 * The lower two bits of the codes lie in qs as in Q2_K, the upper ones in hmask: bit b of hmask[j] for w[32 b + j]. The scales'
 * lower nibbles: byte i of `scales` (0 to 7) holds scale i low and scale i + 8 high; their upper two bits: byte 8 + i % 4, at 2
 * (i / 4). */
#include "formats/formats.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q3_K *restrict b = src;
    for (; n > 0; n -= BLOCK_K, b++, dst += BLOCK_K) {
        float d = f32_from_f16(b->d);
        for (int g = 0; g < 16; g++) {
            int scale = (b->scales[g % 8] >> g / 8 * 4 & 15) | (b->scales[8 + g % 4] >> g / 4 * 2 & 3) << 4;
            const uint8_t *restrict qs = b->qs + 32 * (g / 8) + 16 * (g % 2), *restrict high = b->hmask + 16 * (g % 2);
            float s = d * (float)(scale - 32);
            int shift = g / 2 % 4 * 2, bit = g / 2;
            for (int j = 0; j < 16; j++)
                dst[16 * g + j] = s * (float)((qs[j] >> shift & 3) + (high[j] >> bit & 1) * 4 - 4);
        }
    }
}

static void codes(const float *x, int n, float inverse, float *q)
{
    fit_codes(x, n, 0, inverse, -4, 3, q);
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    static const float starts[] = {-5, -4.75f, -4.5f, -4.25f, -4, -3.75f, -3.5f, -3.25f, -3, 3, 3.25f, 3.5f};
    struct block_q3_K *restrict b = dst;
    for (; n > 0; n -= BLOCK_K, b++, src += BLOCK_K) {
        struct kquant_fit f;
        kquant_scaled(src, 16, codes, starts, sizeof starts / sizeof *starts, -32, 31, &f);
        memset(b, 0, sizeof *b);
        b->d = f.d;
        for (int g = 0; g < 16; g++) {
            unsigned scale = (unsigned)((int)f.scale[g] + 32);
            b->scales[g % 8] |= (uint8_t)((scale & 15) << g / 8 * 4);
            b->scales[8 + g % 4] |= (uint8_t)(scale >> 4 << g / 4 * 2);
        }
        for (int i = 0; i < BLOCK_K; i++) {
            unsigned q = (unsigned)((int)f.q[i] + 4);
            b->qs[32 * (i / 128) + i % 32] |= (uint8_t)((q & 3) << i / 32 % 4 * 2);
            b->hmask[i % 32] |= (uint8_t)(q >> 2 << i / 32);
        }
    }
}

const struct format format_q3_K = {.name = "Q3_K", .gguf_type = 11, .block = 256, .bytes = 110, .unpack = unpack, .pack = pack};
