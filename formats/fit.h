/* fit.h: what packing shares: from values to small integer codes and the scale under which they come closest.
 *
 * One measure everywhere: the plain sum of squared errors. The field's packers often weight errors by the value's square or by
 * activation statistics; a weight without statistics is as likely to meet a large activation as any other, so the
 * expected error of a matrix product is the plain sum. Searches try a fixed list of scales and solve for the best one given the
 * codes (least squares), so a result depends on nothing but the values. Sums run in eight lanes that are added in a fixed
 * order: the same bits at any instruction set.
 *
 * Non-finite values poison their block: the scale becomes NaN, so that the fault is seen where the weight is used
 * instead of passing for a plausible number. Scales beyond binary16 saturate, since inf * 0 would turn a finite block to NaN.
 */
#ifndef FORMATS_FIT_H
#define FORMATS_FIT_H

#include "base/half.h"

#include <stdbool.h>
#include <stdint.h>

#define FIT_INLINE static inline __attribute__((always_inline))

enum { FIT_NAN = 0x7e00 /* binary16 */ };

/* Four values; a pointer to it needs no more alignment than a float's. Sums of floats do not vectorise by themselves, as
 * that changes their order; here the order is fixed: lanes i mod 8, then pairwise. */
typedef float fit_f32x4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t fit_i32x4 __attribute__((vector_size(16), aligned(4), may_alias));

FIT_INLINE fit_f32x4 fit_load(const float *p)
{
    return *(const fit_f32x4 *)p;
}

FIT_INLINE fit_f32x4 fit_select(fit_i32x4 mask, fit_f32x4 a, fit_f32x4 b)
{
    return (fit_f32x4)(((fit_i32x4)a & mask) | ((fit_i32x4)b & ~mask));
}

FIT_INLINE float fit_lanes(fit_f32x4 a, fit_f32x4 b)
{
    fit_f32x4 s = a + b;
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The largest |x|; NaN or infinite when any x is. Compared as integers, in which order a NaN is above infinity. n is a
 * multiple of 8 in all of these. */
FIT_INLINE float fit_absmax(const float *x, int n)
{
    fit_i32x4 max = {0};
    for (int i = 0; i < n; i += 4) {
        fit_i32x4 a = (fit_i32x4)fit_load(x + i) & 0x7fffffff, above = a > max;
        max = (a & above) | (max & ~above);
    }
    int32_t m = max[0];
    for (int l = 1; l < 4; l++)
        m = max[l] > m ? max[l] : m;
    return f32_from_bits((uint32_t)m);
}

static inline bool fit_finite(float absmax)
{
    return bits_from_f32(absmax) < 0x7f800000u;
}

/* The smallest and the largest of finite values. */
FIT_INLINE void fit_range(const float *x, int n, float *min, float *max)
{
    fit_f32x4 lo = fit_load(x), hi = lo;
    for (int i = 4; i < n; i += 4) {
        fit_f32x4 v = fit_load(x + i);
        lo = fit_select(v < lo, v, lo);
        hi = fit_select(v > hi, v, hi);
    }
    *min = lo[0];
    *max = hi[0];
    for (int l = 1; l < 4; l++) {
        *min = lo[l] < *min ? lo[l] : *min;
        *max = hi[l] > *max ? hi[l] : *max;
    }
}

/* The first value of largest magnitude, with its sign, given that magnitude. */
FIT_INLINE float fit_signed_max(const float *x, int n, float absmax)
{
    float min, max;
    fit_range(x, n, &min, &max);
    if (max != absmax)
        return min;
    for (int i = 0; min == -max; i++)
        if (x[i] == max || x[i] == min)
            return x[i];
    return max;
}

/* binary16 of a scale: saturated; NaN stays. */
static inline uint16_t fit_half(float scale)
{
    return f16_from_f32(scale > 65504.0f ? 65504.0f : scale < -65504.0f ? -65504.0f : scale);
}

/* The reciprocal that simple formats quantise by: of the scale before it is rounded; 0 for 0. */
static inline float fit_inverse(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* v limited to [lo, hi]; NaN becomes lo, so that converting it to an integer is defined. */
static inline float fit_clamp(float v, float lo, float hi)
{
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

/* To the nearest integer, ties to even, for |v| < 2^22. */
static inline float fit_round(float v)
{
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* q = (x - offset) * inverse, rounded and limited to [lo, hi]. */
FIT_INLINE void fit_codes(const float *x, int n, float offset, float inverse, float lo, float hi, float *q)
{
    fit_f32x4 low = {lo, lo, lo, lo}, high = {hi, hi, hi, hi};
    for (int i = 0; i < n; i += 4) {
        fit_f32x4 v = (fit_load(x + i) - offset) * inverse;
        v = fit_select(v > low, v, low); /* NaN becomes lo */
        v = fit_select(v < high, v, high);
        *(fit_f32x4 *)(q + i) = (v + 0x1.8p23f) - 0x1.8p23f;
    }
}

/* Sum of a * b; of a; of (x - scale * q - offset)^2. */
FIT_INLINE float fit_dot(const float *a, const float *b, int n)
{
    fit_f32x4 even = {0}, odd = {0};
    for (int i = 0; i < n; i += 8) {
        even += fit_load(a + i) * fit_load(b + i);
        odd += fit_load(a + i + 4) * fit_load(b + i + 4);
    }
    return fit_lanes(even, odd);
}

FIT_INLINE float fit_sum(const float *a, int n)
{
    fit_f32x4 even = {0}, odd = {0};
    for (int i = 0; i < n; i += 8) {
        even += fit_load(a + i);
        odd += fit_load(a + i + 4);
    }
    return fit_lanes(even, odd);
}

FIT_INLINE float fit_error(const float *x, const float *q, int n, float scale, float offset)
{
    fit_f32x4 even = {0}, odd = {0};
    for (int i = 0; i < n; i += 8) {
        fit_f32x4 a = fit_load(x + i) - fit_load(q + i) * scale - offset;
        fit_f32x4 b = fit_load(x + i + 4) - fit_load(q + i + 4) * scale - offset;
        even += a * a;
        odd += b * b;
    }
    return fit_lanes(even, odd);
}

#endif
