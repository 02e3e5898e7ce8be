/* softmax.c: out = exp(s x + mask - max) / sum over dimension 0, f32. The mask is a source, as wide as a row, and repeats over
 * the other dimensions; -inf takes an element out, and a row with nothing left is all zeros, not NaN: such a row belongs to a
 * token of padding, and one NaN would spread. */
#include "ops/softmax.h"
#include "ops/rows.h"

#include <math.h>

static void softmax_row(const struct node *node, const float *a, const float *mask, int64_t n_b, float *y, int64_t n)
{
    (void)n_b;
    double scale = node_params(node, struct softmax_params)->scale, max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = scale * (double)a[i] + (mask ? (double)mask[i] : 0);
        max = x > max ? x : max;
    }
    /* The exponentials are computed twice rather than stored: a row of doubles would double the scratch. */
    for (int64_t i = 0; i < n; i++)
        sum += exp(scale * (double)a[i] + (mask ? (double)mask[i] : 0) - max);
    for (int64_t i = 0; i < n; i++) {
        double x = scale * (double)a[i] + (mask ? (double)mask[i] : 0);
        y[i] = max == -INFINITY ? 0 : (float)(exp(x - max) / sum);
    }
}

static void softmax_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, softmax_row);
}

static int softmax_shape(struct node *n, struct hone_error *e)
{
    int rc = rows_shape(n, e);
    if (!rc && n->n_src > 1 && n->src[1] && n->src[1]->ne[0] != n->src[0]->ne[0]) {
        char a[128], b[128];
        rc = op_refuse(n, e, "mask %s is not as wide as %s", tensor_describe(n->src[1], b, sizeof b),
                       tensor_describe(n->src[0], a, sizeof a));
    }
    if (!rc && !isfinite(node_params(n, struct softmax_params)->scale))
        rc = op_refuse(n, e, "scale is %g", (double)node_params(n, struct softmax_params)->scale);
    return rc;
}

static struct cost softmax_cost(const struct node *n)
{
    return cost_elementwise(n, 25);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct softmax_params){1}},
    {"one_row", {{FORMAT_F32, {500}, FILL_NORMAL}}, &(const struct softmax_params){0.125f}},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}}, &(const struct softmax_params){1}},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct softmax_params){1}},
    {"experts", {{FORMAT_F32, {5, 24}, FILL_NORMAL}}, &(const struct softmax_params){1}},
    {"steep", {{FORMAT_F32, {200, 4}, FILL_NORMAL}}, &(const struct softmax_params){20}},
    {"mask", {{FORMAT_F32, {70, 3, 4}, FILL_NORMAL}, {FORMAT_F32, {70, 3}, FILL_NORMAL}}, &(const struct softmax_params){0.5f}},
    {"mask_row",
     {{FORMAT_F32, {70, 3, 4}, FILL_NORMAL}, {FORMAT_F32, {70}, FILL_NORMAL}},
     &(const struct softmax_params){0.5f}},
    {"zeros", {{FORMAT_F32, {33, 2}, FILL_ZERO}}, &(const struct softmax_params){1}},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct softmax_params){1}},
    {"transposed",
     {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {13, 7}, FILL_NORMAL, STRIDES_TRANSPOSED}},
     &(const struct softmax_params){1}},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct softmax_params){1}},
    /* Scaled so that the difference of two large values, rounded to f32, stays small against one. */
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, &(const struct softmax_params){1e-3f}},
};

static const struct op_param params[] = {{OP_REAL(struct softmax_params, scale)}, {NULL}};

const struct op_desc op_softmax = {
    .name = "softmax",
    .min_src = 1,
    .max_src = 2,
    .params_size = sizeof(struct softmax_params),
    .params = params,
    .shape = softmax_shape,
    .reference = softmax_reference,
    .scratch = rows_scratch,
    .cost = softmax_cost,
    /* exp(x - max) in f32: the rounding of an argument of up to 100 alone is 4e-6 of the value, squared 1.6e-11; the values
     * that count have small arguments. */
    .tolerance = 1e-11,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
