/* shard.c: working out the cut, and the walk. See shard.h and shard_pass.h.
 *
 * The cut is a fixed point. Seeds ask; a walk for each rank finds what follows from that and asks for more (the gate that
 * multiplies a split output should be split as well); when a walk finds nothing new the cut is known. A rule that does not hold
 * drops a seed and all begins anew without it. Each walk is a pass over the nodes, there are three or four, and a model of 64
 * layers is cut in milliseconds.
 *
 * Roles written into each architecture (this matrix by rows, that one by columns) were the alternative. They are a second
 * description of the graph that goes wrong silently; here a new architecture is split from its first day, or says what it keeps
 * whole. */
#include "graph/shard_pass.h"

#include "graph/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- demands */

static size_t hash_of(const struct tensor *t)
{
    return (size_t)((uint64_t)(uintptr_t)t * 0x9e3779b97f4a7c15u >> 32);
}

struct demand *demand_find(const struct shard *s, const struct tensor *whole)
{
    if (!s->index)
        return NULL;
    for (size_t i = hash_of(whole) & s->index_mask; s->index[i]; i = (i + 1) & s->index_mask)
        if (s->demands[s->index[i] - 1].whole == whole)
            return &s->demands[s->index[i] - 1];
    return NULL;
}

const struct split *demand_split(const struct pass *p, const struct tensor *t)
{
    const struct demand *d = demand_find(p->s, t);
    return d && d->set[p->rank] ? &d->split[p->rank] : NULL;
}

static void demand_index(struct shard *s, int i)
{
    size_t at = hash_of(s->demands[i].whole) & s->index_mask;
    while (s->index[at])
        at = (at + 1) & s->index_mask;
    s->index[at] = i + 1;
}

static bool demands_grow(struct shard *s)
{
    int cap = s->cap_demands ? 2 * s->cap_demands : 256;
    struct demand *list = arena_array(&s->arena, (size_t)cap, sizeof *list);
    int *index = arena_array(&s->arena, 4 * (size_t)cap, sizeof *index);
    if (!list || !index)
        return false;
    if (s->n_demands)
        memcpy(list, s->demands, (size_t)s->n_demands * sizeof *list);
    s->demands = list;
    s->cap_demands = cap;
    s->index = index;
    s->index_mask = 4 * (size_t)cap - 1;
    for (int i = 0; i < s->n_demands; i++)
        demand_index(s, i);
    return true;
}

static void demands_clear(struct shard *s)
{
    s->n_demands = 0;
    if (s->index)
        memset(s->index, 0, (s->index_mask + 1) * sizeof *s->index);
}

static struct demand *demand_new(struct shard *s, const struct tensor *whole, int owner)
{
    if (s->n_demands == s->cap_demands && !demands_grow(s))
        return NULL;
    struct demand *d = &s->demands[s->n_demands];
    *d = (struct demand){.whole = whole, .owner = owner};
    d->split = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *d->split);
    d->set = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *d->set);
    if (!d->split || !d->set)
        return NULL;
    demand_index(s, s->n_demands++);
    return d;
}

bool demand_add(struct pass *p, const struct tensor *t, const struct split *split, int owner)
{
    struct shard *s = p->s;
    int64_t block = split->axis ? 1 : format_get(t->format)->block;
    struct split all;
    if (t->base || !split_aligned(split, block, t->ne[split->axis]))
        return false;
    struct demand *d = demand_find(s, t);
    for (int r = 0; d && r < s->n_ranks; r++)
        if (d->set[r] && d->split[r].axis != split->axis)
            return false;
    if (!d && !(d = demand_new(s, t, owner)))
        return pass_memory(p);
    const struct split none = {.axis = split->axis}, *had = d->set[p->rank] ? &d->split[p->rank] : &none;
    if (!split_union(&all, &s->arena, had, split))
        return pass_memory(p);
    if (!d->set[p->rank] || !split_equal(&all, had)) {
        d->split[p->rank] = all;
        d->set[p->rank] = true;
        p->changed = true;
    }
    return true;
}

/* ---- the walk */

bool pass_fail(struct pass *p, int owner, const char *format, ...)
{
    va_list ap;
    if (p->failed)
        return false;
    va_start(ap, format);
    vsnprintf(p->why, sizeof p->why, format, ap);
    va_end(ap);
    p->failed = true;
    p->culprit = owner;
    return false;
}

bool pass_memory(struct pass *p)
{
    p->out_of_memory = true;
    return pass_fail(p, -1, "no memory");
}

