/* llama.c: the architecture "llama": Llama 1 to 3.x, Mistral 7B, SmolLM 1 and 2 and all that were converted under this name.
 * Pre-norm transformer, RMS norm, rope on neighbouring pairs (the converter permuted q and k for it), grouped-query attention,
 * SwiGLU. Llama 3.1's rope scaling comes as the tensor rope_freqs (Touvron et al., arXiv 2302.13971; Llama Team, 2407.21783). */
#include "model/arch/blocks.h"

#include <math.h>

struct layer {
    struct tensor *attn_norm, *ffn_norm;
    struct attention_block attention;
    struct ffn_block ffn;
};

struct params {
    float eps;
    struct tensor *token_embd, *output_norm;
    struct linear output;
    struct layer *layers;
};

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    struct params *p = arena_alloc(&m->arena, sizeof *p);
    if (p)
        p->layers = arena_array(&m->arena, (size_t)m->n_layer, sizeof *p->layers);
    if (!p || !p->layers)
        return err_set(e, HONE_ERESOURCE, "no memory for %d layers", m->n_layer);
    m->params = p;
    p->eps = loader_float(l, "attention.layer_norm_rms_epsilon", REQUIRED, 0, 0, 1);
    p->token_embd = loader_tensor(l, "token_embd", REQUIRED, m->n_embd, m->n_vocab, 0);
    p->output_norm = loader_tensor(l, "output_norm", REQUIRED, m->n_embd, 0, 0);
    p->output.weight = loader_tensor(l, "output", OPTIONAL, m->n_embd, m->n_vocab, 0);
    if (!p->output.weight)
        p->output.weight = p->token_embd; /* tied */
    for (int i = 0; i < m->n_layer && !l->error.code; i++) {
        struct layer *y = &p->layers[i];
        struct attention_block *a = &y->attention;
        l->layer = i;
        y->attn_norm = loader_tensor(l, "attn_norm", REQUIRED, m->n_embd, 0, 0);
        y->ffn_norm = loader_tensor(l, "ffn_norm", REQUIRED, m->n_embd, 0, 0);
        attention_load(l, a);
        rope_load(l, &a->rope, ROPE_NORM, a->head_dim_k);
        ffn_load(l, &y->ffn, UNARY_SILU);
        a->params.scale = 1 / sqrtf((float)a->head_dim_k);
        /* The factors are one tensor for all layers; some converters write it into each layer instead. */
        a->rope_factors = loader_tensor(l, "rope_freqs", OPTIONAL, a->rope.n_dims / 2, 0, 0);
        l->layer = -1;
        if (!a->rope_factors)
            a->rope_factors = loader_tensor(l, "rope_freqs", OPTIONAL, a->rope.n_dims / 2, 0, 0);
    }
    return 0;
}

static void build(const struct model *m, struct graph *g, const struct step_inputs *in)
{
    const struct params *p = m->params;
    struct tensor *x = graph_name(g, graph_op(g, OP_GET_ROWS, NULL, p->token_embd, in->tokens), "inp_embd");
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
        residual = x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "ffn_inp");
        x = build_norm(g, x, y->ffn_norm, p->eps, "ffn_norm");
        x = build_ffn(g, &y->ffn, x);
        x = graph_name(g, graph_op(g, OP_ADD, NULL, x, residual), "l_out");
    }
    g->layer = -1;
    x = build_norm(g, x, p->output_norm, p->eps, "result_norm");
    g->logits = build_linear(g, &p->output, x, "result_output");
}

const struct arch arch_llama = {"llama", load, build};
