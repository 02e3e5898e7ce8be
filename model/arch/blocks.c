/* blocks.c: attention, feed-forward and norm as most architectures have them. Node names are those that the field knows from
 * llama.cpp's graphs (Qcur, kqv_out, ffn_gate ...), so that traces can be laid side by side. */
#include "model/arch/blocks.h"

#include "ops/glu.h"
#include "ops/rms_norm.h"

#include <stdio.h>
#include <string.h>

struct linear linear_load(struct loader *l, const char *name, int64_t n_in, int64_t n_out)
{
    char bias[NAME_SIZE];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return (struct linear){loader_tensor(l, name, REQUIRED, n_in, n_out, 0), loader_tensor(l, bias, OPTIONAL, n_out, 0, 0)};
}

void attention_load(struct loader *l, struct attention_block *a)
{
    struct model *m = l->model;
    a->n_head = loader_layer_int(l, "attention.head_count", l->layer, REQUIRED, 0, 1, 4096);
    a->n_kv_head = loader_layer_int(l, "attention.head_count_kv", l->layer, OPTIONAL, a->n_head, 1, 4096);
    if (l->error.code)
        return;
    if (a->n_head % a->n_kv_head)
        loader_refuse(l, "layer %d has %d heads, not a multiple of its %d KV heads", l->layer, a->n_head, a->n_kv_head);
    int32_t head_dim = m->n_embd / a->n_head; /* 0 if the file has more heads than width: then the keys must say it */
    if (!head_dim)
        head_dim = 1;
    a->head_dim_k = loader_int(l, "attention.key_length", OPTIONAL, head_dim, 1, 8192);
    a->head_dim_v = loader_int(l, "attention.value_length", OPTIONAL, head_dim, 1, 8192);
    if (l->error.code)
        return;
    m->memory[l->layer] = (struct layer_memory){a->n_kv_head, a->head_dim_k, a->head_dim_v};
    a->q = linear_load(l, "attn_q", m->n_embd, (int64_t)a->n_head * a->head_dim_k);
    a->k = linear_load(l, "attn_k", m->n_embd, (int64_t)a->n_kv_head * a->head_dim_k);
    a->v = linear_load(l, "attn_v", m->n_embd, (int64_t)a->n_kv_head * a->head_dim_v);
    a->output = linear_load(l, "attn_output", (int64_t)a->n_head * a->head_dim_v, m->n_embd);
}

static bool string_is(struct gguf_string s, const char *word)
{
    return s.size == strlen(word) && !memcmp(s.data, word, s.size);
}

void rope_load(struct loader *l, struct rope_params *r, enum rope_mode mode, int32_t head_dim)
{
    *r = (struct rope_params){.mode = mode, .freq_scale = 1, .attn_factor = 1, .beta_fast = 32, .beta_slow = 1};
    r->n_dims = loader_int(l, "rope.dimension_count", OPTIONAL, head_dim, 2, head_dim);
    if (r->n_dims % 2)
        loader_refuse(l, "the key %s.rope.dimension_count is %d, which is odd", l->prefix, r->n_dims);
    r->base = loader_float(l, "rope.freq_base", OPTIONAL, 10000, 1, 1e12f);
    r->n_ctx_orig = loader_int(l, "rope.scaling.original_context_length", OPTIONAL, l->model->n_ctx_train, 1, 1 << 30);
    struct gguf_string type = loader_string(l, "rope.scaling.type");
    float factor = loader_float(l, "rope.scaling.factor", OPTIONAL, 0, 0, 1e6f);
    if (factor == 0)
        factor = loader_float(l, "rope.scale_linear", OPTIONAL, 1, 1e-6f, 1e6f);
    r->attn_factor = loader_float(l, "rope.scaling.attn_factor", OPTIONAL, 1, 1e-6f, 1e6f);
    if (string_is(type, "none"))
        return;
    r->freq_scale = 1 / factor;
    if (string_is(type, "yarn")) {
        r->ext_factor = loader_float(l, "rope.scaling.yarn_ext_factor", OPTIONAL, 1, 0, 1e6f);
        r->beta_fast = loader_float(l, "rope.scaling.yarn_beta_fast", OPTIONAL, 32, 1e-6f, 1e6f);
        r->beta_slow = loader_float(l, "rope.scaling.yarn_beta_slow", OPTIONAL, 1, 1e-6f, 1e6f);
    } else if (type.size && !string_is(type, "linear")) {
        loader_refuse(l, "the key %s.rope.scaling.type is '%.*s'; known: none, linear, yarn", l->prefix,
                      (int)(type.size < 40 ? type.size : 40), type.data);
    }
}

