/* floats_math.h: exponentials and what is made of them, on vectors of f32. Relative errors are a few units of the last place,
 * so that no activation function comes near its op's tolerance; a NaN stays a NaN, and the ends of the range come out as they
 * should (exp(-inf) is 0, exp(89) is inf).
 *
 * Polynomials were fitted here for the smallest largest error on their interval (Lawson's iteration: weighted least squares
 * whose weights grow where the error is large); the figures behind them are that error. The form in which each function is
 * computed avoids cancellation: gelu is x / (1 + exp(-2 u)) instead of a tanh plus one, softplus takes log1p through atanh.
 * Tables lost: a gather costs more than the polynomial. */
#ifndef BACKENDS_CPU_FLOATS_MATH_H
#define BACKENDS_CPU_FLOATS_MATH_H

#include "backends/cpu/floats.h"
#include "ops/unary.h"

#include <math.h>

/* exp(x) = 2^n exp(r), |r| <= ln(2) / 2; exp(r) = 1 + r + r^2 P(r) to 3e-9. Results below the smallest normal number are zeros:
 * a denormal one would trap into microcode (about 150 cycles), and a masked score of -inf meets this code in every row. */
INLINE vf v_exp(vf arg)
{
    const vf least = v_all(-0x1.5d589ep+6f);     /* ln 2^-126 */
    vf x = v_max(least, v_min(v_all(150), arg)); /* a NaN passes both, being the second */
    vf n = v_round(x * v_all(0x1.715476p+0f));
    vf r = v_fma(n, v_all(-0x1.62e400p-1f), x); /* ln 2 in two parts, the first of few bits: n times it is exact */
    r = v_fma(n, v_all(-0x1.7f7d1cp-20f), r);
    vf p = v_all(0x1.6a2434p-10f);
    p = v_fma(p, r, v_all(0x1.1239e2p-7f));
    p = v_fma(p, r, v_all(0x1.5558f2p-5f));
    p = v_fma(p, r, v_all(0x1.555492p-3f));
    p = v_fma(p, r, v_all(0x1.fffffcp-2f));
    p = v_fma(p * r, r, r) + v_all(1);
    return v_select(v_lt(arg, least), v_zero(), v_scale(p, n));
}

/* Below 0.625 x + x^3 P(x^2) to 4e-9, so that small arguments keep their relative accuracy. */
INLINE vf v_tanh(vf x)
{
    vf z = v_abs(x), e = v_exp(v_all(-2) * z), s = x * x;
    vf far = v_copysign((v_all(1) - e) / (v_all(1) + e), x);
    vf p = v_all(-0x1.75e5b8p-8f);
    p = v_fma(p, s, v_all(0x1.522772p-6f));
    p = v_fma(p, s, v_all(-0x1.b83c7ap-5f));
    p = v_fma(p, s, v_all(0x1.110728p-3f));
    p = v_fma(p, s, v_all(-0x1.555532p-2f));
    return v_select(v_lt(z, v_all(0.625f)), v_fma(p * s, x, x), far);
}

/* erfc(z), z >= 0: t exp(-z^2) Q(t) with t = 1 / (1 + 0.3 z), to 2e-8 before the exponential's argument is rounded. */
INLINE vf v_erfc(vf z)
{
    vf t = v_all(1) / v_fma(v_all(0.3f), z, v_all(1)), q = v_all(-0x1.094c0ep-3f);
    q = v_fma(q, t, v_all(0x1.f14e9cp-2f));
    q = v_fma(q, t, v_all(-0x1.066382p-1f));
    q = v_fma(q, t, v_all(0x1.188feep-1f));
    q = v_fma(q, t, v_all(-0x1.847d90p-4f));
    q = v_fma(q, t, v_all(0x1.b85c9ap-3f));
    q = v_fma(q, t, v_all(0x1.2fbdf0p-3f));
    q = v_fma(q, t, v_all(0x1.5da250p-3f));
    q = v_fma(q, t, v_all(0x1.5a7f14p-3f));
    return t * q * v_exp(-(z * z));
}

/* log(1 + e), 0 <= e <= 1: 2 atanh(s), s = e / (2 + e) <= 1/3, s + s^3 P(s^2) to 4e-9. */
INLINE vf v_log1p(vf e)
{
    vf s = e / (e + v_all(2)), z = s * s, p = v_all(0x1.1ed882p-3f);
    p = v_fma(p, z, v_all(0x1.1ebceap-3f));
    p = v_fma(p, z, v_all(0x1.99d20ap-3f));
    p = v_fma(p, z, v_all(0x1.555502p-2f));
    s = v_fma(p * z, s, s);
    return s + s;
}

/* x / (1 + exp(-y)). At x = -inf the quotient of two infinities is a NaN, as in the reference. */
INLINE vf v_gate(vf x, vf y)
{
    return x / (v_all(1) + v_exp(-y));
}

INLINE vf v_unary(enum unary_kind kind, vf x)
{
    switch (kind) {
    case UNARY_SILU:
        return v_gate(x, x);
    case UNARY_GELU:
        return v_gate(x, v_all(1.5957691216f) * v_fma(v_all(0.044715f) * x * x, x, x));
    case UNARY_GELU_ERF: {
        vf tail = v_all(0.5f) * v_erfc(v_abs(x) * v_all(0.70710678f));
        return v_select(v_lt(v_zero(), x), x - v_min(v_all(30), x) * tail, x * tail); /* inf times the 0 at 30 is a NaN */
    }
    case UNARY_GELU_QUICK:
        return v_gate(x, v_all(1.702f) * x);
    case UNARY_RELU:
        return v_max(v_zero(), x); /* a NaN is the second */
    case UNARY_SIGMOID:
        return v_gate(v_all(1), x);
    case UNARY_TANH:
        return v_tanh(x);
    case UNARY_EXP:
        return v_exp(x);
    case UNARY_NEG:
        return v_all(-0.0f) - x;
    case UNARY_SOFTPLUS:
        return v_max(v_zero(), x) + v_log1p(v_exp(-v_abs(x)));
    case N_UNARY:
        break;
    }
    return v_all(NAN);
}

#endif
