/* rope.cuh: the sine and the cosine of an angle in double, at the price of f32: its reduction to [-pi/4, pi/4] in double, as
 * the op's tolerance demands, then two short polynomials in f32. */
#ifndef BACKENDS_CUDA_ROPE_CUH
#define BACKENDS_CUDA_ROPE_CUH

#include "backends/cuda/rope.h"

/* Sine and cosine of x in [-pi/4, pi/4], moved by `quadrant` quarter turns (0 to 3). */
__device__ static inline void rope_turn(float x, int quadrant, float *sine, float *cosine)
{
    float z = x * x, s = -0x1.9943bap-13f, c = 0x1.9a0232p-16f;
    s = fmaf(s, z, 0x1.11073ap-7f);
    s = fmaf(s, z, -0x1.555546p-3f);
    s = fmaf(s * z, x, x);
    c = fmaf(c, z, -0x1.6c0c8cp-10f);
    c = fmaf(c, z, 0x1.55554ap-5f);
    c = fmaf(c * z, z, fmaf(-0.5f, z, 1));
    float a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -a : a;
    *cosine = (quadrant + 1) & 2 ? -b : b;
}

__device__ static inline void rope_sine_cosine(double angle, float *sine, float *cosine)
{
    const double two_over_pi = 0x1.45f306dc9c883p-1, half_pi = 0x1.921fb54442d18p+0, half_pi_rest = 0x1.1a62633145c07p-54;
    if (fabs(angle) < 0x1p40) {
        double turns = rint(angle * two_over_pi);
        float rest = (float)fma(-turns, half_pi_rest, fma(-turns, half_pi, angle));
        rope_turn(rest, (int)((int64_t)turns & 3), sine, cosine);
    } else {
        double s, c;
        sincos(angle, &s, &c);
        *sine = (float)s;
        *cosine = (float)c;
    }
}

#endif
