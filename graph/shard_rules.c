/* shard_rules.c: a rule an op: from where its sources are, seen from one rank, to where its output is.
 *
 * A rule first says how it needs each source (whole, as it is, or a part of it) and never leaves a case open: an op without one
 * needs everything whole. The rules know what ops mean and nothing of models. What is linear passes a partial value on, so that
 * one all_reduce sums as late as it can; only get_rows, which is linear too, asks for the sum, so that the last layer's
 * all_reduce stands before it, where a fused one that sums the wanted rows alone can take both. */
#include "graph/shard_pass.h"

#include "ops/gated_delta_rule.h"
#include "ops/permute.h"
#include "ops/scale.h"
#include "ops/view.h"

static const struct spread *source(struct pass *p, const struct node *n, int j)
{
    return &mark_of(p, n->src[j])->at;
}

static bool is_partial(struct pass *p, const struct node *n, int j)
{
    return source(p, n, j)->kind == SHARDING_PARTIAL;
}

/* Source j with this part: as it is, or cut out of the whole; a value that is whole is wished to be a part next time. */
static void need_cut(struct pass *p, const struct node *n, int j, const struct split *cut, int owner, struct need *need)
{
    const struct spread *at = source(p, n, j);
    if (at->kind == SHARDING_SPLIT && split_equal(&at->split, cut)) {
        *need = (struct need){.how = AS_IS};
        return;
    }
    *need = (struct need){CUT, *cut, owner};
    if (at->kind != SHARDING_SPLIT && !p->local) {
        p->seed = owner;
        wish(p, n->src[j], cut);
    }
}

static bool out_split(struct spread *out, const struct split *split, int axis, int owner)
{
    *out = (struct spread){SHARDING_SPLIT, *split, owner};
    out->split.axis = axis;
    return true;
}

static bool out_partial(struct spread *out, int owner)
{
    *out = (struct spread){SHARDING_PARTIAL, {0}, owner};
    return true;
}

/* The first n_operands sources have the output's shape or repeat to it; the others are read whole. lowest: the first axis that
 * may be split. */
static bool rule_elements(struct pass *p, const struct node *n, int n_operands, int lowest, struct need *need,
                          struct spread *out)
{
    int lead = 0;
    while (lead < n_operands && source(p, n, lead)->kind != SHARDING_SPLIT)
        lead++;
    if (lead == n_operands)
        return true;
    struct spread s = *source(p, n, lead);
    int axis = s.split.axis;
    if (axis < lowest)
        return pass_fail(p, s.owner, "%.60s is computed over all of what would be split", n->out->name);
    if (n->src[lead]->ne[axis] != n->out->ne[axis])
        return pass_fail(p, s.owner, "%.60s repeats what would be split", n->out->name);
    for (int j = 0; j < n_operands; j++) {
        if (n->src[j]->ne[axis] == n->out->ne[axis])
            need_cut(p, n, j, &s.split, s.owner, &need[j]);
        else if (n->src[j]->ne[axis] != 1)
            return pass_fail(p, s.owner, "%.60s repeats a source along what would be split", n->out->name);
    }
    return out_split(out, &s.split, axis, s.owner);
}

static bool rule_add(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    if (is_partial(p, n, 0) && is_partial(p, n, 1) && tensor_same_shape(n->src[0], n->src[1])) {
        need[0].how = need[1].how = AS_IS;
        return out_partial(out, source(p, n, 0)->owner);
    }
    return rule_elements(p, n, 2, 0, need, out);
}

static bool rule_mul(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    if (is_partial(p, n, 0) && source(p, n, 1)->kind == SHARDING_MIRRORED) {
        need[0].how = AS_IS;
        return out_partial(out, source(p, n, 0)->owner);
    }
    return rule_elements(p, n, 2, 0, need, out);
}

static bool rule_scale(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    if (is_partial(p, n, 0) && node_params(n, struct scale_params)->bias == 0) {
        need[0].how = AS_IS;
        return out_partial(out, source(p, n, 0)->owner);
    }
    return rule_elements(p, n, 1, 0, need, out);
}

/* Reshape, view and permute: nothing moves. */
static bool rule_alias(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread s = *source(p, n, 0);
    struct split there;
    bool whole = false, kept;
    need[0].how = AS_IS;
    if (s.kind != SHARDING_SPLIT) {
        *out = s;
        return true;
    }
    if (n->op == OP_RESHAPE) {
        kept = split_reshape(&there, p->arena, &s.split, n->src[0], n->out);
    } else if (n->op == OP_PERMUTE) {
        there = s.split;
        there.axis = node_params(n, struct permute_params)->axis[s.split.axis];
        kept = true;
    } else {
        struct walk w;
        kept = walk_read(&w, n->src[0], n->out, node_params(n, struct view_params)->offset) &&
               split_view(&there, p->arena, &s.split, &w, n->out, &whole);
    }
    if (!kept)
        return pass_fail(p, s.owner, "%.60s cannot be had of a part of %.40s", n->out->name, n->src[0]->name);
    return whole || out_split(out, &there, there.axis, s.owner);
}