void ffn_load(struct loader *l, struct ffn_block *f, enum unary_kind activation)
{
    int32_t n_ff = loader_layer_int(l, "feed_forward_length", l->layer, REQUIRED, 0, 1, 1 << 24);
    if (l->error.code)
        return;
    f->gate = linear_load(l, "ffn_gate", l->model->n_embd, n_ff);
    f->up = linear_load(l, "ffn_up", l->model->n_embd, n_ff);
    f->down = linear_load(l, "ffn_down", n_ff, l->model->n_embd);
    f->activation = activation;
}

struct tensor *build_linear(struct graph *g, const struct linear *w, struct tensor *x, const char *name)
{
    x = graph_name(g, graph_op(g, OP_MUL_MAT, NULL, w->weight, x), "%s", name);
    if (w->bias)
        x = graph_name(g, graph_op(g, OP_ADD, NULL, x, w->bias), "%s_bias", name);
    return x;
}

struct tensor *build_norm(struct graph *g, struct tensor *x, struct tensor *weight, float eps, const char *name)
{
    x = graph_name(g, graph_op(g, OP_RMS_NORM, &(struct rms_norm_params){eps}, x), "%s_rms", name);
    return graph_name(g, graph_op(g, OP_MUL, NULL, x, weight), "%s", name);
}

/* One of q and k: heads, optional norm, rope. */
static struct tensor *build_rotated(struct graph *g, const struct attention_block *a, struct tensor *x, int32_t n_head,
                                    struct tensor *norm, const struct step_inputs *in, const char *name)
{
    char label[NAME_SIZE];
    x = graph_reshape(g, x, a->head_dim_k, n_head, in->n_tokens, 0);
    if (norm) {
        snprintf(label, sizeof label, "%s_normed", name);
        x = build_norm(g, x, norm, a->eps, label);
    }
    return graph_name(g, graph_op(g, OP_ROPE, &a->rope, x, in->positions, a->rope_factors), "%s_rope", name);
}

struct tensor *build_attention(struct graph *g, const struct attention_block *a, struct tensor *x, const struct step_inputs *in)
{
    struct tensor *q = build_linear(g, &a->q, x, "Qcur");
    struct tensor *k = build_linear(g, &a->k, x, "Kcur");
    struct tensor *v = build_linear(g, &a->v, x, "Vcur");
    q = build_rotated(g, a, q, a->n_head, a->q_norm, in, "Qcur");
    k = build_rotated(g, a, k, a->n_kv_head, a->k_norm, in, "Kcur");
    v = graph_reshape(g, v, a->head_dim_v, a->n_kv_head, in->n_tokens, 0);
    k = graph_name(g, graph_op(g, OP_KV_WRITE, NULL, k, in->k[g->layer], in->cells), "k_write");
    v = graph_name(g, graph_op(g, OP_KV_WRITE, NULL, v, in->v[g->layer], in->cells), "v_write");
    x = graph_op(g, OP_ATTENTION, &a->params, q, k, v, in->positions, in->sequences, in->map);
    x = graph_name(g, x, "kqv_out");
    x = graph_reshape(g, x, (int64_t)a->head_dim_v * a->n_head, in->n_tokens, 0, 0);
    return build_linear(g, &a->output, x, "attn_output");
}

struct tensor *build_ffn(struct graph *g, const struct ffn_block *f, struct tensor *x)
{
    struct tensor *gate = build_linear(g, &f->gate, x, "ffn_gate");
    struct tensor *up = build_linear(g, &f->up, x, "ffn_up");
    x = graph_name(g, graph_op(g, OP_GLU, &(struct glu_params){f->activation}, gate, up), "ffn_glu");
    return build_linear(g, &f->down, x, "ffn_down");
}

struct tensor *build_outputs(struct graph *g, struct tensor *x, const struct step_inputs *in, const char *name)
{
    return graph_name(g, graph_op(g, OP_GET_ROWS, NULL, x, in->outputs), "%s", name);
}
