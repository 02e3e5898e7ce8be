/* q5_K.c: Q4_K with a fifth bit, 5.5 bits a value: w = (d scale) q - (dmin min), in this order of single-precision operations.
 * The high bits of group b are bit b of qh[0..31]. */
#include "formats/formats.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q5_K *restrict b = src;
    for (; n > 0; n -= BLOCK_K, b++, dst += BLOCK_K) {
        float d = f32_from_f16(b->d), dmin = f32_from_f16(b->dmin);
        uint8_t scale[8], min[8];
        kquant_scales_get(b->scales, scale, min);
        for (int c = 0; c < 4; c++) {
            const uint8_t *restrict qs = b->qs + 32 * c;
            float s0 = d * (float)scale[2 * c], m0 = dmin * (float)min[2 * c];
            float s1 = d * (float)scale[2 * c + 1], m1 = dmin * (float)min[2 * c + 1];
            for (int j = 0; j < 32; j++)
                dst[64 * c + j] = s0 * (float)((qs[j] & 15) | (b->qh[j] >> 2 * c & 1) << 4) - m0;
            for (int j = 0; j < 32; j++)
                dst[64 * c + 32 + j] = s1 * (float)(qs[j] >> 4 | (b->qh[j] >> (2 * c + 1) & 1) << 4) - m1;
        }
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    static const float starts[] = {29.5f, 30, 30.5f, 31, 31.5f, 32};
    struct block_q5_K *restrict b = dst;
    for (; n > 0; n -= BLOCK_K, b++, src += BLOCK_K) {
        struct kquant_fit f;
        kquant_affine(src, 32, 31, starts, sizeof starts / sizeof *starts, 63, &f);
        b->d = f.d;
        b->dmin = f.dmin;
        kquant_scales_put(f.scale, f.min, b->scales);
        for (int j = 0; j < 32; j++) {
            unsigned high = 0;
            for (int g = 0; g < 8; g++)
                high |= (unsigned)f.q[32 * g + j] >> 4 << g;
            b->qh[j] = (uint8_t)high;
            for (int c = 0; c < 4; c++)
                b->qs[32 * c + j] = (uint8_t)(((unsigned)f.q[64 * c + j] & 15) | ((unsigned)f.q[64 * c + 32 + j] & 15) << 4);
        }
    }
}

const struct format format_q5_K = {.name = "Q5_K", .gguf_type = 13, .block = 256, .bytes = 176, .unpack = unpack, .pack = pack};
