/* q6_K.c: 16 groups of 16 values as 6-bit codes around 32 with 8-bit scales, 6.5625 bits a value: w = (d scale) (q - 32), in
 * this order of single-precision operations. The formats of _M mixes give it to the tensors that matter most. */
#include "formats/formats.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_q6_K *restrict b = src;
    for (; n > 0; n -= BLOCK_K, b++, dst += BLOCK_K) {
        float d = f32_from_f16(b->d);
        for (int g = 0; g < 16; g++) {
            const uint8_t *restrict ql = b->ql + 64 * (g / 8) + 16 * (g % 4), *restrict qh =
                                                                                  b->qh + 32 * (g / 8) + 16 * (g % 2);
            float s = d * (float)b->scales[g];
            int low = g / 4 % 2 * 4, high = g / 2 % 4 * 2;
            for (int j = 0; j < 16; j++)
                dst[16 * g + j] = s * (float)((ql[j] >> low & 15) + (qh[j] >> high & 3) * 16 - 32);
        }
    }
}

static void codes(const float *x, int n, float inverse, float *q)
{
    fit_codes(x, n, 0, inverse, -32, 31, q);
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    static const float starts[] = {-33, -32.5f, -32, -31.5f, -31};
    struct block_q6_K *restrict b = dst;
    for (; n > 0; n -= BLOCK_K, b++, src += BLOCK_K) {
        struct kquant_fit f;
        kquant_scaled(src, 16, codes, starts, sizeof starts / sizeof *starts, -128, 127, &f);
        b->d = f.d;
        for (int g = 0; g < 16; g++)
            b->scales[g] = (int8_t)f.scale[g];
        uint8_t q[BLOCK_K];
        for (int i = 0; i < BLOCK_K; i++)
            q[i] = (uint8_t)((int)f.q[i] + 32);
        for (int h = 0; h < 2; h++) {
            const uint8_t *v = q + 128 * h;
            for (int j = 0; j < 64; j++)
                b->ql[64 * h + j] = (uint8_t)((v[j] & 15) | (v[j + 64] & 15) << 4);
            for (int j = 0; j < 32; j++)
                b->qh[32 * h + j] = (uint8_t)(v[j] >> 4 | v[j + 32] >> 4 << 2 | v[j + 64] >> 4 << 4 | v[j + 96] >> 4 << 6);
        }
    }
}

const struct format format_q6_K = {.name = "Q6_K", .gguf_type = 14, .block = 256, .bytes = 210, .unpack = unpack, .pack = pack};
