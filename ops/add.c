/* add.c: out = src[0] + src[1], f32. src[1] repeats along whole dimensions to src[0]'s shape: element i of a dimension reads
 * element i modulo src[1]'s. src[0] never repeats, so that the shape of the result is always that of the first source. */
#include "ops/rows.h"

static void add_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)node;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)a[i] + (double)b[i % n_b]);
}

static void add_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, add_row);
}

static struct cost add_cost(const struct node *n)
{
    return cost_elementwise(n, 1);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}, {FORMAT_F32, {1}, FILL_NORMAL}}, NULL},
    {"one_row", {{FORMAT_F32, {576}, FILL_NORMAL}, {FORMAT_F32, {576}, FILL_NORMAL}}, NULL},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}, {FORMAT_F32, {1001, 3}, FILL_NORMAL}}, NULL},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}, {FORMAT_F32, {64, -1}, FILL_NORMAL}}, NULL},
    {"bias", {{FORMAT_F32, {130, 7}, FILL_NORMAL}, {FORMAT_F32, {130}, FILL_NORMAL}}, NULL},
    {"repeat_all", {{FORMAT_F32, {24, 6, 4, 2}, FILL_NORMAL}, {FORMAT_F32, {8, 3, 2, 1}, FILL_NORMAL}}, NULL},
    {"scalar", {{FORMAT_F32, {33, 2}, FILL_NORMAL}, {FORMAT_F32, {1}, FILL_NORMAL}}, NULL},
    {"four_dims", {{FORMAT_F32, {17, 3, 2, 4}, FILL_NORMAL}, {FORMAT_F32, {17, 3, 2, 4}, FILL_NORMAL}}, NULL},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, NULL},
    {"transposed",
     {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {13, 7}, FILL_NORMAL, STRIDES_TRANSPOSED}},
     NULL},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}, {FORMAT_F32, {16, 3, 5}, FILL_NORMAL}}, NULL},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}, {FORMAT_F32, {300, 9}, FILL_HOSTILE}}, NULL},
};

const struct op_desc op_add = {
    .name = "add",
    .min_src = 2,
    .max_src = 2,
    .shape = rows_shape,
    .reference = add_reference,
    .scratch = rows_scratch,
    .cost = add_cost,
    /* One rounding to f32 by either side: each errs by at most 2^-24 of the value, so both differ by 2^-23, squared 1.4e-14. */
    .tolerance = 2e-14,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
