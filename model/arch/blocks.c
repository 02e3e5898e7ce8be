/* blocks.c: attention, feed-forward and norm as most architectures have them. Node names are those that the field knows from
 * llama.cpp's graphs (Qcur, kqv_out, ffn_gate ...), so that traces can be laid side by side. */
#include "model/arch/blocks.h"

#include "ops/rms_norm.h"
#include "ops/view.h"

#include <stdio.h>
#include <string.h>

struct linear linear_load(struct loader *l, const char *name, int64_t n_in, int64_t n_out)
{
    char bias[NAME_SIZE];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return (struct linear){loader_tensor(l, name, REQUIRED, n_in, n_out, 0), loader_tensor(l, bias, OPTIONAL, n_out, 0, 0)};
}

bool attention_load_sizes(struct loader *l, struct attention_block *a)
{
    struct model *m = l->model;
    a->n_head = loader_layer_int(l, "attention.head_count", l->layer, REQUIRED, 0, 1, 4096);
    a->n_kv_head = loader_layer_int(l, "attention.head_count_kv", l->layer, OPTIONAL, a->n_head, 1, 4096);
    if (l->error.code)
        return false;
    if (a->n_head % a->n_kv_head)
        loader_refuse(l, "layer %d has %d heads, not a multiple of its %d KV heads", l->layer, a->n_head, a->n_kv_head);
    int32_t head_dim = m->n_embd / a->n_head; /* 0 if the file has more heads than width: then the keys must say it */
    if (!head_dim)
        head_dim = 1;
    a->head_dim_k = loader_int(l, "attention.key_length", OPTIONAL, head_dim, 1, 8192);
    a->head_dim_v = loader_int(l, "attention.value_length", OPTIONAL, head_dim, 1, 8192);
    if (l->error.code)
        return false;
    m->memory[l->layer] = (struct layer_memory){a->n_kv_head, a->head_dim_k, a->head_dim_v};
    return true;
}

void attention_load(struct loader *l, struct attention_block *a)
{
    const struct model *m = l->model;
    if (!attention_load_sizes(l, a))
        return;
    a->q = linear_load(l, "attn_q", m->n_embd, (int64_t)a->n_head * a->head_dim_k);
    a->k = linear_load(l, "attn_k", m->n_embd, (int64_t)a->n_kv_head * a->head_dim_k);
    a->v = linear_load(l, "attn_v", m->n_embd, (int64_t)a->n_kv_head * a->head_dim_v);
    a->output = linear_load(l, "attn_output", (int64_t)a->n_head * a->head_dim_v, m->n_embd);
}

