/* session_plans.c: the plans that a session has made so far, and the memory that they share.
 *
 * A plan is made for each number of tokens and outputs that comes up and kept (a decode step always meets the same one, so it
 * plans and allocates nothing). The exact count is the key: rounding it up to a bucket, with padded rows, saves a few plans of
 * 0.2 ms and pays for them with work at every prompt's last chunk. All plans share one block for values, which grows to the
 * largest. */
#include "engine/session.h"

#include "backends/backend.h"
#include "engine/follow.h"
#include "graph/fuse.h"
#include "graph/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void planned_free(struct planned *p)
{
    plan_release(p->plan);
    if (p->plan && p->ranks)
        ranks_release(p->ranks, p->others);
    arena_free(&p->arena);
    *p = (struct planned){0};
}

/* Room for a plan that is about to be kept. Logits that were left where the last step wrote them are copied out before it moves. */
static int session_reserve(struct hone_session *s, const struct plan *p, struct hone_error *e)
{
    if (s->view && p->value_bytes > s->room.value_bytes) {
        memcpy(s->logits, s->view, s->n_logits * (size_t)s->model->n_vocab * sizeof *s->logits);
        s->view = NULL;
    }
    return room_reserve(&s->room, &s->places, p, s->params.n_threads, e);
}

/* After room was made, or could not be made, for one plan more: those that are kept get the addresses of now; those that have lost
 * their place go. */
static void plans_follow(struct hone_session *s)
{
    for (int i = 0; i < MAX_PLANS; i++) {
        struct planned *p = &s->plans[i];
        if (!p->plan)
            continue;
        if (!room_holds(&s->room, &s->places, p->plan) || (s->ranks && !ranks_hold(s->ranks, p->others))) {
            planned_free(p);
            continue;
        }
        room_bind(&s->room, &s->places, p->plan);
        if (s->ranks)
            ranks_bind(s->ranks, p->others);
    }
}

static int plan_make(struct hone_session *s, struct planned *p, int32_t n_tokens, int32_t n_outputs, struct hone_error *e)
{
    struct graph *g = &p->graph;
    struct step_inputs *in = &p->in;
    int64_t n = n_tokens, n_out = n_outputs;
    graph_init(g, &p->arena);
    *in = (struct step_inputs){.n_tokens = n_tokens, .n_outputs = n_outputs, .k = s->kv.k, .v = s->kv.v};
    in->tokens = graph_input(g, "tokens", FORMAT_I32, 1, &n);
    in->positions = graph_input(g, "positions", FORMAT_I32, 1, &n);
    in->sequences = graph_input(g, "sequences", FORMAT_I32, 1, &n);
    in->cells = graph_input(g, "cells", FORMAT_I32, 1, &n);
    in->outputs = graph_input(g, "outputs", FORMAT_I32, 1, &n_out);
    in->map = graph_input(g, "kv_map", FORMAT_I32, 2, (int64_t[]){s->kv.n_ctx, s->kv.n_seq});
    if (in->map) { /* the map is large and lives across steps: the step reads it where it is */
        in->map->kind = TENSOR_STATE;
        in->map->data = s->kv.map;
        in->map->twin = s->kv.n_twins ? s->kv.map_twins : NULL;
    }
    if (s->states.n_slots) {
        in->slots = graph_input(g, "slots", FORMAT_I32, 2, (int64_t[]){2, s->states.n_seq});
        in->conv = s->states.conv;
        in->delta = s->states.delta;
    }
    int rc = 0;
    if (!g->error.code && s->ranks)
        rc = ranks_graphs(s->ranks, s->model, g, in, &p->others, e);
    else if (!g->error.code)
        s->model->arch->build(s->model, g, in);
    struct plan *plan;
    struct plan_options options = {.gates = &s->gates,
                                   .strict = s->params.strict,
                                   .fuse_off = p->fuse_off,
                                   .dry = s->dry,
                                   .pool = s->pool,
                                   .placement = &s->places.placement};
    if (!rc)
        rc = plan_create(&plan, g, &options, e);
    if (!rc)
        rc = session_reserve(s, plan, e);
    if (!rc && s->ranks)
        rc = ranks_plan(s->ranks, plan, p->others, &options, e);
    plans_follow(s); /* whether or not all came to an end: ranks before one that failed have moved */
    if (rc)
        return rc;
    p->plan = plan;
    p->ranks = s->ranks;
    if (s->ranks && s->ranks->processes)
        p->meetings = plan_collectives_hash(plan);
    room_bind(&s->room, &s->places, plan);
    if (s->ranks)
        ranks_bind(s->ranks, p->others);
    return 0;
}

/* Of all ranks: whether no layout has changed since; whether one did that matters. */
static bool planned_current(const struct hone_session *s, const struct planned *p)
{
    return plan_current(p->plan) && (!s->ranks || ranks_current(s->ranks, p->others));
}

