/* cuts.c: see cuts.h. The list is the process' own, behind a lock; a model is known by its address, which cuts_forget takes out
 * of the list before it can be reused. Cuts inside struct model were the alternative: the model layer would have to know of
 * ranks. */
#include "engine/cuts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct cut cut; /* first: what callers hold */
    struct entry *next;
    const struct model *model;
    struct arena arena;
    struct shard_params params; /* shares in the arena, one a rank */
    int users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *list;

static double share_of(const struct shard_params *p, int rank)
{
    return p->shares ? p->shares[rank] : 1;
}

static bool same(const struct entry *c, const struct model *m, const struct shard_params *p)
{
    bool equal = c->model == m && c->params.mode == p->mode && c->params.n_ranks == p->n_ranks &&
                 c->params.gather_logits == p->gather_logits;
    for (int r = 0; equal && r < p->n_ranks; r++)
        equal = share_of(&c->params, r) == share_of(p, r);
    return equal;
}

static void entry_free(struct entry *c)
{
    if (!c)
        return;
    shard_free(c->cut.shard);
    arena_free(&c->arena);
    free(c);
}

/* Takes a model's unused cuts, or all of them, out of the list. */
static void drop(const struct model *m, bool all)
{
    for (struct entry **at = &list; *at;) {
        struct entry *c = *at;
        if (c->model != m || (c->users && !all)) {
            at = &c->next;
            continue;
        }
        INVARIANT(!c->users);
        *at = c->next;
        entry_free(c);
    }
}

/* A state of the whole graph: one cell or slot, and no memory. */
static struct tensor *stand_in(struct arena *a, const char *name, int layer, int n_dims, const int64_t *ne)
{
    struct tensor *t = arena_alloc(a, sizeof *t);
    if (!t)
        return NULL;
    t->kind = TENSOR_STATE;
    tensor_shape(t, FORMAT_F32, n_dims, ne);
    snprintf(t->name, sizeof t->name, "%s-%d", name, layer);
    return t;
}

static bool stand_ins(struct cut *c, struct arena *a, const struct model *m)
{
    size_t n = (size_t)m->n_layer;
    bool good = (c->k = arena_array(a, n, sizeof *c->k)) && (c->v = arena_array(a, n, sizeof *c->v)) &&
                (c->conv = arena_array(a, n, sizeof *c->conv)) && (c->delta = arena_array(a, n, sizeof *c->delta));
    for (int i = 0; i < m->n_layer && good; i++) {
        const struct layer_memory *y = &m->memory[i];
        if (y->n_kv_head)
            good = (c->k[i] = stand_in(a, "cache_k", i, 3, (int64_t[]){y->head_dim_k, 1, y->n_kv_head})) &&
                   (c->v[i] = stand_in(a, "cache_v", i, 3, (int64_t[]){y->head_dim_v, 1, y->n_kv_head}));
        if (y->conv_rows && good)
            good = (c->conv[i] = stand_in(a, "conv_state", i, 3, (int64_t[]){y->conv_channels, y->conv_rows, 1})) != NULL;
        if (y->n_state_head && good)
            good = (c->delta[i] = stand_in(a, "delta_state", i, 4,
                                           (int64_t[]){y->state_dim_v, y->state_dim_k, y->n_state_head, 1})) != NULL;
    }
    return good;
}

/* A decode step of the whole model, to be looked at. */
static void graph_make(struct graph *g, struct arena *a, const struct cut *c, const struct model *m)
{
    const int64_t one = 1;
    graph_init(g, a);
    struct step_inputs in = {.n_tokens = 1, .n_outputs = 1, .k = c->k, .v = c->v, .conv = c->conv, .delta = c->delta};
    in.tokens = graph_input(g, "tokens", FORMAT_I32, 1, &one);
    in.positions = graph_input(g, "positions", FORMAT_I32, 1, &one);
    in.sequences = graph_input(g, "sequences", FORMAT_I32, 1, &one);
    in.cells = graph_input(g, "cells", FORMAT_I32, 1, &one);
    in.outputs = graph_input(g, "outputs", FORMAT_I32, 1, &one);
    in.map = graph_input(g, "kv_map", FORMAT_I32, 2, (int64_t[]){1, 1});
    in.slots = graph_input(g, "slots", FORMAT_I32, 2, (int64_t[]){2, 1});
    if (!g->error.code)
        m->arch->build(m, g, &in);
}

