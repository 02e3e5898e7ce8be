/* ranks.c: see ranks.h. Ranks of one process are groups of threads. The caller leads the first; a pool of leaders wakes the
 * others' leaders, and each leader runs its own pool, so that a rank of one thread costs no second meeting.
 *
 * A rank that fails, or is cancelled, ends its group (comm_abort), and the others come back from the collective that they wait
 * in. A group that ended once is not used again: the next step gets a new one. One loop over the nodes of all ranks, a barrier
 * a node, was the alternative; it would need no group and be no model of ranks in other processes or on devices.
 *
 * Ranks on devices (ranks_device.c) are led the same way; their collectives meet in kernels, through links that last as long
 * as the session, and whatever runs at the host meets in the group.
 *
 * Where each rank is a process (follow.h) there are no others here, and the group is the processes' own: it ends with them.
 *
 * Each rank keeps to a stretch of the machine's cores: left to the system, two threads that wait for each other by spinning may
 * come to share one. The stretches are as long as the machine allows and not as short as the ranks, so that a second program
 * beside this one does not meet it on the same few cores. The caller's thread is there for the length of a step alone: what it
 * starts between steps (another session's threads, say) must not be. */
#include "engine/ranks.h"

#include "engine/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "no memory for the ranks of a session";

/* ---- made and freed */

static int max_threads(const struct ranks_spec *spec)
{
    int most = 1;
    for (int i = 0; i < spec->n; i++)
        most = spec->threads[i] > most ? spec->threads[i] : most;
    return most;
}

static void group_free(struct ranks *r)
{
    if (r->processes)
        return;
    for (int i = 0; i < r->n_others; i++) {
        comm_free(r->others[i].comm);
        r->others[i].comm = NULL;
    }
    comm_free(r->comm);
    r->comm = NULL;
}

static int group_make(struct ranks *r, struct hone_error *e)
{
    struct comm *all[SHARD_MAX_RANKS];
    int rc = comm_local_create(all, 1 + r->n_others, &r->comm_params, e);
    if (rc)
        return rc;
    r->comm = all[0];
    for (int i = 0; i < r->n_others; i++)
        r->others[i].comm = all[1 + i];
    return 0;
}

static struct comm *comm_of(const struct ranks *r, int i)
{
    return i ? r->others[i - 1].comm : r->comm;
}

/* ---- on cores of their own */

static void cpus_deal(struct ranks *r)
{
    int n = 1 + r->n_others;
    const int *threads = r->spec.threads + r->first;
    cpu_set_t *cpus = calloc((size_t)n, sizeof *cpus);
    bool dealt = cpus && (r->processes ? follow_deal(threads[0], cpus) : cpu_deal(threads, n, cpus));
    if (dealt)
        r->cpus = cpus;
    else
        free(cpus);
}

struct pool *ranks_pool(const struct ranks *r, int i, int n_threads, int poll, struct hone_error *e)
{
    cpu_set_t before;
    bool there = r->cpus && cpu_enter(&r->cpus[i], &before);
    struct pool *p = pool_create(n_threads, poll, e);
    if (there)
        cpu_enter(&before, NULL);
    return p;
}

static void place_leader(void *arg, int ith, int nth)
{
    const struct ranks *r = arg;
    (void)nth;
    if (ith) /* the caller's thread comes and goes */
        cpu_enter(&r->cpus[ith], NULL);
}

static void test_group(void *arg, int ith, int nth)
{
    struct ranks *r = arg;
    (void)nth;
    r->codes[ith] = comm_self_test(comm_of(r, ith), &r->errors[ith]);
}

static int self_test(struct ranks *r, struct hone_error *e)
{
    int rc = 0;
    pool_run(r->leaders, test_group, r);
    for (int i = 0; i <= r->n_others && !rc; i++)
        if (r->codes[i])
            rc = err_set(e, r->codes[i], "%s", r->errors[i].message);
    return rc;
}

/* The others' threads, and a leader for each rank of this process. */
static int start_threads(struct ranks *r, int n_others, int poll, bool pin, struct hone_error *e)
{
    r->n_others = n_others;
    if (pin)
        cpus_deal(r);
    for (int i = 0; i < n_others; i++)
        if (!(r->others[i].pool = ranks_pool(r, 1 + i, r->spec.threads[r->first + 1 + i], poll, e)))
            return e->code;
    r->leaders = pool_create(1 + n_others, poll, e);
    if (!r->leaders)
        return e->code;
    if (r->cpus)
        pool_run(r->leaders, place_leader, r);
    return 0;
}