static bool planned_stale(const struct hone_session *s, struct planned *p)
{
    bool stale = plan_stale(p->plan);
    return (s->ranks && ranks_stale(s->ranks, p->others)) || stale;
}

/* The slot with a plan for this step, or else the one longest unused. */
static struct planned *slot_find(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, uint32_t fuse_off)
{
    struct planned *oldest = &s->plans[0];
    for (int i = 0; i < MAX_PLANS; i++) {
        struct planned *p = &s->plans[i];
        if (p->plan && p->in.n_tokens == n_tokens && p->in.n_outputs == n_outputs && p->fuse_off == fuse_off)
            return p;
        if (p->used < oldest->used)
            oldest = p;
    }
    planned_free(oldest);
    oldest->fuse_off = fuse_off;
    return oldest;
}

/* The plan for this many tokens and outputs: kept, or made. One that another session's plan made stale is made anew. */
static int planned_get(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, uint32_t fuse_off, struct planned **out,
                       struct hone_error *e)
{
    struct planned *p = slot_find(s, n_tokens, n_outputs, fuse_off);
    int rc = 0;
    if (!p->plan || !planned_current(s, p)) {
        weights_plan_begin();
        if (p->plan && planned_stale(s, p)) {
            planned_free(p);
            p->fuse_off = fuse_off;
        }
        if (!p->plan)
            rc = plan_make(s, p, n_tokens, n_outputs, e);
        weights_plan_end();
    }
    if (rc) {
        planned_free(p);
        return rc;
    }
    p->used = ++s->clock;
    *out = p;
    return 0;
}

int session_plan(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, const struct plan **out, struct hone_error *e)
{
    struct planned *p;
    int rc = planned_get(s, n_tokens, n_outputs, 0, &p, e);
    if (!rc)
        *out = p->plan;
    return rc;
}

/* The first fused step of any rank here that declines; -1: none. *p: whose plan it is. */
static int step_declines(const struct hone_session *s, const struct planned *planned, const struct plan **p, struct reason *why)
{
    int step = plan_declines(*p = planned->plan, &s->gates, why);
    for (int i = 0; step < 0 && s->ranks && i < s->ranks->n_others; i++)
        step = plan_declines(*p = planned->others[i].plan, &s->gates, why);
    return step;
}

/* What the ranks here leave out of the step, as a bit; counted, or an error under strict. */
static int ask_kernels(struct hone_session *s, const struct planned *planned, uint32_t *off, struct hone_error *e)
{
    struct reason why;
    const struct plan *p;
    int step = step_declines(s, planned, &p, &why);
    if (step < 0)
        return 0;
    int f = p->steps[step].node->fusion;
    if (s->params.strict)
        return err_set(e, HONE_ECHECK, "node %s: the fusion %s declined: %s", p->steps[step].node->out->name,
                       fusion_get((enum fusion_id)f)->name, why.text);
    s->declines[f].count++;
    s->declines[f].reason = why;
    *off = 1u << f;
    return 0;
}

/* Over processes: whether all can run the step, and what any of them leaves out, which counts here too. */
static int ask_processes(struct hone_session *s, const struct planned *planned, int rc, uint32_t *off, struct hone_error *e)
{
    uint32_t own = *off;
    struct hone_error mine = *e;
    if (!s->ranks || !s->ranks->processes)
        return rc;
    rc = follow_ready(rc, &mine, off, rc ? 0 : planned->meetings, e);
    for (int f = 0; f < N_FUSIONS && !rc; f++)
        if (*off & ~own & 1u << f) {
            s->declines[f].count++;
            snprintf(s->declines[f].reason.text, sizeof s->declines[f].reason.text, "another rank declined");
        }
    return rc;
}

/* A plan that is current, with the layouts of weights held. */
static int planned_hold(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, uint32_t off, struct planned **out,
                        struct hone_error *e)
{
    for (;;) {
        int rc = planned_get(s, n_tokens, n_outputs, off, out, e);
        if (rc)
            return rc;
        weights_hold();
        if (planned_current(s, *out))
            return 0;
        weights_release(); /* another session changed a layout in between */
    }
}

int planned_take(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, struct planned **out, struct hone_error *e)
{
    uint32_t off = 0;
    for (;;) {
        struct hone_error own = {0};
        uint32_t more = 0;
        int rc = planned_hold(s, n_tokens, n_outputs, off, out, &own);
        bool held = !rc;
        if (!rc)
            rc = ask_kernels(s, *out, &more, &own);
        rc = ask_processes(s, held ? *out : NULL, rc, &more, &own);
        if (!rc && !more)
            return 0;
        if (held)
            weights_release();
        if (rc)
            return err_set(e, own.code, "%s", own.message);
        off |= more;
    }
}
