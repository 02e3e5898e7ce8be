/* glu.c: out = f(gate) * up, elementwise, f32: the gated activation of a feed-forward layer (Shazeer, arXiv 2002.05202). Gate
 * and up are two sources and not the halves of one row: a model that stores them as halves makes two views. */
#include "ops/glu.h"
#include "ops/rows.h"

#include <math.h>

static void glu_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)n_b;
    const struct glu_params *p = node_params(node, struct glu_params);
    for (int64_t i = 0; i < n; i++) {
        double gate = (double)a[i], up = (double)b[i], limit = (double)p->limit;
        if (limit > 0) {
            gate = gate > limit ? limit : gate;
            up = up > limit ? limit : up < -limit ? -limit : up;
        }
        y[i] = (float)(unary_eval((enum unary_kind)p->kind, gate) * (up + (double)p->shift));
    }
}

static void glu_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, glu_row);
}

static int glu_shape(struct node *n, struct hone_error *e)
{
    const struct glu_params *p = node_params(n, struct glu_params);
    int32_t kind = p->kind;
    if (!(p->limit >= 0) || !isfinite(p->limit) || !isfinite(p->shift))
        return op_refuse(n, e, "limit %g, shift %g", (double)p->limit, (double)p->shift);
    if (kind < 0 || kind >= N_UNARY)
        return op_refuse(n, e, "unknown function %d", kind);
    int rc = rows_shape(n, e);
    if (!rc && !tensor_same_shape(n->src[0], n->src[1])) {
        char a[128], b[128];
        rc = op_refuse(n, e, "gate %s and up %s differ in shape", tensor_describe(n->src[0], a, sizeof a),
                       tensor_describe(n->src[1], b, sizeof b));
    }
    return rc;
}

static struct cost glu_cost(const struct node *n)
{
    return cost_elementwise(n, 21);
}

#define X(NAME, name)                                                                                                          \
    {#name,                                                                                                                    \
     {{FORMAT_F32, {131, 3}, FILL_NORMAL}, {FORMAT_F32, {131, 3}, FILL_NORMAL}},                                               \
     &(const struct glu_params){UNARY_##NAME}},

static const struct op_case cases[] = {
    UNARY_KINDS(X){"one_row",
                   {{FORMAT_F32, {1536}, FILL_NORMAL}, {FORMAT_F32, {1536}, FILL_NORMAL}},
                   &(const struct glu_params){UNARY_SILU}},
    {"no_rows",
     {{FORMAT_F32, {64, -1}, FILL_NORMAL}, {FORMAT_F32, {64, -1}, FILL_NORMAL}},
     &(const struct glu_params){UNARY_SILU}},
    {"halves",
     {{FORMAT_F32, {64, 5}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_F32, {64, 5}, FILL_NORMAL, STRIDES_PADDED}},
     &(const struct glu_params){UNARY_SILU}},
    {"transposed",
     {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}},
     &(const struct glu_params){UNARY_SILU}},
    {"permuted",
     {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}, {FORMAT_F32, {16, 3, 5}, FILL_NORMAL}},
     &(const struct glu_params){UNARY_GELU}},
    {"limit",
     {{FORMAT_F32, {131, 3}, FILL_HOSTILE}, {FORMAT_F32, {131, 3}, FILL_HOSTILE}},
     &(const struct glu_params){UNARY_GELU_QUICK, 7, 1}},
    {"limit_one_row",
     {{FORMAT_F32, {300}, FILL_NORMAL}, {FORMAT_F32, {300}, FILL_NORMAL}},
     &(const struct glu_params){UNARY_GELU_QUICK, 0.5f, 1}},
    {"shift",
     {{FORMAT_F32, {77, 2}, FILL_NORMAL}, {FORMAT_F32, {77, 2}, FILL_NORMAL}},
     &(const struct glu_params){UNARY_SILU, 0, 0.25f}},
    {"silu_hostile",
     {{FORMAT_F32, {300, 5}, FILL_HOSTILE}, {FORMAT_F32, {300, 5}, FILL_HOSTILE}},
     &(const struct glu_params){UNARY_SILU}},
    {"gelu_hostile",
     {{FORMAT_F32, {300, 5}, FILL_HOSTILE}, {FORMAT_F32, {300, 5}, FILL_HOSTILE}},
     &(const struct glu_params){UNARY_GELU}},
};
#undef X

const struct op_param glu_param_list[] = {{OP_WORD(struct glu_params, kind, unary_word)},
                                          {OP_REAL(struct glu_params, limit)},
                                          {OP_REAL(struct glu_params, shift)},
                                          {NULL}};

const struct op_desc op_glu = {
    .name = "glu",
    .min_src = 2,
    .max_src = 2,
    .params_size = sizeof(struct glu_params),
    .params = glu_param_list,
    .shape = glu_shape,
    .reference = glu_reference,
    .scratch = rows_scratch,
    .cost = glu_cost,
    .tolerance = 1e-11, /* that of unary; the product adds one rounding */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
