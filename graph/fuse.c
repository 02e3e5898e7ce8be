/* fuse.c: the patterns, and the rules that all of them obey.
 *
 * A pattern looks backwards from its last node, through producers, so the order in which a builder emits things hardly matters. The
 * rules are checked once for all: a value inside a match may be read outside only if the fused node leaves it in `also`; nothing
 * between the first and the last part may read what a part writes, since the fused node runs at the last one's place; and outputs
 * are separate memory (the planner keeps all parts' values alive through the fused step), so no kernel meets an alias
 * that its parts would not have met. Forward matching by op sequence was the alternative; it breaks when a reshape
 * or a bias stands between. */
#include "graph/fuse.h"

#include "ops/glu.h"
#include "ops/unary.h"

#include <stdio.h>
#include <string.h>

static struct tensor *root_of(struct tensor *t)
{
    return t->base ? t->base : t;
}

/* The node that computes t, looking through views; NULL for weights, inputs and states. */
static struct node *maker(struct tensor *t)
{
    struct tensor *r = t ? root_of(t) : NULL;
    return r && r->kind == TENSOR_VALUE ? r->producer : NULL;
}

static struct node *maker_is(struct tensor *t, enum op op)
{
    struct node *n = maker(t);
    return n && n->op == op ? n : NULL;
}

static bool is_weight(const struct tensor *t)
{
    return t->kind == TENSOR_WEIGHT;
}

static int position(const struct graph *g, const struct node *n)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i] == n)
            return i;
    return -1;
}

static void add_part(struct fuse_match *m, struct node *n)
{
    m->parts[m->n_parts++] = n;
}

static void add_src(struct fuse_match *m, struct tensor *t)
{
    m->src[m->n_src++] = t;
}

/* ---- patterns; ops/<op>.c of the fused op documents the order of the sources */

static bool match_rms_norm_mul(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *mul = g->nodes[i], *norm;
    if (mul->op != OP_MUL || !(norm = maker_is(mul->src[0], OP_RMS_NORM)) || mul->src[0]->base)
        return false;
    if (!is_weight(mul->src[1]) || tensor_rows(mul->src[1]) != 1)
        return fits_not(r, "%s is multiplied with something that is no norm weight", norm->out->name);
    m->op = OP_RMS_NORM_MUL;
    add_part(m, norm);
    add_part(m, mul);
    add_src(m, norm->src[0]);
    add_src(m, mul->src[1]);
    memcpy(m->params, norm->params, PARAMS_SIZE);
    return true;
}

static bool match_add_rms_norm_mul(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct fuse_match inner = {0};
    struct node *add;
    if (!match_rms_norm_mul(g, i, &inner, r) || !(add = maker_is(inner.src[0], OP_ADD)) || inner.src[0]->base)
        return false;
    if (!tensor_same_shape(add->src[0], add->src[1]))
        return fits_not(r, "%s adds a broadcast value", add->out->name);
    m->op = OP_ADD_RMS_NORM_MUL;
    add_part(m, add);
    add_part(m, inner.parts[0]);
    add_part(m, inner.parts[1]);
    add_src(m, add->src[0]);
    add_src(m, add->src[1]);
    add_src(m, inner.src[1]);
    memcpy(m->params, inner.params, PARAMS_SIZE);
    return true;
}

static bool plain_mul_mat(const struct node *n)
{
    return n && n->op == OP_MUL_MAT && is_weight(n->src[0]) && n->src[0]->ne[2] == 1 && n->src[0]->ne[3] == 1;
}

static bool match_mul_mat_add(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *add = g->nodes[i];
    if (add->op != OP_ADD)
        return false;
    for (int side = 0; side < 2; side++) {
        struct tensor *product = add->src[side], *other = add->src[1 - side];
        struct node *mul = maker(product);
        if (!plain_mul_mat(mul) || product->base || is_weight(other))
            continue;
        if (!tensor_same_shape(product, other))
            return fits_not(r, "%s adds a broadcast value", add->out->name);
        m->op = OP_MUL_MAT_ADD;
        add_part(m, mul);
        add_part(m, add);
        add_src(m, mul->src[0]);
        add_src(m, mul->src[1]);
        add_src(m, other);
        return true;
    }
    return false;
}

