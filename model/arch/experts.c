/* experts.c: a mixture of experts as the field has it (Shazeer et al., arXiv 1701.06538; Jiang et al., 2401.04088): the router's logits, the
 * best few, their weights, the products of each token with its own experts, and the weighted sum; beside it, in some models, an expert that
 * all tokens pass (Dai et al., 2401.06066). Node names are those of llama.cpp's graphs (ffn_moe_logits ...). */
#include "model/arch/blocks.h"

#include "ops/top_k.h"

#include <stdio.h>

/* <name>.weight [n_in, n_out, n_expert] and, where the file has it, <name>.bias [n_out, n_expert]. */
static struct linear load_all(struct loader *l, const char *name, int64_t n_in, int64_t n_out, int64_t n_expert)
{
    char bias[NAME_SIZE];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return (struct linear){loader_tensor(l, name, REQUIRED, n_in, n_out, n_expert), loader_tensor(l, bias, OPTIONAL, n_out, n_expert, 0)};
}

void experts_load(struct loader *l, struct experts_block *x)
{
    int64_t n_embd = l->model->n_embd;
    x->n_expert = loader_int(l, "expert_count", REQUIRED, 0, 1, 4096);
    x->n_used = loader_int(l, "expert_used_count", REQUIRED, 0, 1, 4096);
    int32_t n_ff = loader_int(l, "expert_feed_forward_length", OPTIONAL, 0, 0, 1 << 24);
    if (!n_ff)
        n_ff = loader_layer_int(l, "feed_forward_length", l->layer, REQUIRED, 0, 1, 1 << 24);
    if (l->error.code)
        return;
    if (x->n_used > x->n_expert)
        loader_refuse(l, "%d of %d experts are used", x->n_used, x->n_expert);
    x->route.scale = loader_float(l, "expert_weights_scale", OPTIONAL, 1, 1e-9f, 1e9f);
    x->router = linear_load(l, "ffn_gate_inp", n_embd, x->n_expert);
    x->gate = load_all(l, "ffn_gate_exps", n_embd, n_ff, x->n_expert);
    x->up = load_all(l, "ffn_up_exps", n_embd, n_ff, x->n_expert);
    x->down = load_all(l, "ffn_down_exps", n_ff, n_embd, x->n_expert);
    int32_t n_shared = loader_int(l, "expert_shared_feed_forward_length", OPTIONAL, 0, 0, 1 << 24);
    if (n_shared) {
        x->shared.gate = linear_load(l, "ffn_gate_shexp", n_embd, n_shared);
        x->shared.up = linear_load(l, "ffn_up_shexp", n_embd, n_shared);
        x->shared.down = linear_load(l, "ffn_down_shexp", n_shared, n_embd);
        x->shared.activation = (enum unary_kind)x->glu.kind;
        x->shared_gate = loader_tensor(l, "ffn_gate_inp_shexp", OPTIONAL, n_embd, 0, 0);
    }
}

static struct tensor *build_product(struct graph *g, const struct linear *w, struct tensor *x, struct tensor *selected, const char *name)
{
    return graph_name(g, graph_op(g, OP_MUL_MAT_ID, NULL, w->weight, x, selected, w->bias), "%s", name);
}

/* The shared block, weighed by the sigmoid of a product of its own where the model has one. */
static struct tensor *build_shared(struct graph *g, const struct experts_block *b, struct tensor *x)
{
    struct tensor *y = build_ffn(g, &b->shared, x);
    if (!b->shared_gate)
        return y;
    struct tensor *gate = graph_name(g, graph_op(g, OP_MUL_MAT, NULL, b->shared_gate, x), "ffn_shexp_gate");
    gate = graph_name(g, graph_op(g, OP_UNARY, &(struct unary_params){UNARY_SIGMOID}, gate), "ffn_shexp_sigmoid");
    return graph_name(g, graph_op(g, OP_MUL, NULL, y, gate), "ffn_shexp");
}

struct tensor *build_experts(struct graph *g, const struct experts_block *b, struct tensor *x)
{
    if (!x)
        return NULL;
    struct tensor *logits = build_linear(g, &b->router, x, "ffn_moe_logits");
    struct tensor *selected = graph_name(g, graph_op(g, OP_TOP_K, &(struct top_k_params){b->n_used}, logits), "ffn_moe_topk");
    struct tensor *weights = graph_name(g, graph_op(g, OP_ROUTE_WEIGHTS, &b->route, logits, selected), "ffn_moe_weights");
    struct tensor *tokens = graph_reshape(g, x, x->ne[0], 1, x->ne[1], 0);
    struct tensor *gate = build_product(g, &b->gate, tokens, selected, "ffn_moe_gate");
    struct tensor *up = build_product(g, &b->up, tokens, selected, "ffn_moe_up");
    struct tensor *y = graph_name(g, graph_op(g, OP_GLU, &b->glu, gate, up), "ffn_moe_glu");
    y = build_product(g, &b->down, y, selected, "ffn_moe_down");
    y = graph_name(g, graph_op(g, OP_EXPERT_SUM, NULL, y, weights), "ffn_moe_out");
    if (b->shared.down.weight)
        y = graph_name(g, graph_op(g, OP_ADD, NULL, y, build_shared(g, b, x)), "ffn_out");
    return y;
}