bool pass_init(struct pass *p, struct shard *s, const struct graph *whole, struct arena *arena, int rank)
{
    size_t n = 64;
    *p = (struct pass){.s = s, .arena = arena, .whole = whole, .rank = rank, .seed = -1, .culprit = -1};
    while (n < 4 * (size_t)whole->n_nodes)
        n *= 2;
    p->marks = arena_array(arena, n, sizeof *p->marks);
    p->mask = n - 1;
    return p->marks != NULL;
}

struct mark *mark_of(struct pass *p, const struct tensor *t)
{
    size_t i = hash_of(t) & p->mask;
    while (p->marks[i].whole && p->marks[i].whole != t)
        i = (i + 1) & p->mask;
    struct mark *m = &p->marks[i];
    if (m->whole)
        return m;
    *m = (struct mark){.whole = t, .at = {SHARDING_MIRRORED, {0}, -1}};
    if (t->kind == TENSOR_WEIGHT || t->kind == TENSOR_STATE) {
        const struct demand *d = demand_find(p->s, t);
        if (d && d->set[p->rank])
            m->at = (struct spread){SHARDING_SPLIT, d->split[p->rank], d->owner};
    }
    return m;
}

bool pass_run(struct pass *p)
{
    for (int i = 0; i < p->whole->n_nodes; i++) {
        const struct node *n = p->whole->nodes[i];
        struct need need[MAX_SRC] = {{WHOLE}};
        struct tensor *src[MAX_SRC] = {NULL};
        struct spread at = {SHARDING_MIRRORED, {0}, -1};
        bool good = rule_of(p, n, need, &at);
        for (int j = 0; j < n->n_src && good; j++)
            if (n->src[j])
                good = fetch(p, n, j, &need[j], &src[j]);
        if (!good)
            return false;
        mark_of(p, n->out)->at = at;
        if (p->local && !emit(p, n, at, src))
            return false;
    }
    return true;
}

/* ---- working out the cut */

/* What a walk leaves of each node: whether, and along which axis, it is split, and by whom. */
struct trail {
    int kind, owner;
};

/* All ranks must split the same nodes: their collectives have to meet. */
static bool same_trail(struct pass *p, struct trail *trail)
{
    for (int i = 0; i < p->whole->n_nodes; i++) {
        const struct spread *at = &mark_of(p, p->whole->nodes[i]->out)->at;
        struct trail mine = {(int)at->kind + (at->kind == SHARDING_SPLIT ? 4 * (1 + at->split.axis) : 0), at->owner};
        if (p->rank && trail[i].kind != mine.kind)
            return pass_fail(p, mine.owner < 0 ? trail[i].owner : mine.owner, "%.60s would be split on some devices alone",
                             p->whole->nodes[i]->out->name);
        trail[i] = mine;
    }
    return true;
}

static bool logits_note(struct pass *p)
{
    const struct spread *at = &mark_of(p, p->whole->logits)->at;
    struct split *mine = &p->s->logits[p->rank];
    *mine = (struct split){.axis = -1};
    return at->kind != SHARDING_SPLIT || split_scale(mine, &p->s->arena, &at->split, at->split.axis, 1, 0) || pass_memory(p);
}

/* A weight is split on all ranks or on none. */
static bool all_have(struct pass *p)
{
    for (int i = 0; i < p->s->n_demands; i++)
        for (int r = 0; r < p->s->n_ranks; r++)
            if (!p->s->demands[i].set[r])
                return pass_fail(p, p->s->demands[i].owner, "%.60s would be split on some devices alone",
                                 p->s->demands[i].whole->name);
    return true;
}

/* A walk for each rank. 1: once more; 0: the cut is known; -1: a seed was at fault, or memory is out (then p says so). */
static int walk_all(struct shard *s, const struct graph *whole, struct trail *trail, struct arena *walk, struct pass *p)
{
    bool changed = false;
    for (int rank = 0; rank < s->n_ranks; rank++) {
        arena_reset(walk);
        if (!pass_init(p, s, whole, walk, rank)) {
            pass_memory(p);
            return -1;
        }
        if (!pass_run(p))
            return -1;
        changed |= p->changed;
        if ((!changed && !same_trail(p, trail)) || !logits_note(p))
            return -1;
    }
    return changed ? 1 : all_have(p) ? 0 : -1;
}