static bool match_gate_up_glu(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *glu = g->nodes[i];
    if (glu->op != OP_GLU)
        return false;
    struct node *gate = maker(glu->src[0]), *up = maker(glu->src[1]);
    if (!plain_mul_mat(gate) || !plain_mul_mat(up) || glu->src[0]->base || glu->src[1]->base)
        return fits_not(r, "%s does not read two matrix products", glu->out->name);
    if (gate->src[1] != up->src[1] || !tensor_same_shape(gate->src[0], up->src[0]))
        return fits_not(r, "gate and up of %s differ in input or shape", glu->out->name);
    if (!glu_is_plain(node_params(glu, struct glu_params)))
        return fits_not(r, "%s limits or shifts its input", glu->out->name);
    m->op = OP_GATE_UP_GLU;
    bool up_first = position(g, up) < position(g, gate);
    add_part(m, up_first ? up : gate);
    add_part(m, up_first ? gate : up);
    add_part(m, glu);
    add_src(m, gate->src[0]);
    add_src(m, gate->src[1]);
    add_src(m, up->src[0]);
    memcpy(m->params, glu->params, PARAMS_SIZE);
    return true;
}

/* Two to four products of one activation whose nodes stand together, as q, k and v do. */
static bool match_mul_mat_group(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    (void)r;
    struct node *last = g->nodes[i];
    if (!plain_mul_mat(last) || (i + 1 < g->n_nodes && plain_mul_mat(g->nodes[i + 1]) && g->nodes[i + 1]->src[1] == last->src[1]))
        return false; /* no product, or not the last of its group */
    int first = i;
    while (first > 0 && i - first < 3 && plain_mul_mat(g->nodes[first - 1]) && g->nodes[first - 1]->src[1] == last->src[1])
        first--;
    if (first == i)
        return false;
    m->op = OP_MUL_MAT_GROUP;
    for (int j = first; j <= i; j++)
        add_part(m, g->nodes[j]);
    add_src(m, g->nodes[first]->src[0]);
    add_src(m, last->src[1]);
    for (int j = first + 1; j <= i; j++)
        add_src(m, g->nodes[j]->src[0]);
    return true;
}

/* The rope of q and k and both writes into the cache, from the attention that reads them. */
static bool match_rope_kv(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *v_write = g->nodes[i];
    if (v_write->op != OP_KV_WRITE || i == 0)
        return false;
    struct node *k_write = g->nodes[i - 1], *attention = NULL;
    for (int j = i + 1; j < g->n_nodes && !attention; j++)
        if (g->nodes[j]->op == OP_ATTENTION && g->nodes[j]->src[2] == v_write->out)
            attention = g->nodes[j];
    if (k_write->op != OP_KV_WRITE || !attention || attention->src[1] != k_write->out)
        return false; /* this is the write of k, or a lone write */
    struct node *q_rope = maker_is(attention->src[0], OP_ROPE), *k_rope = maker_is(k_write->src[0], OP_ROPE);
    if (!q_rope || !k_rope)
        return fits_not(r, "no rope before %s", k_write->out->name);
    if (memcmp(q_rope->params, k_rope->params, PARAMS_SIZE) || q_rope->src[1] != k_rope->src[1] ||
        q_rope->src[2] != k_rope->src[2] || k_write->src[2] != v_write->src[2])
        return fits_not(r, "q and k of %s are turned differently", attention->out->name);
    m->op = OP_ROPE_KV;
    add_part(m, q_rope);
    add_part(m, k_rope);
    add_part(m, k_write);
    add_part(m, v_write);
    add_src(m, q_rope->src[0]);
    add_src(m, k_rope->src[0]);
    add_src(m, v_write->src[0]);
    add_src(m, q_rope->src[1]);
    add_src(m, k_write->src[2]);
    add_src(m, k_write->src[1]);
    add_src(m, v_write->src[1]);
    add_src(m, q_rope->src[2]);
    memcpy(m->params, q_rope->params, PARAMS_SIZE);
    return true;
}

/* Whether t is all of n's result, perhaps in another shape. */
static bool whole_result(const struct tensor *t, const struct node *n)
{
    return t == n->out || (t->base == n->out && t->offset == 0 && t->format == n->out->format && tensor_contiguous(t) && tensor_contiguous(n->out) &&
                           tensor_elements(t) == tensor_elements(n->out));
}

