/* fuse_cases_recurrent.c: convolutions and delta nets with their states. See fuse_parts.h. */
#include "graph/fuse_parts.h"

#include "ops/gated_delta_rule.h"
#include "ops/glu.h"
#include "ops/l2_norm.h"
#include "ops/rms_norm.h"
#include "ops/view.h"
#include "ops/unary.h"

struct conv_case {
    const char *name;
    int64_t channels, width, n_tokens, n_seq, n_slots;
    enum fill x;
};

static void build_conv_case(struct fuse_case *c, const void *spec)
{
    const struct conv_case *s = spec;
    struct graph *g = &c->graph;
    struct case_src x_spec = {FORMAT_F32, {s->channels, s->n_tokens}, s->x, STRIDES_PLAIN, 0};
    struct tensor *x = case_leaf(c, TENSOR_INPUT, "qkv", x_spec);
    struct tensor *weight = LEAF(WEIGHT, "ssm_conv1d.weight", FORMAT_F32, NORMAL, 0, s->width, s->channels);
    struct tensor *state = LEAF(STATE, "conv_state", FORMAT_F32, NORMAL, 0, s->channels, s->width - 1, s->n_slots);
    struct tensor *sequences = LEAF(INPUT, "sequences", FORMAT_I32, INDEX, s->n_seq, s->n_tokens);
    struct tensor *slots = LEAF(INPUT, "slots", FORMAT_I32, DISTINCT, s->n_slots, 2, s->n_seq);
    x = graph_op(g, OP_SSM_CONV, NULL, x, weight, state, sequences, slots);
    graph_op(g, OP_UNARY, (&(struct unary_params){UNARY_SILU}), x);
}

static const struct conv_case ssm_conv_silu_cases[] = {
    {"decode", 6144, 4, 1, 1, 2, FILL_NORMAL},       {"batch", 768, 4, 17, 1, 2, FILL_NORMAL},
    {"odd_channels", 101, 4, 5, 1, 3, FILL_NORMAL},  {"width_3", 96, 3, 5, 1, 2, FILL_NORMAL},
    {"sequences", 160, 4, 19, 4, 9, FILL_NORMAL},    {"hostile", 300, 4, 9, 1, 2, FILL_HOSTILE},
};

struct net_case {
    const char *name;
    int64_t dim, n_k, n_v, n_tokens, n_seq, n_slots;
    enum delta_heads heads;
    bool joint; /* alpha and beta are windows of one product */
    enum fill x;
    int64_t taps;    /* of the convolution before it; 0: none */
    bool quantize, read; /* the result */
    enum fill slots; /* 0: distinct ones */
    int64_t first;   /* of ascending ones */
    bool stray;      /* the tokens' sequences have no slots */
};

/* Elements [first, first + dim * n) of rows of x as [dim, n, rows]. */
static struct tensor *part_of(struct graph *g, struct tensor *x, int64_t first, int64_t dim, int64_t n)
{
    if (!x)
        return NULL;
    struct view_params p = {.ne = {(int32_t)dim, (int32_t)n, (int32_t)x->ne[1]}, .nb = {sizeof(float)}};
    p.nb[1] = (uint64_t)dim * sizeof(float);
    p.nb[2] = p.nb[3] = x->nb[1];
    p.offset = (uint64_t)first * sizeof(float);
    return graph_op(g, OP_VIEW, &p, x);
}

static struct tensor *unary(struct graph *g, enum unary_kind kind, struct tensor *x)
{
    return graph_op(g, OP_UNARY, (&(struct unary_params){(int32_t)kind}), x);
}

