/* iq4_xs.c: IQ4_NL in super-blocks: 8 groups of 32 with 6-bit scales around 32 under one half-precision d, 4.25 bits a value:
 * w = (d (scale - 32)) table[q], in this order of single-precision operations. Group g's scale has its lower nibble in
 * scales_l[g / 2] (even groups low) and its upper two bits at bit 2 g of scales_h. */
#include "formats/formats.h"
#include "formats/iq4.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_iq4_xs *restrict b = src;
    for (; n > 0; n -= BLOCK_K, b++, dst += BLOCK_K) {
        float d = f32_from_f16(b->d);
        for (int g = 0; g < 8; g++) {
            int scale = (b->scales_l[g / 2] >> g % 2 * 4 & 15) | (b->scales_h >> 2 * g & 3) << 4;
            iq4_unpack(b->qs + 16 * g, d * (float)(scale - 32), dst + 32 * g);
        }
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_iq4_xs *restrict b = dst;
    for (; n > 0; n -= BLOCK_K, b++, src += BLOCK_K) {
        struct kquant_fit f;
        kquant_scaled(src, 32, iq4_codes, iq4_starts, IQ4_N_STARTS, -32, 31, &f);
        unsigned scales_h = 0, scale[8];
        for (int g = 0; g < 8; g++) {
            scale[g] = (unsigned)((int)f.scale[g] + 32);
            scales_h |= scale[g] >> 4 << 2 * g;
            for (int j = 0; j < 16; j++)
                b->qs[16 * g + j] = (uint8_t)(iq4_index(f.q[32 * g + j]) | iq4_index(f.q[32 * g + j + 16]) << 4);
        }
        b->d = f.d;
        b->scales_h = (uint16_t)scales_h;
        for (int i = 0; i < 4; i++)
            b->scales_l[i] = (uint8_t)((scale[2 * i] & 15) | (scale[2 * i + 1] & 15) << 4);
    }
}

const struct format format_iq4_xs = {
    .name = "IQ4_XS", .gguf_type = 23, .block = 256, .bytes = 136, .unpack = unpack, .pack = pack};