int ranks_create(struct ranks **out, const struct ranks_spec *spec, const struct model *m, int poll, struct places *own,
                 const struct gates *gates, struct hone_error *e)
{
    struct ranks *r = calloc(1, sizeof *r);
    int limit_ms = gates_comm_timeout_ms(gates);
    struct comm *world = follow_comm();
    struct shard_params p = {.mode = spec->mode, .n_ranks = spec->n, .shares = spec->shares, .gather_logits = world != NULL};
    *out = NULL;
    size_t n = (size_t)spec->n;
    bool room = r && (r->others = calloc(n, sizeof *r->others)) && (r->codes = calloc(n, sizeof *r->codes)) &&
                (r->errors = calloc(n, sizeof *r->errors));
    int rc = room ? 0 : err_set(e, HONE_ERESOURCE, no_memory);
    if (!rc) {
        r->spec = *spec;
        r->places = own;
        r->skips = gates_skip_all_reduce(gates);
        r->comm_params = (struct comm_params){.n_workers = max_threads(spec), .poll = poll, .limit_ms = limit_ms};
        r->processes = world != NULL;
        r->comm = world;
        r->first = world ? comm_rank(world) : 0;
        if (world && limit_ms)
            follow_limit(limit_ms);
        rc = cut_get(&r->cut, m, &p, e);
    }
    if (!rc)
        rc = start_threads(r, world ? 0 : spec->n - 1, poll, gates_comm_pin(gates), e);
    if (!rc && !world)
        rc = ranks_devices_open(r, m, gates, e);
    if (!rc && !world)
        rc = group_make(r, e);
    if (!rc && !world)
        rc = self_test(r, e);
    if (!rc && !world)
        rc = ranks_devices_test(r, e);
    if (rc)
        ranks_free(r);
    else
        *out = r;
    return rc;
}

void ranks_free(struct ranks *r)
{
    if (!r)
        return;
    group_free(r);
    pool_free(r->leaders);
    ranks_devices_close(r);
    for (int i = 0; i < r->n_others; i++) {
        pool_free(r->others[i].pool);
    }
    cut_put(r->cut);
    free(r->cpus);
    free(r->codes);
    free(r->errors);
    free(r->others);
    free(r);
}

const struct model *ranks_model(const struct ranks *r, int rank)
{
    return &r->cut->ranks[rank];
}

int ranks_memory(struct ranks *r, struct kv *kv, const struct states *states, struct hone_error *e)
{
    size_t promised = kv->host_bytes + states->host_bytes;
    int rc = 0;
    for (int i = 0; i < r->n_others && !rc; i++) {
        struct rank *k = &r->others[i];
        const struct model *m = ranks_model(r, r->first + 1 + i);
        const struct places *places = places_on_device(&k->places) ? &k->places : NULL;
        rc = states_create(&k->states, m, kv->n_seq, states->n_snapshots, places, e);
        if (!rc)
            rc = kv_create(&k->kv, m, kv->n_ctx, kv->n_seq, kv->format_k, kv->format_v, promised + k->states.host_bytes, places,
                           e);
        promised += k->kv.host_bytes + k->states.host_bytes;
        if (rc)
            err_prefix(e, "device %d", r->first + 1 + i);
    }
    for (int i = r->n_others; i-- > 0 && !rc;) { /* the session's map is all ranks' */
        r->others[i].kv.also = kv->also;
        kv->also = &r->others[i].kv;
    }
    return rc;
}

/* ---- planned */

enum { N_INPUTS = 7 };

static int pairs_of(const struct model *m, const struct step_inputs *whole, const struct step_inputs *local,
                    struct shard_pair *pairs)
{
    int n = 0;
    struct tensor *const from[N_INPUTS] = {whole->tokens, whole->positions, whole->sequences, whole->cells,
                                           whole->map,    whole->outputs,   whole->slots};
    struct tensor *const to[N_INPUTS] = {local->tokens, local->positions, local->sequences, local->cells,
                                         local->map,    local->outputs,   local->slots};
    for (int i = 0; i < N_INPUTS; i++)
        if (from[i])
            pairs[n++] = (struct shard_pair){from[i], to[i]};
    for (int i = 0; i < m->n_layer; i++) {
        if (whole->k[i] && local->k[i]) {
            pairs[n++] = (struct shard_pair){whole->k[i], local->k[i]};
            pairs[n++] = (struct shard_pair){whole->v[i], local->v[i]};
        }
        if (local->conv && whole->conv[i] && local->conv[i])
            pairs[n++] = (struct shard_pair){whole->conv[i], local->conv[i]};
        if (local->delta && whole->delta[i] && local->delta[i])
            pairs[n++] = (struct shard_pair){whole->delta[i], local->delta[i]};
    }
    return n;
}