/* A quantize node joined to the fused node that makes what it reads. */
static bool match_quantized(const struct graph *g, int i, struct fuse_match *m, enum op from, enum op to)
{
    struct node *q = g->nodes[i], *n;
    if (q->op != OP_QUANTIZE || !(n = maker_is(q->src[0], from)) || !whole_result(q->src[0], n) || n->n_parts + 1 > MAX_PARTS)
        return false;
    m->op = to;
    for (int j = 0; j < n->n_parts; j++)
        add_part(m, n->parts[j]);
    add_part(m, q);
    for (int j = 0; j < n->n_src; j++)
        add_src(m, n->src[j]);
    memcpy(m->params, n->params, PARAMS_SIZE);
    return true;
}

static bool match_norm_quantize(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    (void)r;
    return match_quantized(g, i, m, OP_RMS_NORM_MUL, OP_RMS_NORM_MUL_QUANTIZE) ||
           match_quantized(g, i, m, OP_ADD_RMS_NORM_MUL, OP_ADD_RMS_NORM_MUL_QUANTIZE) ||
           match_quantized(g, i, m, OP_ALL_REDUCE_ADD_RMS_NORM_MUL, OP_ALL_REDUCE_ADD_RMS_NORM_MUL_QUANTIZE);
}

static bool match_gate_up_glu_quantize(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    (void)r;
    return match_quantized(g, i, m, OP_GATE_UP_GLU, OP_GATE_UP_GLU_QUANTIZE);
}

/* A product, with or without a residual, takes over its parts and its own source behind them. */
static bool take_product(struct fuse_match *m, struct node *n)
{
    if (n->op == OP_MUL_MAT_ADD) {
        add_part(m, n->parts[0]);
        add_part(m, n->parts[1]);
    } else if (plain_mul_mat(n)) {
        add_part(m, n);
    } else {
        return false;
    }
    return true;
}

static bool match_mlp(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *down = g->nodes[i], *inner;
    if ((down->op != OP_MUL_MAT && down->op != OP_MUL_MAT_ADD) || !(inner = maker_is(down->src[1], OP_GATE_UP_GLU_QUANTIZE)))
        return false;
    if (down->src[1] != inner->out)
        return fits_not(r, "%s reads a view of %s", down->out->name, inner->out->name);
    m->op = OP_MLP;
    for (int j = 0; j < inner->n_parts; j++)
        add_part(m, inner->parts[j]);
    for (int j = 0; j < inner->n_src; j++)
        add_src(m, inner->src[j]);
    add_src(m, down->src[0]);
    if (down->op == OP_MUL_MAT_ADD)
        add_src(m, down->src[2]);
    memcpy(m->params, inner->params, PARAMS_SIZE);
    return take_product(m, down);
}

static int count_readers(const struct graph *g, const struct tensor *t)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int j = 0; j < g->nodes[i]->n_src; j++)
            n += g->nodes[i]->src[j] && root_of(g->nodes[i]->src[j]) == t;
    return n;
}

static bool match_linear(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *product = g->nodes[i], *q;
    if ((product->op != OP_MUL_MAT && product->op != OP_MUL_MAT_ADD) || !(q = maker_is(product->src[1], OP_QUANTIZE)))
        return false;
    if (product->src[1] != q->out || count_readers(g, q->out) > 1)
        return fits_not(r, "%s is read by others too, or through a view", q->out->name);
    m->op = OP_LINEAR;
    add_part(m, q);
    add_src(m, product->src[0]);
    add_src(m, q->src[0]);
    if (product->op == OP_MUL_MAT_ADD)
        add_src(m, product->src[2]);
    return take_product(m, product);
}

/* The norm that makes a quantised activation x, if nobody else reads that. Its parts and sources come first in the match. */
static bool take_norm(const struct graph *g, struct tensor *x, struct fuse_match *m, struct reason *r)
{
    struct node *n = maker_is(x, OP_RMS_NORM_MUL_QUANTIZE);
    if (!n)
        return false;
    if (x != n->out || count_readers(g, n->out) > 1)
        return fits_not(r, "%s is read by others too, or through a view", n->out->name);
    for (int j = 0; j < n->n_parts; j++)
        add_part(m, n->parts[j]);
    add_src(m, n->src[0]);
    add_src(m, n->src[1]);
    return true;
}

