/* top_k.c: the k largest of each row, by k passes: a router has at most a few hundred experts and takes eight. Sorting the whole row,
 * as the field's engines do, costs more and leaves equal values in an order that depends on the sort. */
#include "ops/top_k.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static int top_k_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    if (rc)
        return rc;
    const struct tensor *x = n->src[0];
    int32_t k = node_params(n, struct top_k_params)->k;
    if (k < 1 || k > x->ne[0])
        return op_refuse(n, e, "the %d largest of %lld values", k, (long long)x->ne[0]);
    return op_set_out(n, FORMAT_I32, (const int64_t[MAX_DIMS]){k, x->ne[1], x->ne[2], x->ne[3]}, e);
}

/* A row of values, and which of them were taken. */
static size_t top_k_scratch(const struct node *n)
{
    return (sizeof(float) + 1) * (size_t)n->src[0]->ne[0];
}

/* a stands before b, whose index is lower. */
static bool before(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

static void top_k_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *x = n->src[0], *out = n->out;
    int64_t lo, hi, i[3], width = x->ne[0];
    float *room = w->scratch;
    unsigned char *taken = (unsigned char *)(room + width);
    worker_range(w, tensor_rows(out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(out, row, i);
        const float *values = tensor_read_row(x, i[0], i[1], i[2], room);
        memset(taken, 0, (size_t)width);
        for (int64_t j = 0; j < out->ne[0]; j++) {
            int32_t best = -1;
            for (int32_t c = 0; c < width; c++)
                if (!taken[c] && (best < 0 || before(values[c], values[best])))
                    best = c;
            taken[best] = 1;
            memcpy((char *)tensor_row(out, i[0], i[1], i[2]) + (size_t)j * out->nb[0], &best, sizeof best);
        }
    }
}

static struct cost top_k_cost(const struct node *n)
{
    return cost_elementwise(n, (double)n->src[0]->ne[0]);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct top_k_params){1}},
    {"decode_8_of_128", {{FORMAT_F32, {128}, FILL_NORMAL}}, &(const struct top_k_params){8}},
    {"batch_8_of_128", {{FORMAT_F32, {128, 19}, FILL_NORMAL}}, &(const struct top_k_params){8}},
    {"batch_10_of_512", {{FORMAT_F32, {512, 7}, FILL_NORMAL}}, &(const struct top_k_params){10}},
    {"two_of_five", {{FORMAT_F32, {5, 24}, FILL_NORMAL}}, &(const struct top_k_params){2}},
    {"all", {{FORMAT_F32, {9, 3}, FILL_NORMAL}}, &(const struct top_k_params){9}},
    {"equal", {{FORMAT_F32, {33, 3}, FILL_ZERO}}, &(const struct top_k_params){4}},
    {"no_rows", {{FORMAT_F32, {33, -1}, FILL_NORMAL}}, &(const struct top_k_params){4}},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, &(const struct top_k_params){7}},
    {"padded", {{FORMAT_F32, {60, 5}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct top_k_params){6}},
    {"transposed", {{FORMAT_F32, {16, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct top_k_params){3}},
};

static const struct op_param list[] = {{OP_WHOLE(struct top_k_params, k)}, {NULL}};

const struct op_desc op_top_k = {
    .name = "top_k",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct top_k_params),
    .params = list,
    .shape = top_k_shape,
    .reference = top_k_reference,
    .scratch = top_k_scratch,
    .cost = top_k_cost,
    .tolerance = 0, /* indices: equal or wrong */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
