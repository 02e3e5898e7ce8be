/* shard_emit.c: a rank's nodes: the whole graph's, with the rank's own tensors, shapes and strides; all_reduce where a sum is
 * read; and a view, with a copy behind it where its rows lie apart, where a part of a whole value is wanted. */
#include "graph/shard_pass.h"

#include "ops/all_gather.h"
#include "ops/copy.h"
#include "ops/reshape.h"
#include "ops/view.h"

#include <stdio.h>
#include <string.h>

static struct tensor *mark_sharding(struct tensor *t, const struct spread *at)
{
    if (t) {
        t->sharding = at->kind;
        t->axis = at->kind == SHARDING_SPLIT ? at->split.axis : 0;
    }
    return t;
}

static struct tensor *named(struct tensor *t, const struct tensor *after, const char *suffix)
{
    if (t)
        snprintf(t->name, sizeof t->name, "%.*s.%s", NAME_SIZE - 8, after->name, suffix);
    return t;
}

/* The sum of a partial value, once. */
static bool sum(struct pass *p, struct mark *m)
{
    m->at = (struct spread){SHARDING_MIRRORED, {0}, m->at.owner};
    if (!p->local)
        return true;
    struct tensor *x = m->local;
    p->local->layer = m->whole->producer->layer;
    m->local = named(graph_op(p->local, OP_ALL_REDUCE, NULL, x), x, "sum");
    return m->local != NULL;
}

/* A run along an axis, whose rows then lie one behind the other. */
static struct tensor *run_of_value(struct pass *p, struct tensor *t, const struct split *cut, int layer)
{
    struct view_params v = {.offset = (uint64_t)cut->pieces[0].first * t->nb[cut->axis]};
    for (int i = 0; i < MAX_DIMS; i++) {
        v.ne[i] = (int32_t)(i == cut->axis ? cut->count : t->ne[i]);
        v.nb[i] = t->nb[i];
    }
    p->local->layer = layer;
    struct tensor *part = named(graph_op(p->local, OP_VIEW, &v, t), t, "part");
    if (part && !tensor_contiguous(part))
        part = named(graph_op(p->local, OP_COPY, &(struct copy_params){FORMAT_F32}, part), t, "rows");
    return part;
}

static bool fetch_weight(struct pass *p, struct tensor *t, const struct need *need, struct tensor **out)
{
    const struct demand *d = need->how == WHOLE ? NULL : demand_find(p->s, t);
    const struct split *has = d && d->set[p->rank] ? &d->split[p->rank] : NULL;
    if (need->how == CUT && !(has && split_equal(has, &need->cut)) && !p->changed)
        return pass_fail(p, need->owner, "%.60s cannot be split as it is needed", t->name);
    *out = has && p->local ? &d->local[p->rank] : t;
    return true;
}

bool fetch(struct pass *p, const struct node *n, int j, const struct need *need, struct tensor **out)
{
    struct tensor *t = n->src[j];
    struct mark *m = mark_of(p, t);
    if (t->kind == TENSOR_WEIGHT)
        return fetch_weight(p, t, need, out);
    if (m->at.kind == SHARDING_PARTIAL && need->how != AS_IS && !sum(p, m))
        return false;
    if (m->at.kind == SHARDING_SPLIT && need->how == WHOLE)
        return pass_fail(p, m->at.owner, "%.50s needs all of %.50s", n->out ? n->out->name : "the result", t->name);
    *out = m->local;
    if (need->how != CUT)
        return true;
    if (m->at.kind == SHARDING_SPLIT)
        return split_equal(&m->at.split, &need->cut) || pass_fail(p, need->owner, "%.60s would be split in two ways", t->name);
    if (p->changed) /* what it needs was wished for in this walk: the next one sees whether it came */
        return true;
    if (t->kind != TENSOR_VALUE || need->cut.n_pieces != 1)
        return pass_fail(p, need->owner, "%.60s cannot be split as it is needed", t->name);
    if (!p->local && product_before(t))
        keep_whole(p->s, product_before(t)->src[0], "all of it goes into a norm, and is cut behind that");
    if (p->local)
        *out = mark_sharding(run_of_value(p, m->local, &need->cut, n->layer), &(struct spread){SHARDING_SPLIT, need->cut, -1});
    return !p->local || *out;
}

/* The view's window within the rank's part of its source. */
static bool view_params_of(struct pass *p, const struct node *n, const struct spread *at, const struct tensor *src,
                           struct view_params *v)
{
    struct walk w;
    const struct spread *from = &mark_of(p, n->src[0])->at;
    if (!walk_read(&w, n->src[0], n->out, v->offset)) /* then it is mirrored, and lies as in the whole graph */
        return from->kind != SHARDING_SPLIT || pass_fail(p, from->owner, "%.60s cannot be had of a part", n->out->name);
    v->offset = 0;
    for (int s = 0; s < MAX_DIMS; s++) {
        bool cut = from->kind == SHARDING_SPLIT && from->split.axis == s;
        v->offset += (uint64_t)(cut ? split_before(&from->split, w.start[s]) : w.start[s]) * src->nb[s];
    }
    for (int i = 0; i < MAX_DIMS; i++) {
        bool cut = at->kind == SHARDING_SPLIT && at->split.axis == i;
        v->ne[i] = (int32_t)(cut ? at->split.count : n->out->ne[i]);
        if (w.along[i] >= 0)
            v->nb[i] = (uint64_t)w.step[i] * src->nb[w.along[i]];
        else
            v->nb[i] = i ? v->nb[i - 1] * (uint64_t)v->ne[i - 1] : src->nb[0];
    }
    return true;
}

bool emit(struct pass *p, const struct node *n, struct spread at, struct tensor **src)
{
    const struct op_desc *d = op_get(n->op);
    struct node copy = {.op = n->op}; /* its params are aligned as an op's struct wants */
    memcpy(copy.params, n->params, PARAMS_SIZE);
    if (n->op == OP_RESHAPE && at.kind == SHARDING_SPLIT)
        ((struct reshape_params *)(void *)copy.params)->ne[at.split.axis] = at.split.count;
    if (n->op == OP_VIEW && !view_params_of(p, n, &at, src[0], (struct view_params *)(void *)copy.params))
        return false;
    if (n->op == OP_MUL_MAT_ID && at.kind == SHARDING_PARTIAL && p->rank && n->n_src > 3)
        src[3] = NULL; /* one rank adds the bias to the sum */
    p->local->layer = n->layer;
    struct tensor *out = graph_add(p->local, n->op, d->params_size ? copy.params : NULL, src, n->n_src);
    if (!out)
        return false;
    snprintf(out->name, sizeof out->name, "%s", n->out->name);
    for (int i = 0; i < MAX_DIMS && n->op != OP_KV_WRITE; i++) /* how many cells there are is the session's to say */
        INVARIANT(out->ne[i] == (at.kind == SHARDING_SPLIT && at.split.axis == i ? at.split.count : n->out->ne[i]));
    mark_sharding(out, &at);
    mark_of(p, n->out)->local = out;
    return true;
}

struct tensor *emit_gather(struct pass *p, struct tensor *part, int64_t total)
{
    p->local->layer = -1;
    return named(graph_op(p->local, OP_ALL_GATHER, (&(struct all_gather_params){(int32_t)total}), part), part, "all");
}