static bool match_norm_group(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *group = g->nodes[i];
    if (group->op != OP_MUL_MAT_GROUP || !take_norm(g, group->src[1], m, r))
        return false;
    m->op = OP_RMS_NORM_MUL_MAT_GROUP;
    for (int j = 0; j < group->n_parts; j++)
        add_part(m, group->parts[j]);
    for (int j = 0; j < group->n_src; j++)
        if (j != 1)
            add_src(m, group->src[j]);
    memcpy(m->params, m->parts[0]->params, PARAMS_SIZE);
    return true;
}

static bool match_norm_gate_up(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *pair = g->nodes[i];
    if (pair->op != OP_GATE_UP_GLU_QUANTIZE || !take_norm(g, pair->src[1], m, r))
        return false;
    m->op = OP_RMS_NORM_GATE_UP_GLU_QUANTIZE;
    for (int j = 0; j < pair->n_parts; j++)
        add_part(m, pair->parts[j]);
    add_src(m, pair->src[0]);
    add_src(m, pair->src[2]);
    memcpy(m->params, pair->params, PARAMS_SIZE);
    return true;
}

static bool unary_is(const struct node *n, enum unary_kind kind)
{
    return n && n->op == OP_UNARY && node_params(n, struct unary_params)->kind == (int32_t)kind;
}

static bool match_ssm_conv_silu(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *silu = g->nodes[i], *conv;
    (void)r;
    if (!unary_is(silu, UNARY_SILU) || !(conv = maker_is(silu->src[0], OP_SSM_CONV)) || silu->src[0]->base)
        return false;
    m->op = OP_SSM_CONV_SILU;
    add_part(m, conv);
    add_part(m, silu);
    for (int j = 0; j < conv->n_src; j++)
        add_src(m, conv->src[j]);
    return true;
}

static bool plain_swiglu(const struct node *n)
{
    const struct glu_params *p = node_params(n, struct glu_params);
    return n->op == OP_GLU && p->kind == UNARY_SILU && glu_is_plain(p);
}

static bool match_gated_delta_net(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *glu = g->nodes[i], *mul, *norm, *rule;
    if (!plain_swiglu(glu) || !(mul = maker_is(glu->src[1], OP_MUL)) || !(norm = maker_is(mul->src[0], OP_RMS_NORM)) ||
        !(rule = maker_is(norm->src[0], OP_GATED_DELTA_RULE)))
        return false;
    struct node *q = maker_is(rule->src[0], OP_L2_NORM), *k = maker_is(rule->src[1], OP_L2_NORM), *decay = maker_is(rule->src[3], OP_MUL);
    struct node *softplus = decay ? maker(decay->src[0]) : NULL, *beta = maker(rule->src[4]), *add;
    if (!q || !k || !unary_is(softplus, UNARY_SOFTPLUS) || !unary_is(beta, UNARY_SIGMOID) || !(add = maker_is(softplus->src[0], OP_ADD)))
        return fits_not(r, "%s has other norms or gates", rule->out->name);
    if (!is_weight(mul->src[1]) || tensor_rows(mul->src[1]) != 1 || mul->src[1]->ne[0] != norm->out->ne[0] ||
        !is_weight(root_of(decay->src[1])) || !is_weight(root_of(add->src[1])) ||
        tensor_elements(decay->src[1]) != rule->out->ne[1] || tensor_elements(add->src[1]) != rule->out->ne[1])
        return fits_not(r, "a weight of %s is none, or repeats", rule->out->name);
    m->op = OP_GATED_DELTA_NET;
    struct node *parts[] = {beta, add, softplus, decay, q, k, rule, norm, mul, glu};
    for (size_t j = 0; j < sizeof parts / sizeof *parts; j++)
        add_part(m, parts[j]);
    struct tensor *src[] = {q->src[0],    k->src[0],    rule->src[2], add->src[0],  add->src[1],  decay->src[1],
                            beta->src[0], rule->src[5], rule->src[6], rule->src[7], glu->src[0], mul->src[1]};
    for (size_t j = 0; j < sizeof src / sizeof *src; j++)
        add_src(m, src[j]);
    memcpy(m->params, rule->params, PARAMS_SIZE);
    return true;
}

