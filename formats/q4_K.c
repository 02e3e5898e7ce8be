/* q4_K.c: 8 groups of 32 values as 4-bit codes with 6-bit scales and minima, 4.5 bits a value: w = (d scale) q - (dmin min), in
 * this order of single-precision operations. */
#include "formats/formats.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q4_K *restrict b = src;
    for (; n > 0; n -= BLOCK_K, b++, dst += BLOCK_K) {
        float d = f32_from_f16(b->d), dmin = f32_from_f16(b->dmin);
        uint8_t scale[8], min[8];
        kquant_scales_get(b->scales, scale, min);
        for (int c = 0; c < 4; c++) {
            const uint8_t *restrict qs = b->qs + 32 * c;
            float s0 = d * (float)scale[2 * c], m0 = dmin * (float)min[2 * c];
            float s1 = d * (float)scale[2 * c + 1], m1 = dmin * (float)min[2 * c + 1];
            for (int j = 0; j < 32; j++)
                dst[64 * c + j] = s0 * (float)(qs[j] & 15) - m0;
            for (int j = 0; j < 32; j++)
                dst[64 * c + 32 + j] = s1 * (float)(qs[j] >> 4) - m1;
        }
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    static const float starts[] = {13.5f, 13.9f, 14.2f, 14.5f, 14.75f, 15, 15.25f, 15.5f, 15.8f, 16.2f, 16.6f, 17.1f};
    struct block_q4_K *restrict b = dst;
    for (; n > 0; n -= BLOCK_K, b++, src += BLOCK_K) {
        struct kquant_fit f;
        kquant_affine(src, 32, 15, starts, sizeof starts / sizeof *starts, 63, &f);
        b->d = f.d;
        b->dmin = f.dmin;
        kquant_scales_put(f.scale, f.min, b->scales);
        for (int c = 0; c < 4; c++)
            for (int j = 0; j < 32; j++)
                b->qs[32 * c + j] = (uint8_t)((unsigned)f.q[64 * c + j] | (unsigned)f.q[64 * c + 32 + j] << 4);
    }
}

const struct format format_q4_K = {.name = "Q4_K", .gguf_type = 12, .block = 256, .bytes = 144, .unpack = unpack, .pack = pack};
