/* permute.c: dimensions in another order, nothing moved: only strides change places. A block format keeps dimension 0, since
 * the values of a block cannot be told apart by a stride; a packed source is refused. */
#include "ops/permute.h"
#include "ops/ops.h"

static int permute_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_unpacked(n, 0, e);
    if (rc)
        return rc;
    const struct tensor *src = n->src[0];
    const int32_t *axis = node_params(n, struct permute_params)->axis;
    int64_t ne[MAX_DIMS];
    size_t nb[MAX_DIMS];
    unsigned seen = 0;
    char text[128];
    for (int i = 0; i < MAX_DIMS; i++)
        seen |= axis[i] >= 0 && axis[i] < MAX_DIMS ? 1u << axis[i] : 0;
    if (seen != (1u << MAX_DIMS) - 1)
        return op_refuse(n, e, "axes %d, %d, %d, %d are no permutation of 0 to 3", axis[0], axis[1], axis[2], axis[3]);
    if (axis[0] != 0 && format_get(src->format)->block != 1)
        return op_refuse(n, e, "dimension 0 of %s has blocks and must stay in place", tensor_describe(src, text, sizeof text));
    for (int i = 0; i < MAX_DIMS; i++) {
        ne[axis[i]] = src->ne[i];
        nb[axis[i]] = src->nb[i];
    }
    rc = op_set_out(n, src->format, ne, e);
    if (rc)
        return rc;
    for (int i = 0; i < MAX_DIMS; i++)
        n->out->nb[i] = nb[i];
    op_set_view(n, 0, 0);
    return 0;
}

static struct cost permute_cost(const struct node *n)
{
    (void)n;
    return (struct cost){0};
}

static const struct op_case cases[] = {
    {"heads", {{FORMAT_F32, {8, 3, 5}, FILL_NORMAL}}, &(const struct permute_params){{0, 2, 1, 3}}},
    {"transpose", {{FORMAT_F32, {8, 3}, FILL_NORMAL}}, &(const struct permute_params){{1, 0, 2, 3}}},
    {"rotate", {{FORMAT_F16, {2, 3, 4, 5}, FILL_NORMAL}}, &(const struct permute_params){{1, 2, 3, 0}}},
    {"blocks", {{FORMAT_Q8_0, {32, 3, 4}, FILL_NORMAL}}, &(const struct permute_params){{0, 3, 1, 2}}},
    {"padded_source", {{FORMAT_F32, {7, 3, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct permute_params){{2, 0, 1, 3}}},
};

const struct op_desc op_permute = {
    .name = "permute",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct permute_params),
    .alias = true,
    .shape = permute_shape,
    .cost = permute_cost,
    .tolerance = 0,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
