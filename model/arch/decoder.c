/* decoder.c: the common decoder (Vaswani et al., arXiv 1706.03762, as Llama, 2302.13971, made it usual): RMS norms, rope, grouped-query
 * attention, a gated feed-forward block. The rows whose logits are wanted are gathered behind the last layer's attention, so that the
 * rest of it is computed for them alone.
 *
 * Inheritance by callbacks was the alternative, a hook before and behind each step; ten flags in a struct say at a glance what an
 * architecture is. */
#include "model/arch/decoder.h"

#include "ops/scale.h"

#include <math.h>

static void load_layer(struct model *m, struct loader *l, const struct decoder_kind *kind, struct decoder *p, struct decoder_layer *y)
{
    struct attention_block *a = &y->attention;
    struct tensor **attn = kind->post_norm ? &y->attn_post_norm : &y->attn_norm;
    struct tensor **ffn = kind->post_norm ? &y->ffn_post_norm : &y->ffn_norm;
    *attn = loader_tensor(l, kind->post_norm ? "post_attention_norm" : "attn_norm", REQUIRED, m->n_embd, 0, 0);
    const char *ffn_norm = kind->post_norm ? "post_ffw_norm" : "ffn_norm";
    *ffn = loader_tensor(l, kind->ffn_norm ? kind->ffn_norm : ffn_norm, REQUIRED, m->n_embd, 0, 0);
    if (kind->fused_qkv)
        attention_load_fused(l, a);
    else
        attention_load(l, a);
    a->eps = p->eps;
    if (kind->qk != QK_PLAIN) {
        bool head = kind->qk == QK_NORM_HEAD;
        a->norm_all = !head;
        a->q_norm = loader_tensor(l, "attn_q_norm", REQUIRED, (head ? 1 : (int64_t)a->n_head) * a->head_dim_k, 0, 0);
        a->k_norm = loader_tensor(l, "attn_k_norm", REQUIRED, (head ? 1 : (int64_t)a->n_kv_head) * a->head_dim_k, 0, 0);
    }
    rope_load(l, &a->rope, kind->rope, a->head_dim_k);
    a->no_rope = kind->no_rope_every && (l->layer + 1) % kind->no_rope_every == 0;
    a->params.scale = loader_float(l, "attention.scale", OPTIONAL, 1 / sqrtf((float)a->head_dim_k), 1e-9f, 1e9f);
    a->sinks = loader_tensor(l, "attn_sinks", OPTIONAL, a->n_head, 0, 0);
    if (kind->full_every && (l->layer + 1) % kind->full_every != 0)
        a->params.window = loader_int(l, "attention.sliding_window", REQUIRED, 0, 1, 1 << 30);
    bool said = kind->experts == EXPERTS_WHERE_SAID && loader_int(l, "expert_count", OPTIONAL, 0, 0, 4096) > 0;
    y->experts.route = kind->route;
    y->experts.glu = kind->glu;
    if (said || kind->experts == EXPERTS_ALWAYS)
        experts_load(l, &y->experts);
    else if (kind->fused_gate_up)
        ffn_load_fused(l, &y->ffn, kind->activation);
    else
        ffn_load(l, &y->ffn, kind->activation);
    /* The factors are one tensor for all layers; some converters write it into each layer instead. */
    a->rope_factors = loader_tensor(l, "rope_freqs", OPTIONAL, a->rope.n_dims / 2, 0, 0);
    int layer = l->layer;
    l->layer = -1;
    if (!a->rope_factors)
        a->rope_factors = loader_tensor(l, "rope_freqs", OPTIONAL, a->rope.n_dims / 2, 0, 0);
    a->factors_long = loader_tensor(l, "rope_factors_long", OPTIONAL, a->rope.n_dims / 2, 0, 0);
    a->factors_short = loader_tensor(l, "rope_factors_short", OPTIONAL, a->rope.n_dims / 2, 0, 0);
    l->layer = layer;
    if (!a->rope_factors && a->factors_long && a->factors_short)
        l->model->n_ctx_short = a->rope.n_ctx_orig;
}

int decoder_load(struct model *m, struct loader *l, const struct decoder_kind *kind, struct hone_error *e)
{
    struct decoder *p = arena_alloc(&m->arena, sizeof *p);
    if (p)
        p->layers = arena_array(&m->arena, (size_t)m->n_layer, sizeof *p->layers);
    if (!p || !p->layers)
        return err_set(e, HONE_ERESOURCE, "no memory for %d layers", m->n_layer);
    m->params = p;
    p->eps = loader_float(l, "attention.layer_norm_rms_epsilon", REQUIRED, 0, 0, 1);
    p->embedding_scale = loader_float(l, "embedding_scale", OPTIONAL, 1, 1e-9f, 1e9f);
    p->residual_scale = loader_float(l, "residual_scale", OPTIONAL, 1, 1e-9f, 1e9f);
    p->logit_scale = 1 / loader_float(l, "logit_scale", OPTIONAL, 1, 1e-9f, 1e9f);
    p->token_embd = loader_tensor(l, "token_embd", REQUIRED, m->n_embd, m->n_vocab, 0);
    p->output_norm = loader_tensor(l, "output_norm", REQUIRED, m->n_embd, 0, 0);
    p->output.weight = loader_tensor(l, "output", OPTIONAL, m->n_embd, m->n_vocab, 0);
    if (!p->output.weight)
        p->output.weight = p->token_embd; /* tied */
    for (int i = 0; i < m->n_layer && !l->error.code; i++) {
        l->layer = i;
        load_layer(m, l, kind, p, &p->layers[i]);
    }
    l->layer = -1;
    return 0;
}

static struct tensor *scaled(struct graph *g, struct tensor *x, float scale, const char *name)
{
    return scale == 1 ? x : graph_name(g, graph_op(g, OP_SCALE, &(struct scale_params){.scale = scale}, x), "%s", name);
}

void decoder_build(const struct model *m, struct graph *g, const struct step_inputs *in)
{
    const struct decoder *p = m->params;
    struct tensor *x = graph_name(g, graph_op(g, OP_GET_ROWS, NULL, p->token_embd, in->tokens), "inp_embd");
    x = scaled(g, x, p->embedding_scale, "inp_scaled");
    for (int i = 0; i < m->n_layer; i++) {
        const struct decoder_layer *y = &p->layers[i];
        g->layer = i;
        struct tensor *residual = x;
        if (y->attn_norm)
            x = build_norm(g, x, y->attn_norm, p->eps, "attn_norm");
        x = build_attention(g, &y->attention, x, in);
        if (i == m->n_layer - 1) {
            x = build_outputs(g, x, in, "attn_output_rows");
            residual = build_outputs(g, residual, in, "residual_rows");
        }
        if (y->attn_post_norm)
            x = build_norm(g, x, y->attn_post_norm, p->eps, "attn_post_norm");
        x = scaled(g, x, p->residual_scale, "attn_scaled");
        residual = x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "ffn_inp");
        if (y->ffn_norm)
            x = build_norm(g, x, y->ffn_norm, p->eps, "ffn_norm");
        x = y->experts.n_expert ? build_experts(g, &y->experts, x) : build_ffn(g, &y->ffn, x);
        if (y->ffn_post_norm)
            x = build_norm(g, x, y->ffn_post_norm, p->eps, "ffn_post_norm");
        x = scaled(g, x, p->residual_scale, "ffn_scaled");
        x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "l_out");
    }
    g->layer = -1;
    x = build_norm(g, x, p->output_norm, p->eps, "result_norm");
    g->logits = scaled(g, build_linear(g, &p->output, x, "result_output"), p->logit_scale, "result_scaled");
}
