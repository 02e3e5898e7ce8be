/* reshape.c: the same elements under another shape, nothing moved. Only of a contiguous source: for others the strides of the
 * result may not exist, and to copy silently would hide a cost (the builder puts a copy node where it wants one). */
#include "ops/reshape.h"
#include "ops/ops.h"

static int reshape_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_unpacked(n, 0, e);
    if (rc)
        return rc;
    const struct tensor *src = n->src[0];
    int64_t ne[MAX_DIMS];
    char from[128], to[128];
    for (int i = 0; i < MAX_DIMS; i++)
        ne[i] = node_params(n, struct reshape_params)->ne[i] ? node_params(n, struct reshape_params)->ne[i] : 1;
    rc = op_set_out(n, src->format, ne, e);
    if (rc)
        return rc;
    if (tensor_elements(src) != tensor_elements(n->out))
        return op_refuse(n, e, "%s does not hold the elements of %s", tensor_describe(src, from, sizeof from),
                         tensor_describe(n->out, to, sizeof to));
    if (!tensor_contiguous(src))
        return op_refuse(n, e, "%s is not contiguous", tensor_describe(src, from, sizeof from));
    op_set_view(n, 0, 0);
    return 0;
}

static struct cost reshape_cost(const struct node *n)
{
    (void)n;
    return (struct cost){0};
}

static const struct op_case cases[] = {
    {"heads", {{FORMAT_F32, {24, 5}, FILL_NORMAL}}, &(const struct reshape_params){{8, 3, 5}}},
    {"flat", {{FORMAT_F32, {8, 3, 5, 2}, FILL_NORMAL}}, &(const struct reshape_params){{240}}},
    {"blocks", {{FORMAT_Q4_0, {64, 3}, FILL_NORMAL}}, &(const struct reshape_params){{32, 6}}},
    {"one", {{FORMAT_I32, {1}, FILL_ZERO}}, &(const struct reshape_params){{1, 1, 1, 1}}},
};

const struct op_desc op_reshape = {
    .name = "reshape",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct reshape_params),
    .alias = true,
    .shape = reshape_shape,
    .cost = reshape_cost,
    .tolerance = 0,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