static bool rule_get_rows(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread s = *source(p, n, 0);
    if (n->src[0]->kind == TENSOR_WEIGHT || s.kind != SHARDING_SPLIT)
        return true;
    if (s.split.axis != 0)
        return pass_fail(p, s.owner, "%.60s looks rows up in what would be split", n->out->name);
    need[0].how = AS_IS;
    return out_split(out, &s.split, 0, s.owner);
}

/* Products with a matrix, or with one of many (sources behind the activation: ids, bias). */
static bool rule_product(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    const struct tensor *w = n->src[0];
    struct spread x = *source(p, n, 1);
    bool bias = n->op == OP_MUL_MAT_ID && n->n_src > 3 && n->src[3];
    if (w->kind != TENSOR_WEIGHT)
        return true;
    const struct split *rows = demand_split(p, w);
    int owner = rows ? demand_find(p->s, w)->owner : x.owner;
    if (rows && rows->axis == 1) {
        struct split part = *rows;
        need[0] = (struct need){CUT, *rows, owner};
        part.axis = 0;
        if (bias)
            need_cut(p, n, 3, &part, owner, &need[3]);
        return out_split(out, &part, 0, owner); /* x is read whole */
    }
    if (x.kind == SHARDING_SPLIT && x.split.axis == 0 && !rows && !p->local) {
        p->seed = x.owner;
        if (!demand_add(p, w, &x.split, x.owner))
            return pass_fail(p, x.owner, "%.60s cannot be split where its input is: blocks of %d", w->name,
                             format_get(w->format)->block);
        rows = demand_split(p, w);
    }
    if (!rows)
        return true; /* a split x is read whole, which fails where that is asked for */
    if (x.kind == SHARDING_SPLIT && !split_equal(&x.split, rows))
        return pass_fail(p, x.owner, "%.60s would be split in two ways", w->name);
    need[0] = (struct need){CUT, *rows, owner};
    need_cut(p, n, 1, rows, owner, &need[1]);
    return out_partial(out, owner);
}

static bool rule_kv_write(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread cache = *source(p, n, 1);
    if (cache.kind != SHARDING_SPLIT)
        return true;
    struct split heads = cache.split;
    heads.axis = 1;
    need_cut(p, n, 0, &heads, cache.owner, &need[0]);
    need[1].how = AS_IS;
    return out_split(out, &cache.split, 2, cache.owner);
}

/* Of a part of the query heads with all KV heads: as many of each group, in the order of the groups. */
static bool groups_even(const struct split *q, int64_t n_group, int64_t group)
{
    int64_t each = q->count / n_group;
    for (int64_t g = 0; g < n_group; g++)
        if (split_before(q, (g + 1) * group) - split_before(q, g * group) != each)
            return false;
    return each > 0;
}

static bool rule_attention(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread q = *source(p, n, 0), k = *source(p, n, 1), v = *source(p, n, 2);
    int64_t n_group = n->src[1]->ne[2], group = n->src[0]->ne[1] / n_group;
    struct split heads;
    int owner = k.kind == SHARDING_SPLIT ? k.owner : q.owner;
    if (k.kind != SHARDING_SPLIT && v.kind != SHARDING_SPLIT && q.kind != SHARDING_SPLIT)
        return true;
    if (k.kind == SHARDING_SPLIT) {
        if (v.kind != SHARDING_SPLIT || !split_equal(&k.split, &v.split) || k.split.axis != 2)
            return pass_fail(p, owner, "%.60s would have other heads of K than of V", n->out->name);
        if (!split_scale(&heads, p->arena, &k.split, 1, group, 0))
            return pass_memory(p);
        need[1].how = need[2].how = AS_IS;
    } else {
        heads = q.split;
        if (v.kind == SHARDING_SPLIT || heads.axis != 1 || !groups_even(&heads, n_group, group))
            return pass_fail(p, owner, "%.60s would have query heads apart from their KV heads", n->out->name);
    }
    need_cut(p, n, 0, &heads, owner, &need[0]);
    if (n->n_src > 6 && n->src[6]) {
        struct split sinks = heads;
        sinks.axis = 0;
        need_cut(p, n, 6, &sinks, owner, &need[6]);
    }
    return out_split(out, &heads, 1, owner);
}

static bool rule_conv(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread x = *source(p, n, 0);
    if (x.kind != SHARDING_SPLIT)
        return true;
    if (x.split.axis != 0)
        return pass_fail(p, x.owner, "%.60s would be split by tokens", n->out->name);
    struct split rows = x.split;
    rows.axis = 1;
    need[0].how = AS_IS;
    need_cut(p, n, 1, &rows, x.owner, &need[1]);
    need_cut(p, n, 2, &x.split, x.owner, &need[2]);
    return out_split(out, &x.split, 0, x.owner);
}