/* The rope_kv whose turned q and written k and v this attention reads. */
static struct node *rope_kv_of(const struct graph *g, int i)
{
    const struct node *attention = g->nodes[i];
    for (int j = i; j-- > 0;) {
        struct node *n = g->nodes[j];
        if (n->op == OP_ROPE_KV && n->parts[0]->out == attention->src[0] && n->parts[2]->out == attention->src[1] &&
            n->parts[3]->out == attention->src[2])
            return n;
    }
    return NULL;
}

/* The norm of a head whose result t is, and nothing else of it. */
static struct node *head_norm(struct tensor *t)
{
    struct node *n = maker_is(t, OP_RMS_NORM_MUL);
    return n && n->out == t && n->src[1]->ne[0] == t->ne[0] && n->src[0]->ne[0] == t->ne[0] ? n : NULL;
}

static bool match_rope_kv_attention(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *attention = g->nodes[i], *rope, *norms[2];
    if (attention->op != OP_ATTENTION)
        return false;
    if (!(rope = rope_kv_of(g, i)))
        return fits_not(r, "no rope_kv before %s", attention->out->name);
    if (attention->src[3] != rope->src[3] || attention->src[6])
        return fits_not(r, "%s has sinks, or other positions than its rope", attention->out->name);
    for (int j = 0; j < 2; j++)
        norms[j] = head_norm(rope->src[j]);
    bool normed = norms[0] && norms[1];
    m->op = OP_ROPE_KV_ATTENTION;
    for (int j = 0; j < 2 && normed; j++) {
        add_part(m, norms[j]->parts[0]);
        add_part(m, norms[j]->parts[1]);
    }
    for (int j = 0; j < rope->n_parts; j++)
        add_part(m, rope->parts[j]);
    add_part(m, attention);
    for (int j = 0; j < 2; j++)
        add_src(m, normed ? norms[j]->src[0] : rope->src[j]);
    for (int j = 2; j < 8; j++)
        add_src(m, rope->src[j]);
    add_src(m, attention->src[4]);
    add_src(m, attention->src[5]);
    for (int j = 0; j < 2; j++)
        add_src(m, normed ? norms[j]->src[1] : NULL);
    memcpy(m->params, rope->params, PARAMS_SIZE);
    return true;
}

/* A gate behind it, with the result as what is gated. */
static bool match_rope_kv_attention_glu(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *glu = g->nodes[i], *n;
    if (glu->op != OP_GLU || !(n = maker_is(glu->src[1], OP_ROPE_KV_ATTENTION)))
        return false;
    if (glu->src[1] != n->out || maker(glu->src[0]) == n || n->parts[n->n_parts - 1]->op != OP_ATTENTION ||
        !glu_is_plain(node_params(glu, struct glu_params)))
        return fits_not(r, "%s is no plain gate", glu->out->name);
    m->op = OP_ROPE_KV_ATTENTION;
    for (int j = 0; j < n->n_parts; j++)
        add_part(m, n->parts[j]);
    add_part(m, glu);
    for (int j = 0; j < n->n_src; j++)
        add_src(m, n->src[j]);
    add_src(m, glu->src[0]);
    memcpy(m->params, n->params, PARAMS_SIZE);
    return true;
}

/* Its result is quantised as one row a token. */
static bool match_rope_kv_attention_quantize(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    (void)r;
    return match_quantized(g, i, m, OP_ROPE_KV_ATTENTION, OP_ROPE_KV_ATTENTION_QUANTIZE);
}

