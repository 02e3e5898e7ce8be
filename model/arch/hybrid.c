/* hybrid.c: see hybrid.h. Which layers are recurrent: attention.recurrent_layers says it of each where the file has it, else
 * all but each full_attention_interval-th. Rope in these models has sections for the coordinates of images
 * (rope.dimension_sections); text has one position a token, so all sections turn by the same one and rope is that of pairs half
 * the dimensions apart.
 *
 * Files may hold a further block behind the layers, which predicts the token after the next from the last layer's state (nextn,
 * or multi-token prediction). It takes no part in the main pass; its tensors are known by their names' prefix, and how many
 * there are is said. */
#include "model/arch/hybrid.h"

#include "base/log.h"
#include "ops/glu.h"

#include <math.h>
#include <stdio.h>

static bool layer_is_recurrent(struct loader *l, int32_t interval)
{
    char key[96];
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", l->prefix);
    if (gguf_find(l->model->gguf, key))
        return loader_layer_int(l, "attention.recurrent_layers", l->layer, REQUIRED, 0, 0, 1) != 0;
    return (l->layer + 1) % interval != 0;
}

static void load_attention(struct loader *l, struct attention_block *a, float eps)
{
    const struct model *m = l->model;
    if (!attention_load_sizes(l, a))
        return;
    if (a->head_dim_k != a->head_dim_v)
        loader_refuse(l, "layer %d has heads of %d in K and %d in V; the gate wants one size", l->layer, a->head_dim_k,
                      a->head_dim_v);
    int64_t width = (int64_t)a->n_head * a->head_dim_k, kv_width = (int64_t)a->n_kv_head * a->head_dim_k;
    a->q = linear_load(l, "attn_q", m->n_embd, 2 * width);
    a->k = linear_load(l, "attn_k", m->n_embd, kv_width);
    a->v = linear_load(l, "attn_v", m->n_embd, kv_width);
    a->output = linear_load(l, "attn_output", width, m->n_embd);
    a->q_norm = loader_tensor(l, "attn_q_norm", REQUIRED, a->head_dim_k, 0, 0);
    a->k_norm = loader_tensor(l, "attn_k_norm", REQUIRED, a->head_dim_k, 0, 0);
    a->eps = eps;
    rope_load(l, &a->rope, ROPE_NEOX, a->head_dim_k);
    a->params.scale = loader_float(l, "attention.scale", OPTIONAL, 1 / sqrtf((float)a->head_dim_k), 1e-9f, 1e9f);
}

static void load_layer(struct loader *l, const struct hybrid_kind *kind, const struct hybrid *p, struct hybrid_layer *y,
                       int32_t interval)
{
    y->attn_norm = loader_tensor(l, "attn_norm", REQUIRED, l->model->n_embd, 0, 0);
    y->post_norm = loader_tensor(l, "post_attention_norm", REQUIRED, l->model->n_embd, 0, 0);
    y->recurrent = layer_is_recurrent(l, interval);
    if (y->recurrent)
        delta_net_load(l, &y->delta, kind->heads, kind->joint_beta_alpha, p->eps);
    else
        load_attention(l, &y->attention, p->eps);
    y->experts.glu.kind = UNARY_SILU;
    y->experts.route = (struct route_weights_params){.mode = ROUTE_SOFTMAX, .normalise = 1};
    if (kind->experts)
        experts_load(l, &y->experts);
    else
        ffn_load(l, &y->ffn, UNARY_SILU);
}

