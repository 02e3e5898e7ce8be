/* iq4_nl.c: 32 values as indices into a fixed table under one half-precision scale, 4.5 bits a value: w = d table[q]. */
#include "formats/formats.h"
#include "formats/iq4.h"
#include "formats/kquant.h"

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_iq4_nl *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32)
        iq4_unpack(b->qs, f32_from_f16(b->d), dst);
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_iq4_nl *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = fit_absmax(src, 32), d = 0, x[32];
        bool finite = fit_finite(absmax);
        for (int j = 0; j < 32; j++)
            x[j] = finite && absmax > 0 ? src[j] / absmax : 0; /* no square over- or underflows */
        d = kquant_group_scale(x, 32, iq4_codes, iq4_starts, IQ4_N_STARTS);
        b->d = finite ? fit_half(d * absmax) : FIT_NAN;
        float inverse = finite && absmax > 0 ? fit_inverse(f32_from_f16(b->d) / absmax) : 0;
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(iq4_index(x[j] * inverse) | iq4_index(x[j + 16] * inverse) << 4);
    }
}

const struct format format_iq4_nl = {
    .name = "IQ4_NL", .gguf_type = 20, .block = 32, .bytes = 18, .unpack = unpack, .pack = pack};