/* An input of the same name and shape, in another graph. */
static struct tensor *same_input(struct graph *g, const struct tensor *t)
{
    struct tensor *copy = t ? graph_input(g, t->name, t->format, MAX_DIMS, t->ne) : NULL;
    if (copy) {
        copy->kind = t->kind;
        copy->data = t->kind == TENSOR_STATE ? t->data : NULL;
    }
    return copy;
}

static struct step_inputs same_inputs(struct graph *g, const struct step_inputs *in)
{
    struct step_inputs out = {.n_tokens = in->n_tokens, .n_outputs = in->n_outputs};
    out.tokens = same_input(g, in->tokens);
    out.positions = same_input(g, in->positions);
    out.sequences = same_input(g, in->sequences);
    out.cells = same_input(g, in->cells);
    out.map = same_input(g, in->map);
    out.outputs = same_input(g, in->outputs);
    out.slots = same_input(g, in->slots);
    return out;
}

int ranks_graphs(struct ranks *r, const struct model *m, struct graph *own, const struct step_inputs *in,
                 struct rank_step **others, struct hone_error *e)
{
    struct graph whole;
    struct arena *a = own->arena;
    struct shard_pair *pairs = arena_array(a, N_INPUTS + 4 * (size_t)m->n_layer, sizeof *pairs);
    struct rank_step *steps = arena_array(a, (size_t)r->n_others + 1, sizeof *steps);
    *others = steps;
    if (!pairs || !steps)
        return err_set(e, HONE_ERESOURCE, "no memory for a step's graphs");
    graph_init(&whole, a);
    struct step_inputs all = same_inputs(&whole, in);
    all.k = r->cut->k;
    all.v = r->cut->v;
    all.conv = r->cut->conv;
    all.delta = r->cut->delta;
    if (!whole.error.code)
        m->arch->build(m, &whole, &all);
    int rc = graph_error(&whole, e);
    if (!rc && shard_graph(r->cut->shard, r->first, &whole, pairs, pairs_of(m, &all, in, pairs), own))
        rc = graph_error(own, e);
    for (int i = 0; i < r->n_others && !rc; i++) {
        struct rank_step *s = &steps[i];
        struct rank *k = &r->others[i];
        graph_init(&s->graph, a);
        s->in = same_inputs(&s->graph, in);
        if (s->in.map)
            s->in.map->twin = k->kv.n_twins ? k->kv.map_twins : NULL;
        s->in.k = k->kv.k;
        s->in.v = k->kv.v;
        s->in.conv = in->conv ? k->states.conv : NULL;
        s->in.delta = in->delta ? k->states.delta : NULL;
        if (s->graph.error.code ||
            shard_graph(r->cut->shard, r->first + 1 + i, &whole, pairs, pairs_of(m, &all, &s->in, pairs), &s->graph))
            rc = graph_error(&s->graph, e);
    }
    return rc;
}

int ranks_plan(struct ranks *r, const struct plan *own, struct rank_step *others, const struct plan_options *options,
               struct hone_error *e)
{
    int rc = options->dry ? 0 : plan_settle(own, options->pool, e);
    for (int i = 0; i < r->n_others && !rc; i++) {
        struct rank *k = &r->others[i];
        struct plan_options o = *options;
        o.pool = k->pool;
        o.placement = &k->places.placement;
        rc = plan_create(&others[i].plan, &others[i].graph, &o, e);
        if (!rc)
            rc = room_reserve(&k->room, &k->places, others[i].plan, pool_size(k->pool), e);
        if (!rc && !o.dry)
            rc = plan_settle(others[i].plan, k->pool, e);
        if (rc)
            err_prefix(e, "device %d", r->first + 1 + i);
    }
    return rc;
}

void ranks_release(const struct ranks *r, struct rank_step *others)
{
    for (int i = 0; i < r->n_others; i++)
        plan_release(others[i].plan);
}

bool ranks_hold(const struct ranks *r, const struct rank_step *others)
{
    bool hold = true;
    for (int i = 0; i < r->n_others; i++)
        hold &= room_holds(&r->others[i].room, &r->others[i].places, others[i].plan);
    return hold;
}

void ranks_bind(const struct ranks *r, struct rank_step *others)
{
    for (int i = 0; i < r->n_others; i++)
        room_bind(&r->others[i].room, &r->others[i].places, others[i].plan);
}

