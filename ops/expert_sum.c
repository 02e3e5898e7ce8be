/* expert_sum.c: out[i, t] = sum over j of weights[j, t] x[i, j, t]: what a token's experts gave, by their weights.
 * src[0] x f32 [m, n_used, n_tokens]; src[1] weights f32 [n_used, n_tokens]; out f32 [m, n_tokens]. Experts are summed in the order of
 * their places, which is that of their weights. */
#include "ops/ops.h"

#include <string.h>

static int expert_sum_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    for (int i = 0; i < 2 && !rc; i++)
        rc = op_check_format(n, i, FORMAT_F32, e);
    if (rc)
        return rc;
    const struct tensor *x = n->src[0], *w = n->src[1];
    char a[128], b[128];
    if (x->ne[1] != w->ne[0] || x->ne[2] != w->ne[1] || x->ne[3] != 1 || w->ne[2] != 1 || w->ne[3] != 1)
        return op_refuse(n, e, "x %s and weights %s do not belong together", tensor_describe(x, a, sizeof a), tensor_describe(w, b, sizeof b));
    return op_set_out(n, FORMAT_F32, (const int64_t[MAX_DIMS]){x->ne[0], x->ne[2], 1, 1}, e);
}

/* A row of sums, a row of x, the weights of a token. */
static size_t expert_sum_scratch(const struct node *n)
{
    return (sizeof(double) + sizeof(float)) * (size_t)n->src[0]->ne[0] + sizeof(float) * (size_t)n->src[1]->ne[0];
}

static void expert_sum_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *x = n->src[0], *out = n->out;
    int64_t lo, hi, m = x->ne[0], used = x->ne[1];
    double *sums = w->scratch;
    float *room = (float *)(sums + m), *weights_room = room + m;
    worker_range(w, out->ne[1], 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        const float *weights = tensor_read_row(n->src[1], t, 0, 0, weights_room);
        memset(sums, 0, sizeof *sums * (size_t)m);
        for (int64_t j = 0; j < used; j++) {
            const float *row = tensor_read_row(x, j, t, 0, room);
            for (int64_t i = 0; i < m; i++)
                sums[i] += (double)weights[j] * (double)row[i];
        }
        for (int64_t i = 0; i < m; i++)
            room[i] = (float)sums[i];
        tensor_write_row(out, t, 0, 0, room);
    }
}

static struct cost expert_sum_cost(const struct node *n)
{
    return cost_elementwise(n, 2 * (double)n->src[0]->ne[1]);
}

#define X(...) {FORMAT_F32, {__VA_ARGS__}, FILL_NORMAL}
static const struct op_case cases[] = {
    {"one", {X(1, 1, 1), X(1, 1)}, NULL},
    {"decode", {X(2048, 8, 1), X(8, 1)}, NULL},
    {"batch", {X(576, 2, 19), X(2, 19)}, NULL},
    {"odd", {X(77, 5, 3), X(5, 3)}, NULL},
    {"no_tokens", {X(64, 2, -1), X(2, -1)}, NULL},
    {"hostile", {{FORMAT_F32, {300, 4, 9}, FILL_HOSTILE}, {FORMAT_F32, {4, 9}, FILL_HOSTILE}}, NULL},
    {"padded", {{FORMAT_F32, {50, 3, 5}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_F32, {3, 5}, FILL_NORMAL, STRIDES_PADDED}}, NULL},
    {"permuted", {{FORMAT_F32, {50, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}, X(3, 5)}, NULL},
    {"transposed", {{FORMAT_F32, {13, 3, 5}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {3, 5}, FILL_NORMAL, STRIDES_TRANSPOSED}}, NULL},
};
#undef X

const struct op_desc op_expert_sum = {
    .name = "expert_sum",
    .min_src = 2,
    .max_src = 2,
    .shape = expert_sum_shape,
    .reference = expert_sum_reference,
    .scratch = expert_sum_scratch,
    .cost = expert_sum_cost,
    .tolerance = 1e-12, /* a handful of products, each rounded to 6e-8 of itself; where they cancel the sum errs by more */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
