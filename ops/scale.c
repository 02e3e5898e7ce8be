/* scale.c: out = src[0] * scale + bias, elementwise, f32. The scale is a param and not a source, because the models that need
 * it (embedding scales, soft caps, residual multipliers) have it as a number in the file's keys. */
#include "ops/scale.h"
#include "ops/rows.h"

static void scale_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)b;
    (void)n_b;
    const struct scale_params *p = node_params(node, struct scale_params);
    double scale = p->scale, bias = p->bias;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)a[i] * scale + bias);
}

static void scale_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, scale_row);
}

static struct cost scale_cost(const struct node *n)
{
    return cost_elementwise(n, 2);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct scale_params){2, 0}},
    {"one_row", {{FORMAT_F32, {640}, FILL_NORMAL}}, &(const struct scale_params){25.298221f, 0}},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}}, &(const struct scale_params){0.1f, 0}},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct scale_params){0.1f, 0}},
    {"bias", {{FORMAT_F32, {77, 2, 3, 2}, FILL_NORMAL}}, &(const struct scale_params){-0.5f, 3}},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct scale_params){0.3f, 0}},
    {"transposed", {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct scale_params){0.3f, 1}},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct scale_params){0.3f, 1}},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, &(const struct scale_params){1e-3f, 0}},
};

static const struct op_param params[] = {{OP_REAL(struct scale_params, scale)}, {OP_REAL(struct scale_params, bias)}, {NULL}};

const struct op_desc op_scale = {
    .name = "scale",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct scale_params),
    .params = params,
    .shape = rows_shape,
    .reference = scale_reference,
    .scratch = rows_scratch,
    .cost = scale_cost,
    /* A multiplication and an addition, each rounded to f32, on values of the size of the result. */
    .tolerance = 1e-13,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