static void build_net_case(struct fuse_case *c, const void *spec)
{
    const struct net_case *s = spec;
    struct graph *g = &c->graph;
    int64_t n = s->n_tokens, keys = s->dim * s->n_k, values = s->dim * s->n_v, each = s->n_v / s->n_k;
    struct case_src qkv_spec = {FORMAT_F32, {2 * keys + values, n}, s->x, STRIDES_PLAIN, 0};
    struct tensor *qkv = case_leaf(c, TENSOR_INPUT, "qkv", qkv_spec), *z = LEAF(INPUT, "z", FORMAT_F32, NORMAL, 0, values, n);
    struct tensor *dt = LEAF(WEIGHT, "ssm_dt.bias", FORMAT_F32, NORMAL, 0, s->n_v), *a = LEAF(WEIGHT, "ssm_a", FORMAT_F32, NEGATIVE, 0, s->n_v);
    struct tensor *alpha, *beta, *weight = LEAF(WEIGHT, "ssm_norm.weight", FORMAT_F32, NORMAL, 0, s->dim);
    struct tensor *state = LEAF(STATE, "delta_state", FORMAT_F32, NORMAL, 0, s->dim, s->dim, s->n_v, s->n_slots);
    struct case_src of = {FORMAT_I32, {n}, s->stray ? FILL_ASCENDING : FILL_INDEX, STRIDES_PLAIN, s->n_seq};
    struct case_src where = {FORMAT_I32, {2, s->n_seq}, s->slots ? s->slots : FILL_DISTINCT, STRIDES_PLAIN, s->slots ? s->first : s->n_slots};
    struct tensor *sequences = case_leaf(c, TENSOR_INPUT, "sequences", of), *slots = case_leaf(c, TENSOR_INPUT, "slots", where);
    if (s->taps) {
        struct tensor *taps = LEAF(WEIGHT, "ssm_conv1d.weight", FORMAT_F32, NORMAL, 0, s->taps, qkv->ne[0]);
        struct tensor *window = LEAF(STATE, "conv_state", FORMAT_F32, NORMAL, 0, qkv->ne[0], s->taps - 1, s->n_slots);
        qkv = unary(g, UNARY_SILU, graph_op(g, OP_SSM_CONV, NULL, qkv, taps, window, sequences, slots));
    }
    if (s->joint) {
        struct tensor *both = graph_reshape(g, LEAF(INPUT, "ba", FORMAT_F32, NORMAL, 0, 2 * s->n_v, n), 2 * each, s->n_k, n, 0);
        beta = graph_slice(g, both, 0, each);
        alpha = graph_slice(g, both, each, each);
        dt = graph_reshape(g, dt, each, s->n_k, 0, 0);
        a = graph_reshape(g, a, each, s->n_k, 0, 0);
    } else {
        alpha = LEAF(INPUT, "alpha", FORMAT_F32, NORMAL, 0, s->n_v, n);
        beta = LEAF(INPUT, "beta", FORMAT_F32, NORMAL, 0, s->n_v, n);
    }
    beta = graph_reshape(g, unary(g, UNARY_SIGMOID, beta), s->n_v, n, 0, 0);
    alpha = graph_op(g, OP_MUL, NULL, unary(g, UNARY_SOFTPLUS, graph_op(g, OP_ADD, NULL, alpha, dt)), a);
    alpha = graph_reshape(g, alpha, s->n_v, n, 0, 0);
    struct tensor *q = graph_op(g, OP_L2_NORM, (&(struct l2_norm_params){1e-6f}), part_of(g, qkv, 0, s->dim, s->n_k));
    struct tensor *k = graph_op(g, OP_L2_NORM, (&(struct l2_norm_params){1e-5f}), part_of(g, qkv, keys, s->dim, s->n_k));
    struct gated_delta_rule_params p = {0.125f, (int32_t)s->heads};
    struct tensor *x = graph_op(g, OP_GATED_DELTA_RULE, &p, q, k, part_of(g, qkv, 2 * keys, s->dim, s->n_v), alpha, beta, state, sequences, slots);
    x = graph_op(g, OP_MUL, NULL, graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-6f}), x), weight);
    x = graph_op(g, OP_GLU, (&(struct glu_params){.kind = UNARY_SILU}), graph_reshape(g, z, s->dim, s->n_v, n, 0), x);
    if (s->quantize)
        case_quantized(c, graph_reshape(g, x, values, n, 0, 0), FORMAT_A8);
    if (s->read)
        case_read(c, x);
}

static const struct net_case gated_delta_net_cases[] = {
    {"decode_128", 128, 2, 6, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"decode_64", 64, 3, 6, 1, 1, 3, DELTA_TILED, false, FILL_NORMAL},
    {"decode_grouped", 128, 2, 4, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"batch_128", 128, 1, 2, 9, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"batch_grouped", 64, 2, 6, 5, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"batch_joint_tiled", 64, 2, 6, 5, 1, 2, DELTA_TILED, true, FILL_NORMAL},
    {"one_key_head", 32, 1, 3, 5, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"70_tokens", 64, 1, 2, 70, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"70_tokens_128", 128, 1, 2, 70, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"prefill_sequences", 64, 1, 2, 60, 3, 9, DELTA_TILED, false, FILL_NORMAL},
    {"odd_size", 37, 1, 3, 5, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"sequences", 64, 1, 2, 19, 4, 9, DELTA_TILED, false, FILL_NORMAL},
    {"41_tokens_128", 128, 1, 2, 41, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"21_tokens_odd", 37, 1, 3, 21, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"long_sequences", 64, 1, 2, 60, 4, 9, DELTA_TILED, false, FILL_NORMAL},
    {"hostile", 48, 1, 2, 5, 1, 2, DELTA_TILED, false, FILL_HOSTILE},
};

static const struct net_case conv_delta_net_cases[] = {
    {"decode_128", 128, 2, 6, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_128_even", 128, 3, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_64", 64, 3, 6, 1, 1, 3, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_grouped", 128, 2, 4, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL, 4},
    {"decode_grouped_64", 64, 2, 8, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL, 4},
    {"decode_sequences", 128, 1, 3, 1, 4, 9, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_40_sequences", 64, 1, 2, 1, 40, 80, DELTA_TILED, false, FILL_NORMAL, 4},
    {"same_slot", 128, 1, 3, 1, 1, 1, DELTA_TILED, false, FILL_NORMAL, 4, .slots = FILL_ZERO},
    {"begins", 128, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, .slots = FILL_ASCENDING, .first = -1},
    {"leaves_none", 64, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, .slots = FILL_ASCENDING, .first = 1},
    {"stray", 128, 1, 3, 1, 2, 4, DELTA_TILED, false, FILL_NORMAL, 4, .stray = true},
    {"batch_128", 128, 1, 2, 9, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"width_3", 64, 1, 2, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 3},
    {"odd_size", 37, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"hostile", 128, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_HOSTILE, 4},
};

static const struct net_case conv_delta_net_quantize_cases[] = {
    {"decode_128", 128, 2, 6, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true},
    {"decode_128_even", 128, 3, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true},
    {"decode_64", 64, 3, 6, 1, 1, 3, DELTA_TILED, false, FILL_NORMAL, 4, true},
    {"decode_grouped", 128, 2, 4, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL, 4, true},
    {"result_read", 128, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true, .read = true},
    {"same_slot", 128, 1, 3, 1, 1, 1, DELTA_TILED, false, FILL_NORMAL, 4, true, .slots = FILL_ZERO},
    {"batch_64", 64, 1, 2, 9, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true},
};

FUSE_CASES(ssm_conv_silu, build_conv_case, ssm_conv_silu_cases);
FUSE_CASES(gated_delta_net, build_net_case, gated_delta_net_cases);
FUSE_CASES(conv_delta_net, build_net_case, conv_delta_net_cases);
FUSE_CASES(conv_delta_net_quantize, build_net_case, conv_delta_net_quantize_cases);