void keep_whole(struct shard *s, const struct tensor *weight, const char *why)
{
    for (int i = 0; i < s->n_kept; i++)
        if (s->kept[i].weight == weight)
            return;
    if (s->n_kept == s->cap_kept) {
        int cap = s->cap_kept ? 2 * s->cap_kept : 64;
        struct kept_whole *list = arena_array(&s->arena, (size_t)cap, sizeof *list);
        if (!list)
            return; /* the report says less */
        if (s->n_kept)
            memcpy(list, s->kept, (size_t)s->n_kept * sizeof *list);
        s->kept = list;
        s->cap_kept = cap;
    }
    s->kept[s->n_kept].weight = weight;
    snprintf(s->kept[s->n_kept++].why, sizeof s->kept->why, "%s", why);
}

/* The weights of a seed that could not be kept. */
static void keep_all(struct shard *s, int owner, const char *why)
{
    for (int i = 0; i < s->n_demands; i++)
        if (s->demands[i].owner == owner && s->demands[i].whole->kind == TENSOR_WEIGHT)
            keep_whole(s, s->demands[i].whole, why);
}

static int seeds_find(struct seed **out, const struct graph *g, struct arena *a)
{
    struct seed *list = arena_array(a, (size_t)g->n_nodes + 1, sizeof *list);
    int n = 0;
    for (int i = 0; i < g->n_nodes && list; i++) {
        list[n] = (struct seed){.node = g->nodes[i], .ask = seed_of(g, g->nodes[i])};
        n += list[n].ask != NULL;
    }
    if (list && g->logits && g->logits->producer)
        list[n++] = (struct seed){.node = g->logits->producer, .ask = seed_head};
    *out = list;
    return n;
}

static bool seeds_ask(struct shard *s, const struct graph *whole, struct arena *walk, const struct seed *seeds, int n)
{
    demands_clear(s);
    for (int rank = 0; rank < s->n_ranks; rank++) {
        struct pass p;
        arena_reset(walk);
        if (!pass_init(&p, s, whole, walk, rank))
            return false;
        for (p.seed = 0; p.seed < n; p.seed++)
            if (!seeds[p.seed].dropped)
                seeds[p.seed].ask(&p, seeds[p.seed].node);
        if (p.out_of_memory)
            return false;
    }
    return true;
}

static int cut(struct shard *s, const struct graph *whole, struct arena *scratch, struct arena *walk, struct hone_error *e)
{
    struct seed *seeds;
    struct pass p = {.culprit = -1};
    int n = seeds_find(&seeds, whole, scratch), state = 1;
    struct trail *trail = arena_array(scratch, (size_t)whole->n_nodes + 1, sizeof *trail);
    if (!seeds || !trail)
        return err_set(e, HONE_ERESOURCE, "no memory to cut a model");
    for (int dropped = 0; dropped <= n && state; dropped++) {
        if (!seeds_ask(s, whole, walk, seeds, n))
            return err_set(e, HONE_ERESOURCE, "no memory to cut a model");
        for (int round = 0; round < 16 && state > 0; round++)
            state = walk_all(s, whole, trail, walk, &p);
        if (state < 0 && (p.out_of_memory || p.culprit < 0))
            return err_set(e, p.out_of_memory ? HONE_ERESOURCE : HONE_EFAULT, "cutting the model: %s", p.why);
        if (state < 0) {
            keep_all(s, p.culprit, p.why);
            seeds[p.culprit].dropped = true;
            state = 1;
        }
    }
    if (state)
        return err_set(e, HONE_EFAULT, "cutting the model does not come to an end");
    return s->n_demands ? 0
                        : err_set(e, HONE_EUSAGE, "nothing of this model can be split over %d devices%s%s", s->n_ranks,
                                  s->n_kept ? ": " : "", s->n_kept ? s->kept[0].why : "");
}

/* The ranks' own tensors of the weights that are split. */
static int weights_make(struct shard *s, struct hone_error *e)
{
    for (int i = 0; i < s->n_demands; i++) {
        struct demand *d = &s->demands[i];
        if (d->whole->kind != TENSOR_WEIGHT)
            continue;
        d->local = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *d->local);
        d->slices = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *d->slices);
        if (!d->local || !d->slices)
            return err_set(e, HONE_ERESOURCE, "no memory to cut a model");
        for (int r = 0; r < s->n_ranks; r++) {
            slice_init(&d->local[r], &d->slices[r], d->whole, &d->split[r]);
            d->local[r].sharding = SHARDING_SPLIT;
            d->local[r].axis = d->split[r].axis;
        }
    }
    return 0;
}

/* ---- the public part */

