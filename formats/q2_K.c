/* q2_K.c: 16 groups of 16 values as 2-bit codes with 4-bit scales and minima, 2.625 bits a value: w = (d scale) q - (dmin min),
 * in this order of single-precision operations. A byte of `scales` holds a group's scale low and its minimum high. */
#include "formats/formats.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q2_K *restrict b = src;
    for (; n > 0; n -= BLOCK_K, b++, dst += BLOCK_K) {
        float d = f32_from_f16(b->d), dmin = f32_from_f16(b->dmin);
        for (int g = 0; g < 16; g++) {
            const uint8_t *restrict qs = b->qs + 32 * (g / 8) + 16 * (g % 2);
            float s = d * (float)(b->scales[g] & 15), m = dmin * (float)(b->scales[g] >> 4);
            int shift = g / 2 % 4 * 2;
            for (int j = 0; j < 16; j++)
                dst[16 * g + j] = s * (float)(qs[j] >> shift & 3) - m;
        }
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    static const float starts[] = {2, 2.25f, 2.5f, 2.75f, 3, 3.25f, 3.5f, 3.75f, 4, 4.25f, 4.5f};
    struct block_q2_K *restrict b = dst;
    for (; n > 0; n -= BLOCK_K, b++, src += BLOCK_K) {
        struct kquant_fit f;
        kquant_affine(src, 16, 3, starts, sizeof starts / sizeof *starts, 15, &f);
        b->d = f.d;
        b->dmin = f.dmin;
        for (int g = 0; g < 16; g++)
            b->scales[g] = (uint8_t)((unsigned)f.scale[g] | (unsigned)f.min[g] << 4);
        for (int h = 0; h < 2; h++)
            for (int j = 0; j < 32; j++) {
                const float *q = f.q + 128 * h + j;
                b->qs[32 * h + j] =
                    (uint8_t)((unsigned)q[0] | (unsigned)q[32] << 2 | (unsigned)q[64] << 4 | (unsigned)q[96] << 6);
            }
    }
}

const struct format format_q2_K = {.name = "Q2_K", .gguf_type = 10, .block = 256, .bytes = 84, .unpack = unpack, .pack = pack};
