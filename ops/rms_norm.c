/* rms_norm.c: out = x / sqrt(mean(x^2) + eps) over dimension 0 (Zhang and Sennrich, arXiv 1910.07467), f32. The learnt weight
 * is a mul node behind it, so that norms without one need no second op; the fusion of both is the planner's. */
#include "ops/rms_norm.h"
#include "ops/rows.h"

#include <math.h>

static void rms_norm_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)b;
    (void)n_b;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    double scale = 1 / sqrt(sum / (double)n + (double)node_params(node, struct rms_norm_params)->eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)a[i] * scale);
}

static void rms_norm_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, rms_norm_row);
}

static int rms_norm_shape(struct node *n, struct hone_error *e)
{
    float eps = node_params(n, struct rms_norm_params)->eps;
    if (!(eps >= 0) || isinf(eps))
        return op_refuse(n, e, "eps is %g", (double)eps);
    return rows_shape(n, e);
}

static struct cost rms_norm_cost(const struct node *n)
{
    return cost_elementwise(n, 3);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct rms_norm_params){1e-5f}},
    {"one_row", {{FORMAT_F32, {576}, FILL_NORMAL}}, &(const struct rms_norm_params){1e-5f}},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}}, &(const struct rms_norm_params){1e-6f}},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct rms_norm_params){1e-6f}},
    {"heads", {{FORMAT_F32, {256, 4, 7}, FILL_NORMAL}}, &(const struct rms_norm_params){1e-6f}},
    {"wide", {{FORMAT_F32, {5120, 2}, FILL_NORMAL}}, &(const struct rms_norm_params){1e-6f}},
    {"large_eps", {{FORMAT_F32, {96, 3}, FILL_NORMAL}}, &(const struct rms_norm_params){2}},
    {"zeros", {{FORMAT_F32, {64, 2}, FILL_ZERO}}, &(const struct rms_norm_params){1e-6f}},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct rms_norm_params){1e-5f}},
    {"transposed", {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct rms_norm_params){1e-5f}},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct rms_norm_params){1e-5f}},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, &(const struct rms_norm_params){1e-5f}},
};

const struct op_param rms_norm_param_list[] = {{OP_REAL(struct rms_norm_params, eps)}, {NULL}};

const struct op_desc op_rms_norm = {
    .name = "rms_norm",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    .shape = rms_norm_shape,
    .reference = rms_norm_reference,
    .scratch = rows_scratch,
    .cost = rms_norm_cost,
    /* A sum of squares in f32 has no cancellation: some units of 6e-8, the more the longer the row; and a reciprocal root
     * with one Newton step gives another few. */
    .tolerance = 1e-12,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
