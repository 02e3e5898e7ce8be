/* gemma3.c: the architecture "gemma3" (Gemma Team, arXiv 2503.19786): norms before and after each block, RMS norm of q and k heads, GeGLU,
 * scaled embeddings, tied head; five layers with a sliding window and rope base 10,000 to each layer over the whole context, whose
 * rope base (1,000,000) and linear scaling stand in the file. The converter added 1 to the norm weights. */
#include "model/arch/blocks.h"

#include "ops/scale.h"

#include <math.h>

enum { LAYERS_OF_27B = 62 };

struct layer {
    struct tensor *attn_norm, *post_attention_norm, *ffn_norm, *post_ffw_norm;
    struct attention_block attention;
    struct ffn_block ffn;
};

struct params {
    float eps, logit_softcap;
    struct tensor *token_embd, *output_norm;
    struct linear output;
    struct layer *layers;
};

/* Which layers see only the window: a pattern key where the file has one (a period, or a flag a layer), else five of six. */
static bool layer_slides(struct loader *l, int i)
{
    char key[64] = "attention.sliding_window_pattern";
    const struct gguf_value *v = gguf_find(l->model->gguf, "gemma3.attention.sliding_window_pattern");
    if (v && v->type == GGUF_ARRAY)
        return loader_layer_int(l, key, i, REQUIRED, 0, 0, 1) != 0;
    int32_t period = loader_int(l, key, OPTIONAL, 6, 1, 1024);
    return (i + 1) % period != 0;
}

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    struct params *p = arena_alloc(&m->arena, sizeof *p);
    if (p)
        p->layers = arena_array(&m->arena, (size_t)m->n_layer, sizeof *p->layers);
    if (!p || !p->layers)
        return err_set(e, HONE_ERESOURCE, "no memory for %d layers", m->n_layer);
    m->params = p;
    p->eps = loader_float(l, "attention.layer_norm_rms_epsilon", REQUIRED, 0, 0, 1);
    p->logit_softcap = loader_float(l, "final_logit_softcapping", OPTIONAL, 0, 0, 1e6f);
    int32_t window = loader_int(l, "attention.sliding_window", REQUIRED, 0, 1, 1 << 30);
    float base_local = loader_float(l, "rope.freq_base_swa", OPTIONAL, 10000, 1, 1e12f);
    p->token_embd = loader_tensor(l, "token_embd", REQUIRED, m->n_embd, m->n_vocab, 0);
    p->output_norm = loader_tensor(l, "output_norm", REQUIRED, m->n_embd, 0, 0);
    p->output.weight = loader_tensor(l, "output", OPTIONAL, m->n_embd, m->n_vocab, 0);
    if (!p->output.weight)
        p->output.weight = p->token_embd;
    for (int i = 0; i < m->n_layer && !l->error.code; i++) {
        struct layer *y = &p->layers[i];
        struct attention_block *a = &y->attention;
        l->layer = i;
        y->attn_norm = loader_tensor(l, "attn_norm", REQUIRED, m->n_embd, 0, 0);
        y->post_attention_norm = loader_tensor(l, "post_attention_norm", REQUIRED, m->n_embd, 0, 0);
        y->ffn_norm = loader_tensor(l, "ffn_norm", REQUIRED, m->n_embd, 0, 0);
        y->post_ffw_norm = loader_tensor(l, "post_ffw_norm", REQUIRED, m->n_embd, 0, 0);
        attention_load(l, a);
        a->eps = p->eps;
        a->q_norm = loader_tensor(l, "attn_q_norm", REQUIRED, a->head_dim_k, 0, 0);
        a->k_norm = loader_tensor(l, "attn_k_norm", REQUIRED, a->head_dim_k, 0, 0);
        rope_load(l, &a->rope, ROPE_NEOX, a->head_dim_k);
        if (layer_slides(l, i)) {
            a->params.window = window;
            a->rope.base = base_local;
            a->rope.freq_scale = 1;
            a->rope.ext_factor = 0;
        }
        /* The 27B model alone scales by width over heads instead of by head size. */
        a->params.scale = 1 / sqrtf((float)(m->n_layer == LAYERS_OF_27B ? m->n_embd / a->n_head : a->head_dim_k));
        ffn_load(l, &y->ffn, UNARY_GELU);
    }
    l->layer = -1;
    return 0;
}

static void build(const struct model *m, struct graph *g, const struct step_inputs *in)
{
    const struct params *p = m->params;
    struct tensor *x = graph_name(g, graph_op(g, OP_GET_ROWS, NULL, p->token_embd, in->tokens), "inp_embd");
    x = graph_name(g, graph_op(g, OP_SCALE, &(struct scale_params){.scale = sqrtf((float)m->n_embd)}, x), "inp_scaled");
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *y = &p->layers[i];
        g->layer = i;
        struct tensor *residual = x;
        x = build_norm(g, x, y->attn_norm, p->eps, "attn_norm");
        x = build_attention(g, &y->attention, x, in);
        if (i == m->n_layer - 1) {
            x = build_outputs(g, x, in, "attn_output_rows");
            residual = build_outputs(g, residual, in, "residual_rows");
        }
        x = build_norm(g, x, y->post_attention_norm, p->eps, "attn_post_norm");
        residual = x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "sa_out");
        x = build_norm(g, x, y->ffn_norm, p->eps, "ffn_norm");
        x = build_ffn(g, &y->ffn, x);
        x = build_norm(g, x, y->post_ffw_norm, p->eps, "ffn_post_norm");
        x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "l_out");
    }
    g->layer = -1;
    x = build_norm(g, x, p->output_norm, p->eps, "result_norm");
    x = build_linear(g, &p->output, x, "result_output");
    if (p->logit_softcap > 0) {
        x = graph_op(g, OP_SCALE, &(struct scale_params){.scale = 1 / p->logit_softcap}, x);
        x = graph_op(g, OP_UNARY, &(struct unary_params){UNARY_TANH}, x);
        x = graph_name(g, graph_op(g, OP_SCALE, &(struct scale_params){.scale = p->logit_softcap}, x), "result_softcap");
    }
    g->logits = x;
}

const struct arch arch_gemma3 = {"gemma3", load, build};