int hybrid_load(struct model *m, struct loader *l, const struct hybrid_kind *kind, struct hone_error *e)
{
    struct hybrid *p = arena_alloc(&m->arena, sizeof *p);
    int32_t n_extra = loader_int(l, "nextn_predict_layers", OPTIONAL, 0, 0, m->n_layer - 1);
    m->n_layer -= n_extra;
    if (p)
        p->layers = arena_array(&m->arena, (size_t)m->n_layer, sizeof *p->layers);
    if (!p || !p->layers)
        return err_set(e, HONE_ERESOURCE, "no memory for %d layers", m->n_layer);
    m->params = p;
    p->eps = loader_float(l, "attention.layer_norm_rms_epsilon", REQUIRED, 0, 1e-12f, 1);
    int32_t interval = loader_int(l, "full_attention_interval", OPTIONAL, 4, 1, 1024);
    p->token_embd = loader_tensor(l, "token_embd", REQUIRED, m->n_embd, m->n_vocab, 0);
    p->output_norm = loader_tensor(l, "output_norm", REQUIRED, m->n_embd, 0, 0);
    p->output.weight = loader_tensor(l, "output", OPTIONAL, m->n_embd, m->n_vocab, 0);
    if (!p->output.weight)
        p->output.weight = p->token_embd; /* tied */
    for (int i = 0; i < m->n_layer && !l->error.code; i++) {
        l->layer = i;
        load_layer(l, kind, p, &p->layers[i], interval);
    }
    for (l->layer = m->n_layer; l->layer < m->n_layer + n_extra; l->layer++)
        loader_leave_out(l, "predicts further tokens (nextn)");
    l->layer = -1;
    return 0;
}

/* Attention whose result is multiplied with the sigmoid of a gate that comes with the query. */
static struct tensor *build_gated_attention(struct graph *g, const struct attention_block *a, struct tensor *x,
                                            const struct step_inputs *in)
{
    int64_t d = a->head_dim_k, n = in->n_tokens;
    struct tensor *q = build_linear(g, &a->q, x, "Qcur_full"), *k = build_linear(g, &a->k, x, "Kcur"),
                  *v = build_linear(g, &a->v, x, "Vcur");
    q = graph_reshape(g, q, 2 * d, a->n_head, n, 0);
    struct tensor *gate = graph_name(g, graph_slice(g, q, d, d), "gate");
    q = graph_name(g, graph_slice(g, q, 0, d), "Qcur");
    k = graph_reshape(g, k, d, a->n_kv_head, n, 0);
    v = graph_reshape(g, v, d, a->n_kv_head, n, 0);
    q = build_norm(g, q, a->q_norm, a->eps, "Qcur_normed");
    k = build_norm(g, k, a->k_norm, a->eps, "Kcur_normed");
    q = graph_name(g, graph_op(g, OP_ROPE, &a->rope, q, in->positions), "Qcur_rope");
    k = graph_name(g, graph_op(g, OP_ROPE, &a->rope, k, in->positions), "Kcur_rope");
    k = graph_name(g, graph_op(g, OP_KV_WRITE, NULL, k, in->k[g->layer], in->cells), "k_write");
    v = graph_name(g, graph_op(g, OP_KV_WRITE, NULL, v, in->v[g->layer], in->cells), "v_write");
    x = graph_op(g, OP_ATTENTION, &a->params, q, k, v, in->positions, in->sequences, in->map);
    x = graph_name(g, x, "attn_pregate");
    x = graph_name(g, graph_op(g, OP_GLU, &(struct glu_params){.kind = UNARY_SIGMOID}, gate, x), "attn_gated");
    x = graph_reshape(g, x, d * a->n_head, n, 0, 0);
    return build_linear(g, &a->output, x, "attn_output");
}

void hybrid_build(const struct model *m, struct graph *g, const struct step_inputs *in)
{
    const struct hybrid *p = m->params;
    struct tensor *x = graph_name(g, graph_op(g, OP_GET_ROWS, NULL, p->token_embd, in->tokens), "inp_embd");
    for (int i = 0; i < m->n_layer; i++) {
        const struct hybrid_layer *y = &p->layers[i];
        g->layer = i;
        struct tensor *residual = x;
        x = build_norm(g, x, y->attn_norm, p->eps, "attn_norm");
        x = y->recurrent ? build_delta_net(g, &y->delta, x, in) : build_gated_attention(g, &y->attention, x, in);
        if (i == m->n_layer - 1) {
            x = build_outputs(g, x, in, "attn_output_rows");
            residual = build_outputs(g, residual, in, "residual_rows");
        }
        residual = x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "attn_residual");
        x = build_norm(g, x, y->post_norm, p->eps, "attn_post_norm");
        x = y->experts.n_expert ? build_experts(g, &y->experts, x) : build_ffn(g, &y->ffn, x);
        x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "l_out");
    }
    g->layer = -1;
    x = build_norm(g, x, p->output_norm, p->eps, "result_norm");
    g->logits = build_linear(g, &p->output, x, "result_output");
}
