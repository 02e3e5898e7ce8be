/* rows.h: the loop that most references are: for each row of the output, read a row of each source, compute in double, round
 * once, write. The op gives the function of one row; everything else (shares of the workers, strides, broadcast, scratch)
 * is here once. */
#ifndef OPS_ROWS_H
#define OPS_ROWS_H

#include "ops/ops.h"

/* y, a and b are rows of n; b is NULL without a second source, and its n_b values repeat along the row. */
typedef void rows_fn(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n);

/* Runs fn over w's rows of the output. Row (i1, i2, i3) reads row (i1, i2, i3) of src[0], and of src[1], if present, the
 * row of the indices modulo its dimensions. */
void rows_reference(const struct node *n, const struct worker *w, rows_fn *fn);
size_t rows_scratch(const struct node *n);

/* Shape rules: every source f32, the output f32 like src[0]; and src[1], if present, broadcasts to src[0]'s shape. */
int rows_shape(struct node *n, struct hone_error *e);

#endif
