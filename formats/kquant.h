/* kquant.h: what the formats with a super-block of 256 values share: groups of values with an integer scale (and, in the affine
 * ones, an integer minimum) under one or two half-precision numbers.
 *
 * Packing a super-block has three steps. Each group is fitted on its own with real-valued scales (fit.h). The super-block's d
 * is what brings the largest of these to the end of the integer range. Then, with d rounded to binary16 as the reader will see
 * it, the scales are rounded and the codes taken. In affine formats, rounding scale and minimum each on its own left 3 % (Q4_K)
 * to 7 % (Q5_K) more squared error than the best of their neighbours, so those are tried; in the others that gave under 1 % and
 * is left out, as is solving for d once more given all codes (0.1 to 0.9 %, for twice the time). Values are first divided by
 * the largest magnitude, so that no square over- or underflows. */
#ifndef FORMATS_KQUANT_H
#define FORMATS_KQUANT_H

#include "formats/blocks.h"
#include "formats/fit.h"

#include <math.h>
#include <string.h>

/* Codes for n values at one scale: what a format can say nearest to x * inverse. A number each, not its bits. */
typedef void kquant_codes(const float *x, int n, float inverse, float *q);

/* A fitted super-block. Group g: value = d scale[g] q + (affine only) -dmin min[g]. */
struct kquant_fit {
    uint16_t d, dmin;         /* binary16 */
    float scale[16], min[16]; /* integers */
    float q[BLOCK_K];
};

/* x divided by its largest magnitude into y, and that magnitude; NaN where x has a value that is not finite. */
static inline float kquant_normalise(const float *restrict x, float *restrict y)
{
    float absmax = fit_absmax(x, BLOCK_K);
    if (!fit_finite(absmax))
        return NAN;
    for (int i = 0; i < BLOCK_K; i++)
        y[i] = absmax > 0 ? x[i] / absmax : 0;
    return absmax;
}

/* The block of a super-block that is not fitted: zero, or poisoned (fit.h). */
static inline void kquant_degenerate(struct kquant_fit *f, float absmax)
{
    memset(f, 0, sizeof *f);
    f->d = fit_finite(absmax) ? 0 : FIT_NAN;
}

/* The best real scale of one group: starts[] are the codes on which its value of largest magnitude is tried. */
FIT_INLINE float kquant_group_scale(const float *x, int n, kquant_codes *codes, const float *starts, int n_starts)
{
    float max = fit_signed_max(x, n, fit_absmax(x, n)), best = 0, scale = 0;
    if (fabsf(max) < 1e-20f)
        return 0;
    for (int k = 0; k < n_starts; k++) {
        float q[32];
        codes(x, n, starts[k] / max, q);
        float xq = fit_dot(x, q, n), qq = fit_dot(q, q, n);
        if (qq > 0 && xq * xq > best * qq) { /* the error is sum x^2 - xq^2 / qq */
            best = xq * xq / qq;
            scale = xq / qq;
        }
    }
    return scale;
}

/* Formats with scales only: 256 / size groups, integer scales lo to hi. */
FIT_INLINE void kquant_scaled(const float *src, int size, kquant_codes *codes, const float *starts, int n_starts, float lo,
                              float hi, struct kquant_fit *f)
{
    float x[BLOCK_K], scale[16], absmax = kquant_normalise(src, x), top = 0;
    if (!(absmax > 0)) {
        kquant_degenerate(f, absmax);
        return;
    }
    for (int g = 0; g < BLOCK_K / size; g++) {
        scale[g] = kquant_group_scale(x + g * size, size, codes, starts, n_starts);
        top = fabsf(scale[g]) > fabsf(top) ? scale[g] : top;
    }
    f->d = fit_half(top / lo * absmax);
    float d = f32_from_f16(f->d) / absmax;
    for (int g = 0; g < BLOCK_K / size; g++) {
        f->scale[g] = fit_round(fit_clamp(scale[g] * fit_inverse(d), lo, hi));
        codes(x + g * size, size, fit_inverse(d * f->scale[g]), f->q + g * size);
    }
}

