/* dot.h: the inner loops of the two references that carry the engine's plain path, mul_mat and attention.
 *
 * A sum runs in DOT_LANES independent lanes, element i in lane i modulo DOT_LANES, each in the order of i; at the end the upper
 * half of the lanes is added to the lower, again and again. That order is fixed here, in plain arrays, so a compiler can
 * vectorise it without leave to reorder, and every instruction set gives the same bits (with contraction off, as the Makefile
 * has it). The bodies are inline in this header so that a test can build them for each instruction set and compare; everyone
 * else calls the functions, which dot.c builds for several and picks from at load time.
 *
 * 16 lanes: with 8 the latency of an addition bounds the loop, with 32 four columns no longer fit the registers. */
#ifndef OPS_DOT_H
#define OPS_DOT_H

#include <stdint.h>
#include <string.h>

enum { DOT_LANES = 16, DOT_COLUMNS = 4 };

/* out[j] = sum over i < n of a[i] b[j stride + i], for j < count. */
void dot_columns(const float *a, const double *b, int64_t stride, int64_t count, int64_t n, double *out);
/* y[i] += s x[i], for i < n. */
void dot_accumulate(double s, const float *x, double *y, int64_t n);

#define DOT_INLINE static inline __attribute__((always_inline))

DOT_INLINE double dot_fold(double *lanes)
{
    for (int half = DOT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

/* One column; its sums are those of a column of dot_body_many, bit for bit. */
DOT_INLINE double dot_body_one(const float *a, const double *b, int64_t n)
{
    double lanes[DOT_LANES] = {0};
    int64_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int l = 0; l < DOT_LANES; l++)
            lanes[l] += (double)a[i + l] * b[i + l];
    for (int64_t l = 0; i + l < n; l++)
        lanes[l] += (double)a[i + l] * b[i + l];
    return dot_fold(lanes);
}

/* DOT_COLUMNS columns at once: a is loaded and widened once for all. */
DOT_INLINE void dot_body_many(const float *a, const double *b, int64_t stride, int64_t n, double *out)
{
    double lanes[DOT_COLUMNS][DOT_LANES] = {{0}};
    int64_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int j = 0; j < DOT_COLUMNS; j++)
            for (int l = 0; l < DOT_LANES; l++)
                lanes[j][l] += (double)a[i + l] * b[j * stride + i + l];
    for (int j = 0; j < DOT_COLUMNS; j++) {
        for (int64_t l = 0; i + l < n; l++)
            lanes[j][l] += (double)a[i + l] * b[j * stride + i + l];
        out[j] = dot_fold(lanes[j]);
    }
}

DOT_INLINE void dot_body_columns(const float *a, const double *b, int64_t stride, int64_t count, int64_t n, double *out)
{
    int64_t j = 0;
    for (; j + DOT_COLUMNS <= count; j += DOT_COLUMNS)
        dot_body_many(a, b + j * stride, stride, n, out + j);
    for (; j < count; j++)
        out[j] = dot_body_one(a, b + j * stride, n);
}

DOT_INLINE void dot_body_accumulate(double s, const float *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += s * (double)x[i];
}

#endif