bool delta_value_heads(struct split *out, struct arena *a, const struct split *keys, int32_t heads, int64_t n_k, int64_t n_v)
{
    if (heads == DELTA_GROUPED)
        return split_scale(out, a, keys, 1, n_v / n_k, 0);
    *out = (struct split){.axis = 1};
    for (int64_t tile = 0; tile < n_v / n_k; tile++) {
        struct split moved, before = *out;
        if (!split_scale(&moved, a, keys, 1, 1, tile * n_k) || !split_union(out, a, &before, &moved))
            return false;
    }
    return true;
}

/* Heads of V with all heads of K: whole tiles of them, or as many of each group. */
static bool values_even(const struct split *v, int32_t heads, int64_t n_k, int64_t n_v)
{
    return heads == DELTA_TILED ? v->n_pieces == 1 && v->pieces[0].first % n_k == 0 && v->count % n_k == 0
                                : groups_even(v, n_k, n_v / n_k);
}

static bool rule_delta(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread q = *source(p, n, 0), k = *source(p, n, 1), v = *source(p, n, 2);
    int32_t heads = node_params(n, struct gated_delta_rule_params)->heads;
    int64_t n_k = n->src[1]->ne[1], n_v = n->src[2]->ne[1];
    struct split values;
    if (v.kind != SHARDING_SPLIT && q.kind != SHARDING_SPLIT && k.kind != SHARDING_SPLIT)
        return true;
    int owner = v.kind == SHARDING_SPLIT ? v.owner : k.kind == SHARDING_SPLIT ? k.owner : q.owner;
    if (k.kind == SHARDING_SPLIT || q.kind == SHARDING_SPLIT) {
        if (k.kind != SHARDING_SPLIT || q.kind != SHARDING_SPLIT || !split_equal(&q.split, &k.split) || k.split.axis != 1)
            return pass_fail(p, owner, "%.60s would have other heads of Q than of K", n->out->name);
        if (!delta_value_heads(&values, p->arena, &k.split, heads, n_k, n_v))
            return pass_memory(p);
        need[0].how = need[1].how = AS_IS;
    } else {
        values = v.split;
        if (values.axis != 1 || !values_even(&values, heads, n_k, n_v))
            return pass_fail(p, owner, "%.60s would have heads of V apart from their heads of K", n->out->name);
    }
    struct split gates = values, state = values;
    gates.axis = 0;
    state.axis = 2;
    need_cut(p, n, 2, &values, owner, &need[2]);
    need_cut(p, n, 3, &gates, owner, &need[3]);
    need_cut(p, n, 4, &gates, owner, &need[4]);
    need_cut(p, n, 5, &state, owner, &need[5]);
    return out_split(out, &values, 1, owner);
}

static bool rule_expert_sum(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    struct spread x = *source(p, n, 0);
    if (x.kind == SHARDING_PARTIAL) {
        need[0].how = AS_IS;
        return out_partial(out, x.owner);
    }
    if (x.kind == SHARDING_SPLIT && x.split.axis == 0) {
        need[0].how = AS_IS;
        return out_split(out, &x.split, 0, x.owner);
    }
    return true;
}

bool rule_of(struct pass *p, const struct node *n, struct need *need, struct spread *out)
{
    switch (n->op) {
    case OP_VIEW:
    case OP_RESHAPE:
    case OP_PERMUTE:
        return rule_alias(p, n, need, out);
    case OP_GET_ROWS:
        return rule_get_rows(p, n, need, out);
    case OP_ADD:
        return rule_add(p, n, need, out);
    case OP_MUL:
        return rule_mul(p, n, need, out);
    case OP_SCALE:
        return rule_scale(p, n, need, out);
    case OP_GLU:
        return rule_elements(p, n, 2, 0, need, out);
    case OP_UNARY:
    case OP_COPY:
        return rule_elements(p, n, 1, 0, need, out);
    case OP_ROPE:
    case OP_RMS_NORM:
    case OP_L2_NORM:
    case OP_SOFTMAX:
        return rule_elements(p, n, 1, 1, need, out);
    case OP_MUL_MAT:
    case OP_MUL_MAT_ID:
        return rule_product(p, n, need, out);
    case OP_KV_WRITE:
        return rule_kv_write(p, n, need, out);
    case OP_ATTENTION:
        return rule_attention(p, n, need, out);
    case OP_SSM_CONV:
        return rule_conv(p, n, need, out);
    case OP_GATED_DELTA_RULE:
        return rule_delta(p, n, need, out);
    case OP_EXPERT_SUM:
        return rule_expert_sum(p, n, need, out);
    default:
        return true; /* everything is read whole */
    }
}