/* The best real scale and offset (at most 0) of one group with codes 0 to top. */
FIT_INLINE void kquant_group_affine(const float *x, int n, float top, const float *starts, int n_starts, float *scale,
                                    float *offset)
{
    float min, max, best = 0, count = (float)n, sum = fit_sum(x, n);
    fit_range(x, n, &min, &max);
    min = min < 0 ? min : 0;
    *scale = 0;
    *offset = min; /* all values equal and negative */
    if (max - min < 1e-20f)
        return;
    for (int k = 0; k < n_starts; k++) {
        float q[32];
        fit_codes(x, n, min, starts[k] / (max - min), 0, top, q);
        float xq = fit_dot(x, q, n), qq = fit_dot(q, q, n), sq = fit_sum(q, n), det = count * qq - sq * sq;
        if (!(qq > 0))
            continue;
        float s = det > 0 ? (count * xq - sum * sq) / det : 0, o = (sum - s * sq) / count;
        if (!(det > 0) || o > 0) {
            s = xq / qq;
            o = 0;
        }
        float gain = s * xq + o * sum; /* the error is sum x^2 less this */
        if (s > 0 && gain > best) {
            best = gain;
            *scale = s;
            *offset = o;
        }
    }
}

/* Integer scale, minimum and codes of group g under d and dmin: the best of those around the real ones. */
FIT_INLINE void kquant_affine_codes(const float *x, int size, int g, float top, float limit, float d, float dmin, float scale,
                                    float offset, struct kquant_fit *f)
{
    float s0 = fit_round(fit_clamp(scale * fit_inverse(d), 0, limit)), best = INFINITY;
    float m0 = fit_round(fit_clamp(-offset * fit_inverse(dmin), 0, limit));
    for (float s = fit_clamp(s0 - 1, 0, limit); s <= fit_clamp(s0 + 1, 0, limit); s++)
        for (float m = fit_clamp(m0 - 1, 0, limit); m <= fit_clamp(m0 + 1, 0, limit); m++) {
            float q[32];
            fit_codes(x, size, -dmin * m, fit_inverse(d * s), 0, top, q);
            float e = fit_error(x, q, size, d * s, -dmin * m);
            if (e < best) {
                best = e;
                f->scale[g] = s;
                f->min[g] = m;
                memcpy(f->q + g * size, q, (size_t)size * sizeof *q);
            }
        }
}

/* Formats with scales and minima: 256 / size groups, codes 0 to top, integer scales and minima 0 to limit. */
FIT_INLINE void kquant_affine(const float *src, int size, float top, const float *starts, int n_starts, float limit,
                              struct kquant_fit *f)
{
    float x[BLOCK_K], scale[16], offset[16], absmax = kquant_normalise(src, x), high = 0, low = 0;
    if (!(absmax > 0)) {
        kquant_degenerate(f, absmax);
        return;
    }
    for (int g = 0; g < BLOCK_K / size; g++) {
        kquant_group_affine(x + g * size, size, top, starts, n_starts, &scale[g], &offset[g]);
        high = scale[g] > high ? scale[g] : high;
        low = offset[g] < low ? offset[g] : low;
    }
    f->d = fit_half(high / limit * absmax);
    f->dmin = fit_half(-low / limit * absmax);
    float d = f32_from_f16(f->d) / absmax, dmin = f32_from_f16(f->dmin) / absmax;
    for (int g = 0; g < BLOCK_K / size; g++)
        kquant_affine_codes(x + g * size, size, g, top, limit, d, dmin, scale[g], offset[g], f);
}

/* The 12 bytes of Q4_K and Q5_K: 6-bit scales and minima of 8 groups. Bytes 0-3 hold scales 0-3 and bytes 4-7 minima 0-3 in
 * their lower six bits; bytes 8-11 the lower nibbles of scales (low) and minima (high) 4-7, whose upper two bits sit on top of
 * bytes 0-3 and 4-7. */
static inline void kquant_scales_get(const uint8_t *restrict p, uint8_t *restrict scale, uint8_t *restrict min)
{
    for (int g = 0; g < 4; g++) {
        scale[g] = p[g] & 63;
        min[g] = p[g + 4] & 63;
        scale[g + 4] = (uint8_t)((p[g + 8] & 15) | p[g] >> 6 << 4);
        min[g + 4] = (uint8_t)(p[g + 8] >> 4 | p[g + 4] >> 6 << 4);
    }
}

static inline void kquant_scales_put(const float *restrict scale, const float *restrict min, uint8_t *restrict p)
{
    for (int g = 0; g < 4; g++) {
        unsigned s = (unsigned)scale[g + 4], m = (unsigned)min[g + 4];
        p[g] = (uint8_t)((unsigned)scale[g] | s >> 4 << 6);
        p[g + 4] = (uint8_t)((unsigned)min[g] | m >> 4 << 6);
        p[g + 8] = (uint8_t)((s & 15) | (m & 15) << 4);
    }
}

#endif
