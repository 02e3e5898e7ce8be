/* delta_net.c: see delta_net.h. Facts of the files (llama.cpp's qwen3next and qwen35 graphs, and its converter): attn_qkv gives
 * q, k and v one behind the other, which go through one convolution; ssm_a is -exp(A_log) already; which heads of v share a
 * head of k differs by architecture (ops/gated_delta_rule.h); the gate z multiplies behind the norm. Node names are those of
 * llama.cpp. */
#include "model/arch/delta_net.h"

#include "ops/glu.h"
#include "ops/l2_norm.h"
#include "ops/view.h"

#include <math.h>

void delta_net_load(struct loader *l, struct delta_net_block *b, enum delta_heads heads, bool joint, float eps)
{
    struct model *m = l->model;
    int32_t width = loader_int(l, "ssm.conv_kernel", REQUIRED, 0, 2, 64);
    int32_t inner = loader_int(l, "ssm.inner_size", REQUIRED, 0, 1, 1 << 20);
    b->dim = loader_int(l, "ssm.state_size", REQUIRED, 0, 1, 4096);
    b->n_v = loader_int(l, "ssm.time_step_rank", REQUIRED, 0, 1, 4096);
    b->n_k = loader_int(l, "ssm.group_count", REQUIRED, 0, 1, 4096);
    b->heads = heads;
    b->eps = eps;
    if (l->error.code)
        return;
    if ((int64_t)b->n_v * b->dim != inner || b->n_v % b->n_k)
        loader_refuse(l, "layer %d has a state of %d, %d heads of V and %d of K, which do not make an inner size of %d",
                      l->layer, b->dim, b->n_v, b->n_k, inner);
    int64_t keys = (int64_t)b->n_k * b->dim, channels = 2 * keys + inner;
    b->qkv = linear_load(l, "attn_qkv", m->n_embd, channels);
    b->z = linear_load(l, "attn_gate", m->n_embd, inner);
    if (joint) {
        b->beta_alpha = linear_load(l, "ssm_ba", m->n_embd, 2 * (int64_t)b->n_v);
    } else {
        b->beta = linear_load(l, "ssm_beta", m->n_embd, b->n_v);
        b->alpha = linear_load(l, "ssm_alpha", m->n_embd, b->n_v);
    }
    b->conv = loader_tensor(l, "ssm_conv1d", REQUIRED, width, channels, 0);
    if (b->conv && b->conv->format != FORMAT_F32)
        loader_refuse(l, "the tensor %s has type %s where F32 is wanted", b->conv->name, format_get(b->conv->format)->name);
    b->dt = loader_tensor(l, "ssm_dt.bias", REQUIRED, b->n_v, 0, 0);
    b->a = loader_tensor(l, "ssm_a.", REQUIRED, b->n_v, 0, 0);
    b->norm = loader_tensor(l, "ssm_norm", REQUIRED, b->dim, 0, 0);
    b->output = linear_load(l, "ssm_out", inner, m->n_embd);
    m->memory[l->layer] = (struct layer_memory){.conv_rows = width - 1,
                                                .conv_channels = (int32_t)channels,
                                                .n_state_head = b->n_v,
                                                .state_dim_k = b->dim,
                                                .state_dim_v = b->dim};
}

/* Elements [first, first + dim * n) of each row of x as [dim, n, rows]. */
static struct tensor *heads_of(struct graph *g, struct tensor *x, int64_t first, int64_t dim, int64_t n, const char *name)
{
    if (!x)
        return NULL;
    struct view_params p = {.ne = {(int32_t)dim, (int32_t)n, (int32_t)x->ne[1]}, .nb = {sizeof(float)}};
    p.offset = (uint64_t)first * sizeof(float);
    p.nb[1] = (uint64_t)dim * sizeof(float);
    p.nb[2] = p.nb[3] = x->nb[1];
    return graph_name(g, graph_op(g, OP_VIEW, &p, x), "%s", name);
}

static struct tensor *unary(struct graph *g, enum unary_kind kind, struct tensor *x, const char *name)
{
    return graph_name(g, graph_op(g, OP_UNARY, &(struct unary_params){(int32_t)kind}, x), "%s", name);
}

