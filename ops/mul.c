/* mul.c: out = src[0] * src[1], f32, elementwise. src[1] repeats to src[0]'s shape as in add.c: a norm's weight is one row. */
#include "ops/rows.h"

static void mul_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)node;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)a[i] * (double)b[i % n_b]);
}

static void mul_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, mul_row);
}

static struct cost mul_cost(const struct node *n)
{
    return cost_elementwise(n, 1);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}, {FORMAT_F32, {1}, FILL_NORMAL}}, NULL},
    {"one_row", {{FORMAT_F32, {576}, FILL_NORMAL}, {FORMAT_F32, {576}, FILL_NORMAL}}, NULL},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}, {FORMAT_F32, {1001, 3}, FILL_NORMAL}}, NULL},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}, {FORMAT_F32, {64}, FILL_NORMAL}}, NULL},
    {"norm_weight", {{FORMAT_F32, {640, 7}, FILL_NORMAL}, {FORMAT_F32, {640}, FILL_NORMAL}}, NULL},
    {"head_norm_weight", {{FORMAT_F32, {128, 5, 3}, FILL_NORMAL}, {FORMAT_F32, {128}, FILL_NORMAL}}, NULL},
    {"repeat_all", {{FORMAT_F32, {24, 6, 4, 2}, FILL_NORMAL}, {FORMAT_F32, {8, 3, 2, 1}, FILL_NORMAL}}, NULL},
    {"row_scalars", {{FORMAT_F32, {33, 5}, FILL_NORMAL}, {FORMAT_F32, {1, 5}, FILL_NORMAL}}, NULL},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_F32, {50}, FILL_NORMAL, STRIDES_PADDED}}, NULL},
    {"transposed",
     {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {13, 7}, FILL_NORMAL, STRIDES_TRANSPOSED}},
     NULL},
    {"permuted",
     {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}, {FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}},
     NULL},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}, {FORMAT_F32, {300}, FILL_HOSTILE}}, NULL},
};

const struct op_desc op_mul = {
    .name = "mul",
    .min_src = 2,
    .max_src = 2,
    .shape = rows_shape,
    .reference = mul_reference,
    .scratch = rows_scratch,
    .cost = mul_cost,
    .tolerance = 2e-14, /* one rounding by either side, as in add.c */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
