/* shard_wish.c: from a wish for a part of a value back to the weights that it takes.
 *
 * The way back goes through what works index by index and ends at the rows of a matrix. Where it cannot go on (a norm over what
 * would be split, a lookup) the value stays whole, and whoever wished cuts his part out of it: the work before is then done by
 * every rank. */
#include "graph/shard_pass.h"

#include "ops/permute.h"
#include "ops/view.h"

static bool wish_reshape(struct pass *p, const struct node *n, const struct split *split)
{
    struct split back;
    return split_reshape(&back, p->arena, split, n->out, n->src[0]) && wish(p, n->src[0], &back);
}

static bool wish_view(struct pass *p, const struct node *n, const struct split *split)
{
    struct walk w;
    struct split back;
    return walk_read(&w, n->src[0], n->out, node_params(n, struct view_params)->offset) &&
           split_view_back(&back, p->arena, split, &w, n->out) && wish(p, n->src[0], &back);
}

static bool wish_permute(struct pass *p, const struct node *n, const struct split *split)
{
    const int32_t *axis = node_params(n, struct permute_params)->axis;
    struct split back = *split;
    for (int i = 0; i < MAX_DIMS; i++)
        if (axis[i] == split->axis)
            back.axis = i;
    return wish(p, n->src[0], &back);
}

/* A second source of the output's shape goes with the first, one that repeats along the axis stays whole. */
static bool wish_both(struct pass *p, const struct node *n, const struct split *split)
{
    bool first = wish(p, n->src[0], split);
    if (n->src[1]->ne[split->axis] == n->out->ne[split->axis] && (first || n->op == OP_GLU))
        first |= wish(p, n->src[1], split);
    return first;
}

/* A product's output is split by the rows of its matrix. */
static bool wish_product(struct pass *p, const struct node *n, const struct split *split)
{
    struct split rows = *split;
    const struct tensor *w = n->src[0];
    rows.axis = 1;
    return split->axis == 0 && w->kind == TENSOR_WEIGHT && demand_add(p, w, &rows, p->seed);
}

static bool wish_conv(struct pass *p, const struct node *n, const struct split *split)
{
    struct split rows = *split;
    rows.axis = 1;
    if (split->axis != 0 || !demand_add(p, n->src[1], &rows, p->seed) || !demand_add(p, n->src[2], split, p->seed))
        return false;
    wish(p, n->src[0], split);
    return true;
}

static bool wish_kv(struct pass *p, const struct node *n, const struct split *split)
{
    struct split heads = *split;
    heads.axis = 1;
    if (split->axis != 2 || !demand_add(p, n->src[1], split, p->seed))
        return false;
    wish(p, n->src[0], &heads);
    return true;
}

bool wish(struct pass *p, const struct tensor *t, const struct split *split)
{
    if (t->kind == TENSOR_WEIGHT || t->kind == TENSOR_STATE)
        return demand_add(p, t, split, p->seed);
    const struct node *n = t->producer;
    if (!n)
        return false;
    switch (n->op) {
    case OP_RESHAPE:
        return wish_reshape(p, n, split);
    case OP_VIEW:
        return wish_view(p, n, split);
    case OP_PERMUTE:
        return wish_permute(p, n, split);
    case OP_ADD:
    case OP_MUL:
    case OP_GLU:
        return wish_both(p, n, split);
    case OP_SCALE:
    case OP_UNARY:
    case OP_COPY:
        return wish(p, n->src[0], split);
    case OP_ROPE:
    case OP_RMS_NORM:
    case OP_L2_NORM:
    case OP_SOFTMAX:
        return split->axis != 0 && wish(p, n->src[0], split);
    case OP_MUL_MAT:
    case OP_MUL_MAT_ID:
        return wish_product(p, n, split);
    case OP_SSM_CONV:
        return wish_conv(p, n, split);
    case OP_KV_WRITE:
        return wish_kv(p, n, split);
    default:
        return false;
    }
}