/* What goes into the rule beside q, k and v: how much of each value is written, and the logarithm of how much is kept. */
struct gates {
    struct tensor *beta, *g;
};

static struct gates build_gates(struct graph *g, const struct delta_net_block *b, struct tensor *beta, struct tensor *alpha,
                                int64_t n_tokens)
{
    struct tensor *dt = b->dt, *a = b->a;
    if (b->beta_alpha.weight) { /* windows of [n_v / n_k, n_k, n_tokens] */
        dt = graph_reshape(g, dt, b->n_v / b->n_k, b->n_k, 0, 0);
        a = graph_reshape(g, a, b->n_v / b->n_k, b->n_k, 0, 0);
    }
    beta = unary(g, UNARY_SIGMOID, beta, "beta_sigmoid");
    alpha = graph_name(g, graph_op(g, OP_ADD, NULL, alpha, dt), "alpha_biased");
    alpha = unary(g, UNARY_SOFTPLUS, alpha, "a_softplus");
    alpha = graph_name(g, graph_op(g, OP_MUL, NULL, alpha, a), "gate");
    if (b->beta_alpha.weight) {
        beta = graph_reshape(g, beta, b->n_v, n_tokens, 0, 0);
        alpha = graph_reshape(g, alpha, b->n_v, n_tokens, 0, 0);
    }
    return (struct gates){beta, alpha};
}

struct tensor *build_delta_net(struct graph *g, const struct delta_net_block *b, struct tensor *x, const struct step_inputs *in)
{
    int64_t keys = (int64_t)b->n_k * b->dim, n = in->n_tokens, each = b->n_v / b->n_k;
    struct tensor *qkv = build_linear(g, &b->qkv, x, "linear_attn_qkv_mixed"), *z = build_linear(g, &b->z, x, "z"), *beta,
                  *alpha;
    if (b->beta_alpha.weight) {
        struct tensor *both = build_linear(g, &b->beta_alpha, x, "linear_attn_mixed_ba");
        both = graph_reshape(g, both, 2 * each, b->n_k, n, 0);
        beta = graph_name(g, graph_slice(g, both, 0, each), "beta");
        alpha = graph_name(g, graph_slice(g, both, each, each), "alpha");
    } else {
        beta = build_linear(g, &b->beta, x, "beta");
        alpha = build_linear(g, &b->alpha, x, "alpha");
    }
    x = graph_op(g, OP_SSM_CONV, NULL, qkv, b->conv, in->conv[g->layer], in->sequences, in->slots);
    x = unary(g, UNARY_SILU, graph_name(g, x, "conv_output_raw"), "conv_output_silu");
    struct tensor *q = heads_of(g, x, 0, b->dim, b->n_k, "q_conv"), *k = heads_of(g, x, keys, b->dim, b->n_k, "k_conv");
    struct tensor *v = heads_of(g, x, 2 * keys, b->dim, b->n_v, "v_conv");
    struct gates gates = build_gates(g, b, beta, alpha, n);
    q = graph_name(g, graph_op(g, OP_L2_NORM, &(struct l2_norm_params){b->eps}, q), "q_conv_predelta");
    k = graph_name(g, graph_op(g, OP_L2_NORM, &(struct l2_norm_params){b->eps}, k), "k_conv_predelta");
    struct gated_delta_rule_params p = {1 / sqrtf((float)b->dim), (int32_t)b->heads};
    x = graph_op(g, OP_GATED_DELTA_RULE, &p, q, k, v, gates.g, gates.beta, in->delta[g->layer], in->sequences, in->slots);
    x = build_norm(g, graph_name(g, x, "delta_output"), b->norm, b->eps, "delta_norm");
    z = graph_reshape(g, z, b->dim, b->n_v, n, 0);
    x = graph_name(g, graph_op(g, OP_GLU, &(struct glu_params){.kind = UNARY_SILU}, z, x), "final_output");
    x = graph_reshape(g, x, (int64_t)b->n_v * b->dim, n, 0, 0);
    return build_linear(g, &b->output, x, "linear_attn_out");
}