/* The convolution and the delta net that reads nothing else of it. */
static bool match_conv_delta_net(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *net = g->nodes[i], *conv;
    if (net->op != OP_GATED_DELTA_NET)
        return false;
    if (!(conv = maker_is(net->src[0], OP_SSM_CONV_SILU)) || maker(net->src[1]) != conv || maker(net->src[2]) != conv)
        return fits_not(r, "q, k and v of %s do not come from one convolution", net->out->name);
    if (conv->src[3] != net->src[8] || conv->src[4] != net->src[9] || conv->n_parts + net->n_parts > MAX_PARTS)
        return fits_not(r, "%s has other sequences or slots than its convolution", net->out->name);
    m->op = OP_CONV_DELTA_NET;
    for (int j = 0; j < conv->n_parts; j++)
        add_part(m, conv->parts[j]);
    for (int j = 0; j < net->n_parts; j++)
        add_part(m, net->parts[j]);
    for (int j = 0; j < 3; j++)
        add_src(m, conv->src[j]);
    for (int j = 3; j < net->n_src; j++)
        add_src(m, net->src[j]);
    memcpy(m->params, net->params, PARAMS_SIZE);
    return true;
}

/* Its result is quantised as one row a token. */
static bool match_conv_delta_net_quantize(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    (void)r;
    return match_quantized(g, i, m, OP_CONV_DELTA_NET, OP_CONV_DELTA_NET_QUANTIZE);
}

/* ---- collectives: what may be fused with one is also asked of graph/guards.def */

/* The all_reduce that t names all of: a reshape between does not matter to a sum. */
static struct node *all_reduce_of(struct tensor *t)
{
    struct node *n = maker_is(t, OP_ALL_REDUCE);
    return n && (!t->base || (t->offset == 0 && tensor_contiguous(t) && tensor_elements(t) == tensor_elements(n->out))) ? n : NULL;
}

/* The all_reduce that add reads and what it adds to it; NULL: neither side is one. */
static struct node *all_reduce_added(const struct node *add, struct tensor **other)
{
    for (int side = 0; side < 2; side++) {
        struct node *n = all_reduce_of(add->src[side]);
        *other = add->src[1 - side];
        if (n && root_of(*other) != n->out)
            return n;
    }
    return NULL;
}

static bool match_all_reduce_add(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *add = g->nodes[i], *sum;
    struct tensor *other;
    if (add->op != OP_ADD || !(sum = all_reduce_added(add, &other)))
        return false;
    if (tensor_elements(other) != tensor_elements(add->out))
        return fits_not(r, "%s adds a broadcast value", add->out->name);
    m->op = OP_ALL_REDUCE_ADD;
    add_part(m, sum);
    add_part(m, add);
    add_src(m, sum->src[0]);
    add_src(m, other);
    return true;
}

static bool match_all_reduce_get_rows(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct node *rows = g->nodes[i], *sum;
    (void)r;
    if (rows->op != OP_GET_ROWS || !(sum = all_reduce_of(rows->src[0])))
        return false;
    m->op = OP_ALL_REDUCE_GET_ROWS;
    add_part(m, sum);
    add_part(m, rows);
    add_src(m, sum->src[0]);
    add_src(m, rows->src[1]);
    return true;
}

static bool match_all_reduce_add_rms_norm(const struct graph *g, int i, struct fuse_match *m, struct reason *r)
{
    struct fuse_match inner = {0};
    struct node *sum;
    struct tensor *other;
    if (!match_add_rms_norm_mul(g, i, &inner, r) || !(sum = all_reduce_added(inner.parts[0], &other)))
        return false;
    m->op = OP_ALL_REDUCE_ADD_RMS_NORM_MUL;
    add_part(m, sum);
    for (int j = 0; j < inner.n_parts; j++)
        add_part(m, inner.parts[j]);
    add_src(m, sum->src[0]);
    add_src(m, other);
    add_src(m, inner.src[2]);
    memcpy(m->params, inner.params, PARAMS_SIZE);
    return true;
}

/* ---- the table, and the rules */

enum { FUSION_OFF, FUSION_ON };

static const struct fusion table[] = {
#define FUSION(name, stage, state) {#name, FUSE_##stage, FUSION_##state, match_##name},
#include "graph/fuse.def"
#undef FUSION
};

const struct fusion *fusion_get(enum fusion_id id)
{
    return &table[id];
}

int fusion_by_name(const char *name, size_t size, enum fusion_id *id)
{
    for (int i = 0; i < N_FUSIONS; i++)
        if (strlen(table[i].name) == size && !memcmp(table[i].name, name, size)) {
            *id = (enum fusion_id)i;
            return 0;
        }
    return -1;
}