static int shares_take(struct shard *s, const struct shard_params *p, struct hone_error *e)
{
    double sum = 0, before = 0;
    for (int i = 0; i < s->n_ranks; i++) {
        double x = p->shares ? p->shares[i] : 1;
        if (!(x > 0 && x < 1e9))
            return err_set(e, HONE_EUSAGE, "device %d has a share of %g: above 0 is possible", i, x);
        sum += x;
    }
    for (int i = 0; i < s->n_ranks; i++) {
        before += p->shares ? p->shares[i] : 1;
        s->ends[i] = i + 1 < s->n_ranks ? before / sum : 1;
    }
    return 0;
}

int shard_create(struct shard **out, const struct graph *whole, const struct shard_params *p, struct hone_error *e)
{
    struct arena arena = {0}, scratch = {0}, walk = {0};
    *out = NULL;
    if (p->n_ranks < 2 || p->n_ranks > SHARD_MAX_RANKS)
        return err_set(e, HONE_EUSAGE, "a model over %d devices: 2 to %d are possible", p->n_ranks, SHARD_MAX_RANKS);
    int rc = graph_error(whole, e);
    if (rc)
        return rc;
    struct shard *s = arena_alloc(&arena, sizeof *s);
    if (!s)
        return err_set(e, HONE_ERESOURCE, "no memory to cut a model");
    *s = (struct shard){.arena = arena, .mode = p->mode, .n_ranks = p->n_ranks, .gather_logits = p->gather_logits};
    s->ends = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *s->ends);
    s->logits = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *s->logits);
    rc = s->ends && s->logits ? shares_take(s, p, e) : err_set(e, HONE_ERESOURCE, "no memory to cut a model");
    if (!rc)
        rc = s->mode == SHARD_LAYER ? layers_cut(s, whole, e) : cut(s, whole, &scratch, &walk, e);
    if (!rc)
        rc = weights_make(s, e);
    if (!rc)
        rc = shard_report(s, whole, e);
    arena_free(&scratch);
    arena_free(&walk);
    if (rc)
        shard_free(s);
    else
        *out = s;
    return rc;
}

void shard_free(struct shard *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_demands; i++)
        for (int r = 0; s->demands[i].local && r < s->n_ranks; r++)
            weight_free(&s->demands[i].local[r]);
    struct arena arena = s->arena;
    arena_free(&arena);
}

const struct split *shard_split(const struct shard *s, int rank, const struct tensor *whole)
{
    const struct demand *d = demand_find(s, whole);
    return d && d->set[rank] ? &d->split[rank] : NULL;
}

const struct tensor *shard_weight(const struct shard *s, int rank, const struct tensor *whole)
{
    const struct demand *d = demand_find(s, whole);
    return d && d->local ? &d->local[rank] : NULL;
}

const struct split *shard_logits(const struct shard *s, int rank)
{
    return s->gather_logits || s->logits[rank].axis < 0 ? NULL : &s->logits[rank]; /* axis -1: every rank has all of them */
}

int shard_n_ranks(const struct shard *s)
{
    return s->n_ranks;
}

void shard_bytes(const struct shard *s, int rank, double *own, double *mirrored)
{
    *own = s->layer_bytes ? s->layer_bytes[rank] : 0;
    *mirrored = s->mirrored_bytes;
    for (int i = 0; i < s->n_demands; i++)
        if (s->demands[i].local)
            *own += (double)s->demands[i].slices[rank].bytes;
}

int shard_graph(struct shard *s, int rank, const struct graph *whole, const struct shard_pair *pairs, int n_pairs,
                struct graph *local)
{
    struct pass p;
    if (s->mode == SHARD_LAYER)
        return layers_graph(s, rank, whole, pairs, n_pairs, local);
    if (graph_error(whole, &local->error) || !pass_init(&p, s, whole, local->arena, rank))
        return err_set(&local->error, HONE_ERESOURCE, "no memory for a rank's graph");
    p.local = local;
    for (int i = 0; i < n_pairs; i++)
        mark_of(&p, pairs[i].whole)->local = pairs[i].local;
    bool good = pass_run(&p), split = good && mark_of(&p, whole->logits)->at.kind == SHARDING_SPLIT;
    struct need rest = {.how = split ? AS_IS : WHOLE};
    struct node reader = {.layer = -1, .src = {whole->logits}, .n_src = 1};
    good = good && fetch(&p, &reader, 0, &rest, &local->logits);
    if (good && split && s->gather_logits)
        good = (local->logits = emit_gather(&p, local->logits, whole->logits->ne[0])) != NULL;
    if (!good && !local->error.code)
        err_set(&local->error, p.out_of_memory ? HONE_ERESOURCE : HONE_EFAULT, "rank %d's graph: %s", rank, p.why);
    return local->error.code;
}
