/* dot.h: the inner loops of the two references that carry the engine's plain path, mul_mat and attention.
 *
 * A sum of products runs in DOT_LANES independent lanes, element i in lane i modulo DOT_LANES, each in the order of i; at the
 * end the upper half of the lanes is added to the lower, again and again. That order is fixed, so vectors need no leave to
 * reorder and every variant gives the same bits (with contraction off, as the Makefile has it). A variant is a build for one
 * instruction set; which one runs is no gate and no --mask, for nothing but the time depends on it. */
#ifndef OPS_DOT_H
#define OPS_DOT_H

#include <stdbool.h>
#include <stdint.h>

enum { DOT_LANES = 8, DOT_ROWS = 4 };

struct dot {
    const char *name; /* "plain", "avx2", "avx512" */
    /* out[c DOT_ROWS + r] = sum over i < n of a[r][i] b[c stride + i], for r < rows <= DOT_ROWS and c < columns. */
    void (*block)(const float *const *a, int rows, const double *b, int64_t stride, int64_t columns, int64_t n, double *out);
    /* y[i] += s x[i], for i < n. */
    void (*accumulate)(double s, const float *x, double *y, int64_t n);
};

/* The fastest variant that this processor runs. */
const struct dot *dot_best(void);
/* The variants that it runs, plainest first, for a test to compare; NULL from i = their number on. */
const struct dot *dot_variant(int i);

#endif