static int32_t part_of(const struct shard *s, int rank, const struct tensor *t, int32_t all)
{
    const struct split *split = t ? shard_split(s, rank, t) : NULL;
    return split ? (int32_t)split->count : all;
}

/* What each rank keeps of each layer. */
static const struct model *ranks_make(const struct cut *c, struct arena *a, const struct model *m)
{
    int n = shard_n_ranks(c->shard);
    struct model *ranks = arena_array(a, (size_t)n, sizeof *ranks);
    for (int r = 0; r < n && ranks; r++) {
        struct layer_memory *memory = arena_array(a, (size_t)m->n_layer, sizeof *memory);
        if (!memory)
            return NULL;
        for (int i = 0; i < m->n_layer; i++) {
            if (!shard_runs_layer(c->shard, r, i))
                continue;
            memory[i] = m->memory[i];
            memory[i].n_kv_head = part_of(c->shard, r, c->k[i], memory[i].n_kv_head);
            memory[i].conv_channels = part_of(c->shard, r, c->conv[i], memory[i].conv_channels);
            memory[i].n_state_head = part_of(c->shard, r, c->delta[i], memory[i].n_state_head);
        }
        ranks[r] = *m;
        ranks[r].memory = memory;
    }
    return ranks;
}

static int entry_make(struct entry *c, const struct model *m, const struct shard_params *p, struct hone_error *e)
{
    struct arena scratch = {0};
    struct graph g;
    double *shares = arena_array(&c->arena, (size_t)p->n_ranks, sizeof *shares);
    int rc = shares && stand_ins(&c->cut, &c->arena, m) ? 0 : err_set(e, HONE_ERESOURCE, "no memory to cut a model");
    if (rc)
        return rc;
    for (int r = 0; r < p->n_ranks; r++)
        shares[r] = share_of(p, r);
    c->model = m;
    c->params = *p;
    c->params.shares = shares;
    graph_make(&g, &scratch, &c->cut, m);
    rc = shard_create(&c->cut.shard, &g, &c->params, e);
    if (!rc && !(c->cut.ranks = ranks_make(&c->cut, &c->arena, m)))
        rc = err_set(e, HONE_ERESOURCE, "no memory to cut a model");
    arena_free(&scratch);
    return rc;
}

int cut_get(struct cut **out, const struct model *m, const struct shard_params *p, struct hone_error *e)
{
    struct entry *c;
    int rc = 0;
    *out = NULL;
    if (p->n_ranks < 2 || p->n_ranks > SHARD_MAX_RANKS)
        return err_set(e, HONE_EUSAGE, "a model over %d devices: 2 to %d are possible", p->n_ranks, SHARD_MAX_RANKS);
    pthread_mutex_lock(&lock);
    for (c = list; c && !same(c, m, p);)
        c = c->next;
    if (!c) {
        drop(m, false);
        c = calloc(1, sizeof *c);
        rc = c ? entry_make(c, m, p, e) : err_set(e, HONE_ERESOURCE, "no memory to cut a model");
        if (rc) {
            entry_free(c);
            c = NULL;
        } else {
            c->next = list;
            list = c;
        }
    }
    if (c) {
        c->users++;
        *out = &c->cut;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void cut_put(struct cut *cut)
{
    if (!cut)
        return;
    pthread_mutex_lock(&lock);
    ((struct entry *)cut)->users--; /* cut is its first member */
    pthread_mutex_unlock(&lock);
}

void cuts_forget(const struct model *m)
{
    pthread_mutex_lock(&lock);
    drop(m, true);
    pthread_mutex_unlock(&lock);
}