void attention_load_fused(struct loader *l, struct attention_block *a)
{
    const struct model *m = l->model;
    if (!attention_load_sizes(l, a))
        return;
    int64_t rows = (int64_t)(a->n_head + a->n_kv_head) * a->head_dim_k + (int64_t)a->n_kv_head * a->head_dim_v;
    a->qkv = linear_load(l, "attn_qkv", m->n_embd, rows);
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

void ffn_load_fused(struct loader *l, struct ffn_block *f, enum unary_kind activation)
{
    int32_t n_ff = loader_layer_int(l, "feed_forward_length", l->layer, REQUIRED, 0, 1, 1 << 24);
    if (l->error.code)
        return;
    f->gate_up = linear_load(l, "ffn_up", l->model->n_embd, 2 * (int64_t)n_ff);
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

/* n values of each row of x from the first-th on, as [dim, n / dim, rows]; as [n, rows] where dim is n. */
static struct tensor *build_window(struct graph *g, struct tensor *x, int64_t first, int64_t n, int64_t dim)
{
    if (!x)
        return NULL;
    struct view_params p = {.ne = {(int32_t)dim, (int32_t)(n / dim), (int32_t)x->ne[1]}, .nb = {sizeof(float)}, .offset = (uint64_t)first * sizeof(float)};
    p.nb[1] = (uint64_t)dim * sizeof(float);
    p.nb[2] = p.nb[3] = x->nb[1];
    if (n == dim) {
        p.ne[1] = p.ne[2];
        p.ne[2] = 1;
        p.nb[1] = x->nb[1];
    }
    return graph_op(g, OP_VIEW, &p, x);
}

/* The factors by the length that the session allows: a key that is in the cache was turned with the factors of then, so one session
 * keeps to one kind. */
static struct tensor *factors_for(const struct attention_block *a, const struct step_inputs *in)
{
    if (a->rope_factors || !a->factors_long || !a->factors_short)
        return a->rope_factors;
    return in->map && in->map->ne[0] > a->rope.n_ctx_orig ? a->factors_long : a->factors_short; /* model's n_ctx_short says so too */
}

/* One of q and k: optional norm, heads, rope. */
static struct tensor *build_rotated(struct graph *g, const struct attention_block *a, struct tensor *x, int32_t n_head,
                                    struct tensor *norm, const struct step_inputs *in, const char *name)
{
    char label[NAME_SIZE];
    snprintf(label, sizeof label, "%s_normed", name);
    if (norm && a->norm_all)
        x = build_norm(g, x, norm, a->eps, label);
    if (!a->qkv.weight)
        x = graph_reshape(g, x, a->head_dim_k, n_head, in->n_tokens, 0);
    if (norm && !a->norm_all)
        x = build_norm(g, x, norm, a->eps, label);
    if (a->no_rope)
        return x;
    return graph_name(g, graph_op(g, OP_ROPE, &a->rope, x, in->positions, factors_for(a, in)), "%s_rope", name);
}

struct tensor *build_attention(struct graph *g, const struct attention_block *a, struct tensor *x, const struct step_inputs *in)
{
    struct tensor *q, *k, *v;
    if (a->qkv.weight) {
        int64_t n_q = (int64_t)a->n_head * a->head_dim_k, n_k = (int64_t)a->n_kv_head * a->head_dim_k;
        struct tensor *all = build_linear(g, &a->qkv, x, "qkv");
        q = build_window(g, all, 0, n_q, a->head_dim_k);
        k = build_window(g, all, n_q, n_k, a->head_dim_k);
        v = build_window(g, all, n_q + n_k, (int64_t)a->n_kv_head * a->head_dim_v, a->head_dim_v);
    } else {
        q = build_linear(g, &a->q, x, "Qcur");
        k = build_linear(g, &a->k, x, "Kcur");
        v = graph_reshape(g, build_linear(g, &a->v, x, "Vcur"), a->head_dim_v, a->n_kv_head, in->n_tokens, 0);
    }
    q = build_rotated(g, a, q, a->n_head, a->q_norm, in, "Qcur");
    k = build_rotated(g, a, k, a->n_kv_head, a->k_norm, in, "Kcur");
    k = graph_name(g, graph_op(g, OP_KV_WRITE, NULL, k, in->k[g->layer], in->cells), "k_write");
    v = graph_name(g, graph_op(g, OP_KV_WRITE, NULL, v, in->v[g->layer], in->cells), "v_write");
    x = graph_op(g, OP_ATTENTION, &a->params, q, k, v, in->positions, in->sequences, in->map, a->sinks);
    x = graph_name(g, x, "kqv_out");
    x = graph_reshape(g, x, (int64_t)a->head_dim_v * a->n_head, in->n_tokens, 0, 0);
    return build_linear(g, &a->output, x, "attn_output");
}

struct tensor *build_ffn(struct graph *g, const struct ffn_block *f, struct tensor *x)
{
    struct tensor *gate, *up;
    if (f->gate_up.weight) {
        int64_t n = f->down.weight->ne[0];
        struct tensor *both = build_linear(g, &f->gate_up, x, "ffn_gate_up");
        gate = build_window(g, both, 0, n, n);
        up = build_window(g, both, n, n, n);
    } else {
        gate = build_linear(g, &f->gate, x, "ffn_gate");
        up = build_linear(g, &f->up, x, "ffn_up");
    }
    x = graph_name(g, graph_op(g, OP_GLU, &(struct glu_params){f->activation}, gate, up), "ffn_glu");
    return build_linear(g, &f->down, x, "ffn_down");
}

struct tensor *build_outputs(struct graph *g, struct tensor *x, const struct step_inputs *in, const char *name)
{
    return graph_name(g, graph_op(g, OP_GET_ROWS, NULL, x, in->outputs), "%s", name);
}