bool ranks_current(const struct ranks *r, const struct rank_step *others)
{
    bool current = true;
    for (int i = 0; i < r->n_others; i++)
        current &= plan_current(others[i].plan);
    return current;
}

bool ranks_stale(const struct ranks *r, struct rank_step *others)
{
    bool stale = false;
    for (int i = 0; i < r->n_others; i++)
        stale |= plan_stale(others[i].plan);
    return stale;
}

/* ---- run */

struct running {
    struct ranks *r;
    const struct plan *own;
    const struct run *run;
    const struct rank_step *others;
};

static void run_rank(void *arg, int ith, int nth)
{
    struct running *j = arg;
    struct comm *c = comm_of(j->r, ith);
    struct run run = {0};
    (void)nth;
    if (ith) {
        const struct rank *k = &j->r->others[ith - 1];
        run.pool = k->pool;
        run.scratch = k->room.scratch;
        run.scratch_stride = k->room.scratch_stride;
        run.observer = k->observer;
    } else {
        run = *j->run;
    }
    run.comm = j->r->skips ? NULL : c;
    run.link = j->r->skips ? NULL : rank_link(j->r, ith);
    struct hone_error *e = &j->r->errors[ith];
    *e = (struct hone_error){0};
    int rc = plan_run(ith ? j->others[ith - 1].plan : j->own, &run, e);
    j->r->codes[ith] = rc;
    if (rc && !comm_error(c)->code) /* the first to fail; the others fail where they wait for it */
        comm_abort(c, rc, e->message);
    if (rc && run.link)
        rank_places(j->r, ith)->placement.list[1].backend->api->links->abort(run.link);
}

/* After a failure, once all ranks are back: the group ends, and links are as new. */
static void start_over(struct ranks *r)
{
    void *links[SHARD_MAX_RANKS];
    struct hone_error ignored = {0};
    group_free(r);
    for (int i = 0; i <= r->n_others && r->link; i++)
        links[i] = rank_link(r, i);
    if (r->link)
        r->places->placement.list[1].backend->api->links->reset(links, 1 + r->n_others, &ignored);
}

int ranks_run(struct ranks *r, const struct plan *own, const struct run *run, const struct rank_step *others,
              struct hone_error *e)
{
    struct running j = {r, own, run, others};
    int rc = r->comm ? 0 : group_make(r, e);
    if (rc)
        return rc;
    if (r->processes && comm_error(r->comm)->code)
        return err_set(e, comm_error(r->comm)->code, "%s", comm_error(r->comm)->message);
    rc = ranks_prepare(r, own, run, others, e);
    if (rc)
        return rc;
    cpu_set_t before;
    bool there = r->cpus && cpu_enter(&r->cpus[0], &before);
    pool_run(r->leaders, run_rank, &j);
    if (there)
        cpu_enter(&before, NULL);
    for (int i = 0; i <= r->n_others && !rc; i++)
        rc = r->codes[i];
    if (rc) {
        struct hone_error why = *comm_error(r->comm);
        start_over(r);
        rc = why.code ? why.code : rc;
        err_set(e, rc, "%s", rc == HONE_ECANCELED ? "cancelled" : why.message);
    }
    return rc;
}

void ranks_set_timed(const struct ranks *r, bool timed)
{
    for (int i = 0; i <= r->n_others; i++)
        if (comm_of(r, i))
            comm_set_timed(comm_of(r, i), timed);
}

static void logits_part(const struct split *part, const struct tensor *from, int64_t n, int64_t n_vocab, float *to)
{
    for (int64_t t = 0; t < n; t++) {
        const float *row = tensor_row(from, t, 0, 0);
        for (int i = 0; i < part->n_pieces; i++) {
            memcpy(to + t * n_vocab + part->pieces[i].first, row, (size_t)part->pieces[i].count * sizeof *to);
            row += part->pieces[i].count;
        }
    }
}

void ranks_logits(const struct ranks *r, const struct graph *own, const struct rank_step *others, int64_t n, int64_t n_vocab,
                  float *to)
{
    const struct piece all = {0, n_vocab};
    const struct split whole = {0, 1, &all, n_vocab};
    for (int i = 0; i <= r->n_others; i++) {
        const struct graph *g = i ? &others[i - 1].graph : own;
        const struct split *part = shard_logits(r->cut->shard, r->first + i);
        if (part || !i)
            logits_part(part ? part : &whole, g->logits, n, n_vocab, to);
    }
}
