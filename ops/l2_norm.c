/* l2_norm.c: out = x / sqrt(sum(x^2) + eps) over dimension 0, f32: rows of length one, as the delta rule wants its queries and
 * keys (Yang et al., arXiv 2412.06464). Epsilon stands under the root, as in the model's own code (Qwen3-Next's in
 * transformers); x / max(|x|, eps), which goes by the same name elsewhere, differs only for rows shorter than a thousandth. */
#include "ops/l2_norm.h"
#include "ops/rows.h"

#include <math.h>

static void l2_norm_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)b;
    (void)n_b;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    double length = sqrt(sum + (double)node_params(node, struct l2_norm_params)->eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)a[i] / length);
}

static void l2_norm_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, l2_norm_row);
}

static int l2_norm_shape(struct node *n, struct hone_error *e)
{
    float eps = node_params(n, struct l2_norm_params)->eps;
    if (!(eps > 0) || isinf(eps))
        return op_refuse(n, e, "eps is %g", (double)eps);
    return rows_shape(n, e);
}

static struct cost l2_norm_cost(const struct node *n)
{
    return cost_elementwise(n, 3);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct l2_norm_params){1e-6f}},
    {"one_row", {{FORMAT_F32, {128}, FILL_NORMAL}}, &(const struct l2_norm_params){1e-6f}},
    {"heads", {{FORMAT_F32, {128, 16, 7}, FILL_NORMAL}}, &(const struct l2_norm_params){1e-6f}},
    {"heads_64", {{FORMAT_F32, {64, 3, 5}, FILL_NORMAL}}, &(const struct l2_norm_params){1e-6f}},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}}, &(const struct l2_norm_params){1e-6f}},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct l2_norm_params){1e-6f}},
    {"large_eps", {{FORMAT_F32, {96, 3}, FILL_NORMAL}}, &(const struct l2_norm_params){200}},
    {"zeros", {{FORMAT_F32, {64, 2}, FILL_ZERO}}, &(const struct l2_norm_params){1e-6f}},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct l2_norm_params){1e-6f}},
    {"transposed", {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct l2_norm_params){1e-6f}},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct l2_norm_params){1e-6f}},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, &(const struct l2_norm_params){1e-6f}},
};

static const struct op_param params[] = {{OP_REAL(struct l2_norm_params, eps)}, {NULL}};

const struct op_desc op_l2_norm = {
    .name = "l2_norm",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct l2_norm_params),
    .params = params,
    .shape = l2_norm_shape,
    .reference = l2_norm_reference,
    .scratch = rows_scratch,
    .cost = l2_norm_cost,
    .tolerance = 1e-12, /* as rms_norm: a sum without cancellation and a reciprocal root */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