static bool node_reads(const struct node *n, const struct tensor *t)
{
    for (int j = 0; j < n->n_src; j++)
        if (n->src[j] && root_of(n->src[j]) == t)
            return true;
    return false;
}

/* Whether node n is one of the match: a part, or a fused node all of whose parts are (late fusions swallow early ones). */
static bool in_match(const struct fuse_match *m, const struct node *n)
{
    for (int j = 0; j < m->n_parts; j++)
        if (m->parts[j] == n || (n->n_parts && n->parts[0] == m->parts[j]))
            return true;
    return false;
}

/* Whether another node between the first part and the last reads a state that a part writes in place. */
static bool state_between(const struct graph *g, const struct fuse_match *m, int first, int last, struct reason *r)
{
    for (int j = 0; j < m->n_parts; j++) {
        struct tensor *state = node_updates(m->parts[j]);
        for (int k = first; k < last && state; k++)
            if (!in_match(m, g->nodes[k]) && node_reads(g->nodes[k], root_of(state)) && !op_get(g->nodes[k]->op)->alias)
                return !fits_not(r, "%s is read by %s before the last part", state->name, g->nodes[k]->out->name);
    }
    return false;
}

struct node *fuse_try(struct graph *g, const struct fusion *f, int i, struct reason *r)
{
    struct fuse_match m = {0};
    r->text[0] = 0;
    if (!f->match(g, i, &m, r))
        return NULL;
    int first = i;
    for (int k = i; k-- > 0;)
        first = in_match(&m, g->nodes[k]) ? k : first;
    struct node *fused = arena_alloc(g->arena, sizeof *fused);
    struct node **parts = arena_array(g->arena, (size_t)m.n_parts, sizeof *parts);
    if (!fused || !parts) {
        err_set(&g->error, HONE_ERESOURCE, "no memory for a fused node");
        return NULL;
    }
    const struct node *last = m.parts[m.n_parts - 1];
    for (int j = 0; j < m.n_parts; j++)
        if (m.parts[j]->place != last->place) {
            fits_not(r, "%s and %s run at different places", m.parts[j]->out->name, last->out->name);
            return NULL;
        }
    *fused = (struct node){.op = m.op, .layer = last->layer, .out = last->out, .n_src = m.n_src, .parts = parts, .n_parts = m.n_parts,
                           .place = last->place};
    memcpy(parts, m.parts, (size_t)m.n_parts * sizeof *parts);
    memcpy(fused->src, m.src, sizeof m.src);
    memcpy(fused->params, m.params, PARAMS_SIZE);
    if (state_between(g, &m, first, i, r))
        return NULL;
    for (int j = 0; j + 1 < m.n_parts; j++) {
        struct tensor *value = m.parts[j]->out;
        const struct tensor *memory = root_of(value);
        bool outside = g->logits && root_of(g->logits) == memory;
        for (int k = first; k < g->n_nodes; k++) {
            const struct node *n = g->nodes[k];
            if (in_match(&m, n) || op_get(n->op)->alias || !node_reads(n, memory)) /* who reads an alias reads its root */
                continue;
            if (k < i && memory->kind == TENSOR_VALUE) {
                fits_not(r, "%s is read by %s before the last part", value->name, n->out->name);
                return NULL;
            }
            outside |= memory->kind == TENSOR_VALUE;
        }
        if (outside && fused->n_also == MAX_ALSO) {
            fits_not(r, "more than %d values of %s are read elsewhere", MAX_ALSO, last->out->name);
            return NULL;
        }
        if (outside)
            fused->also[fused->n_also++] = value;
    }
    return fused;
}

void fuse_apply(struct graph *g, struct node *fused)
{
    struct fuse_match m = {.n_parts = fused->n_parts};
    memcpy(m.parts, fused->parts, (size_t)fused->n_parts * sizeof *fused->parts);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        struct node *node = g->nodes[i];
        if (node->out == fused->out) /* the last part, or a fused node that ends with it */
            g->nodes[n++] = fused;
        else if (!in_match(&m, node))
            g->nodes[n++] = node;
    }
    g->n_nodes = n;
    fused->out->producer = fused;
    for (int j = 0; j < fused->n_also; j++)
        root_of(fused->also[j])->producer = fused;
}
