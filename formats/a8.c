/* a8.c: the 8-bit activation: 32 values as signed bytes under one f32 scale, with the sums of both halves, 10 bits a value. It
 * never is in a file: quantize nodes write it, kernels with integer dot products read it.
 *
 * Why not Q8_0: a kernel that multiplies unsigned weight codes has to take their offset or minimum out again, and needs the sum
 * of the activation's codes for that; summing them in every matrix product cost 5 % of decode. And an f32 scale spares each
 * reader a conversion. Two sums of 16, because Q2_K, Q3_K and Q6_K scale their weights in groups of 16.
 *
 * The rule, in single precision: d = max |x| / 127, inverse = 1 / d, q = x inverse rounded to nearest, ties to even. Blocks
 * with d under 2^-100 are zeros; d ends at 2^103, so that no product with a weight's code overflows before the sum would:
 * larger values saturate. A value that is not finite poisons its block: d is NaN, so that a NaN made in one op is found in the
 * next. */
#include "formats/blocks.h"
#include "formats/fit.h"
#include "formats/formats.h"

#include <math.h>

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct block_a8 *restrict b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        float d = b->d;
        for (int j = 0; j < 32; j++)
            dst[j] = d * (float)b->qs[j];
    }
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct block_a8 *restrict b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = fit_absmax(src, 32), d = absmax / 127;
        bool finite = fit_finite(absmax), zero = !finite || d < A8_SMALLEST;
        d = d < A8_LARGEST ? d : A8_LARGEST;
        float inverse = zero ? 0 : 1 / d;
        int sum[2] = {0};
        for (int j = 0; j < 32; j++) {
            int q = zero ? 0 : (int)fit_round(fit_clamp(src[j] * inverse, -127, 127));
            b->qs[j] = (int8_t)q;
            sum[j / 16] += q;
        }
        b->d = !finite ? NAN : zero ? 0 : d;
        b->sum[0] = (int16_t)sum[0];
        b->sum[1] = (int16_t)sum[1];
    }
}

const struct format format_a8 = {.name = "A8", .gguf_type = -1, .block = 32, .bytes = 40, .unpack = unpack, .pack = pack};
