/* route_weights.c: the weights of the experts that top_k chose (Shazeer et al., arXiv 1701.06538; Fedus et al., 2101.03961). Selection
 * and weights are two nodes, since both are read: the one by the expert products, the other by their sum. */
#include "ops/route_weights.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static int route_weights_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    if (!rc)
        rc = op_check_format(n, 1, FORMAT_I32, e);
    if (rc)
        return rc;
    const struct tensor *logits = n->src[0], *selected = n->src[1];
    const struct route_weights_params *p = node_params(n, struct route_weights_params);
    char a[128], b[128];
    if (logits->ne[1] != selected->ne[1] || logits->ne[2] != 1 || logits->ne[3] != 1 || selected->ne[2] != 1 || selected->ne[3] != 1)
        return op_refuse(n, e, "logits %s and selected %s differ in tokens", tensor_describe(logits, a, sizeof a),
                         tensor_describe(selected, b, sizeof b));
    if (p->mode < ROUTE_SOFTMAX || p->mode > ROUTE_SIGMOID || !isfinite(p->scale))
        return op_refuse(n, e, "mode %d, scale %g", p->mode, (double)p->scale);
    return op_set_out(n, FORMAT_F32, selected->ne, e);
}

static size_t route_weights_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)(n->src[0]->ne[0] + n->out->ne[0]);
}

/* The logit of the j-th selected expert of token t; -inf: there is none. */
static double logit_of(const struct node *n, const float *logits, int64_t j, int64_t t)
{
    int64_t id = tensor_read_index(n->src[1], j, t);
    return id >= 0 && id < n->src[0]->ne[0] ? (double)logits[id] : (double)-INFINITY;
}

static void route_token(const struct node *n, const float *logits, int64_t t, float *y)
{
    const struct route_weights_params *p = node_params(n, struct route_weights_params);
    int64_t k = n->out->ne[0], width = n->src[0]->ne[0];
    double most = -INFINITY, below = 0, sum = 0;
    for (int64_t i = 0; i < (p->mode == ROUTE_SOFTMAX ? width : k); i++)
        most = fmax(most, p->mode == ROUTE_SOFTMAX ? (double)logits[i] : logit_of(n, logits, i, t));
    for (int64_t i = 0; i < (p->mode == ROUTE_SOFTMAX ? width : k); i++)
        below += exp((p->mode == ROUTE_SOFTMAX ? (double)logits[i] : logit_of(n, logits, i, t)) - most);
    for (int pass = 0; pass < 2; pass++) /* the sum, then the weights: computed twice, so that none is rounded before */
        for (int64_t j = 0; j < k; j++) {
            double x = logit_of(n, logits, j, t);
            double v = x == -INFINITY ? 0 : p->mode == ROUTE_SIGMOID ? 1 / (1 + exp(-x)) : exp(x - most) / below;
            if (pass == 0)
                sum += v;
            else
                y[j] = (float)(v / (p->normalise ? fmax(sum, 0x1p-14) : 1) * (double)p->scale);
        }
}

static void route_weights_reference(const struct node *n, const struct worker *w)
{
    int64_t lo, hi;
    float *room = w->scratch, *y = room + n->src[0]->ne[0];
    worker_range(w, n->out->ne[1], 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        route_token(n, tensor_read_row(n->src[0], t, 0, 0, room), t, y);
        tensor_write_row(n->out, t, 0, 0, y);
    }
}

static struct cost route_weights_cost(const struct node *n)
{
    return cost_elementwise(n, 25 * (double)n->src[0]->ne[0] / (double)(n->out->ne[0] > 0 ? n->out->ne[0] : 1));
}

#define ROUTE(mode, normalise, scale) &(const struct route_weights_params){mode, normalise, scale}
#define LOGITS(n, t, fill)            {FORMAT_F32, {n, t}, FILL_##fill}
#define IDS(k, t, n)                  {FORMAT_I32, {k, t}, FILL_INDEX, STRIDES_PLAIN, n}

static const struct op_case cases[] = {
    {"one", {LOGITS(1, 1, NORMAL), IDS(1, 1, 1)}, ROUTE(ROUTE_SOFTMAX, 1, 1)},
    {"softmax_decode", {LOGITS(128, 1, NORMAL), IDS(8, 1, 128)}, ROUTE(ROUTE_SOFTMAX, 0, 1)},
    {"softmax_batch", {LOGITS(128, 19, NORMAL), IDS(8, 19, 128)}, ROUTE(ROUTE_SOFTMAX, 1, 1)},
    {"softmax_odd", {LOGITS(5, 24, NORMAL), IDS(2, 24, 5)}, ROUTE(ROUTE_SOFTMAX, 1, 2.5f)},
    {"selected", {LOGITS(32, 7, NORMAL), IDS(4, 7, 32)}, ROUTE(ROUTE_SOFTMAX_SELECTED, 0, 1)},
    {"sigmoid", {LOGITS(64, 7, NORMAL), IDS(6, 7, 64)}, ROUTE(ROUTE_SIGMOID, 1, 1.5f)},
    {"sigmoid_plain", {LOGITS(64, 3, NORMAL), IDS(6, 3, 64)}, ROUTE(ROUTE_SIGMOID, 0, 1)},
    {"beyond", {LOGITS(16, 3, NORMAL), IDS(6, 3, 20)}, ROUTE(ROUTE_SOFTMAX, 1, 1)},
    {"no_tokens", {LOGITS(16, -1, NORMAL), IDS(2, -1, 16)}, ROUTE(ROUTE_SOFTMAX, 1, 1)},
    {"hostile", {LOGITS(100, 9, HOSTILE), IDS(5, 9, 100)}, ROUTE(ROUTE_SOFTMAX, 1, 1)},
    {"padded", {{FORMAT_F32, {40, 5}, FILL_NORMAL, STRIDES_PADDED}, IDS(3, 5, 40)}, ROUTE(ROUTE_SOFTMAX, 1, 1)},
};

static const char *mode_word(int32_t mode)
{
    static const char *const words[] = {"softmax", "softmax_selected", "sigmoid"};
    return mode >= ROUTE_SOFTMAX && mode <= ROUTE_SIGMOID ? words[mode] : NULL;
}

static const struct op_param list[] = {{OP_WORD(struct route_weights_params, mode, mode_word)},
                                       {OP_WHOLE(struct route_weights_params, normalise)},
                                       {OP_REAL(struct route_weights_params, scale)},
                                       {NULL}};

const struct op_desc op_route_weights = {
    .name = "route_weights",
    .min_src = 2,
    .max_src = 2,
    .params_size = sizeof(struct route_weights_params),
    .params = list,
    .shape = route_weights_shape,
    .reference = route_weights_reference,
    .scratch = route_weights_scratch,
    .cost = route_weights_cost,
    .tolerance = 1e-11, /* that of softmax: an exponential of 22 bits, a sum, a division */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
