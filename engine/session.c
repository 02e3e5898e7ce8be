/* session.c: one user's run of a model: KV cells, a pool of threads, and the plans made so far.
 *
 * A plan is made for each number of tokens and outputs that comes up and kept (a decode step always meets the same one, so it plans and
 * allocates nothing). The exact count is the key: rounding it up to a bucket, with padded rows, saves a few plans of 0.2 ms
 * and pays for them with work at every prompt's last chunk. All plans share one block for values, which grows to the largest. */
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/ranks.h"
#include "engine/session_file.h"
#include "engine/settings.h"

#include "backends/backend.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mmap.h"
#include "graph/fuse.h"
#include "graph/weights.h"
#include "model/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLANS = 8, DEFAULT_CTX_CAP = 4096 };

struct planned {
    struct arena arena;
    struct graph graph;
    struct step_inputs in;
    struct plan *plan; /* NULL: the slot is free */
    struct rank_step *others; /* of the other ranks in this process */
    uint32_t fuse_off; /* fusions that declined the step it was made for */
    uint64_t used;     /* when last, in session->clock's time */
};

struct hone_session {
    const struct model *model;
    struct hone_session_params params;
    struct gates gates;
    struct settings settings; /* of the recipe */
    struct pool *pool;
    struct ranks *ranks; /* NULL: the session is alone */
    int followed;        /* its number where other processes follow it; 0: none does */
    struct places places;
    struct kv kv;
    struct states states;
    struct planned plans[MAX_PLANS];
    uint64_t clock;
    int64_t graphs; /* steps run */
    void *values;
    size_t value_bytes;
    void *scratch;
    size_t scratch_stride;
    float *logits;
    const float *view; /* where the logits of the last eval lie in the block of values instead, which a device wrote; or NULL */
    size_t n_logits, cap_logits; /* rows */
    const struct observer *observer;
    bool dry;
    struct decline declines[N_FUSIONS];
    double spin; /* debug.spin: how much longer a step is made */
    atomic_int cancel;
    atomic_int steps_done;
};

struct hone_session_params hone_session_defaults(void)
{
    return (struct hone_session_params){.size = sizeof(struct hone_session_params), .n_seq = 1, .n_batch = 512, .poll = 50,
                                         .n_snapshots = 4, .n_gpu_layers = -1};
}

/* What is asked for, or f16; f32 when everything runs on the reference. */
static int format_of(const char *name, bool reference, const char *flag, enum format_id *out, struct hone_error *e)
{
    *out = reference ? FORMAT_F32 : FORMAT_F16;
    return name ? kv_format(name, flag, out, e) : 0;
}

static int check_params(const struct hone_session_params *p, struct hone_error *e)
{
    if (p->size != sizeof *p)
        return err_set(e, HONE_EUSAGE, "session parameters of %u bytes; this library has %zu: start from hone_session_defaults()",
                       p->size, sizeof *p);
    if (p->n_ctx < 0)
        return err_set(e, HONE_EUSAGE, "a context of %d", p->n_ctx);
    if (p->n_seq < 1 || p->n_seq > 64)
        return err_set(e, HONE_EUSAGE, "%d sequences; 1 to 64 are possible", p->n_seq);
    if (p->n_batch < 1 || p->n_batch > 65536)
        return err_set(e, HONE_EUSAGE, "a batch of %d; 1 to 65536 are possible", p->n_batch);
    if (p->n_threads < 0 || p->n_threads > 1024)
        return err_set(e, HONE_EUSAGE, "%d threads; 1 to 1024 are possible, 0 is one a core", p->n_threads);
    if (p->n_gpu_layers < -1)
        return err_set(e, HONE_EUSAGE, "%d layers on devices (-ngl); -1 is all of them", p->n_gpu_layers);
    if (p->n_snapshots < 1 || p->n_snapshots > STATES_MAX_SNAPSHOTS)
        return err_set(e, HONE_EUSAGE, "%d snapshots; 1 to %d are possible", p->n_snapshots, STATES_MAX_SNAPSHOTS);
    return 0;
}

enum { RECIPE_LIMIT = 1 << 20 };

static int recipe_read(struct gates *g, struct settings *settings, const char *path, struct hone_error *e)
{
    struct mapping m;
    int rc = mapping_open(&m, path, e);
    if (rc)
        return rc;
    char *text = m.size <= RECIPE_LIMIT ? malloc(m.size + 1) : NULL;
    if (!text) {
        rc = err_set(e, HONE_EINPUT, "%s: %zu bytes is no recipe", path, m.size);
    } else {
        if (m.size)
            memcpy(text, m.data, m.size);
        text[m.size] = 0;
        if (strlen(text) != m.size)
            rc = err_set(e, HONE_EINPUT, "%s: a NUL at offset %zu", path, strlen(text));
        else if (settings_take(settings, text, path, e))
            rc = HONE_EINPUT;
        else if (gates_parse(g, text, path, e))
            rc = e->code = HONE_EINPUT;
    }
    free(text);
    mapping_close(&m);
    return rc;
}

/* All gates, as text: malloc'd; NULL: no memory. */
static char *gates_text(const struct gates *g)
{
    size_t n = 1;
    for (int i = 0; i < g->n; i++)
        n += strlen(g->list[i].text) + 1;
    char *text = calloc(1, n);
    for (int i = 0; i < g->n && text; i++)
        strcat(strcat(text, g->list[i].text), "\n");
    return text;
}

/* The other ranks, where there are any; n_threads becomes the session's own share. `asked`: what it was before the default. */
static int session_ranks_open(struct hone_session *s, int asked, struct hone_error *e)
{
    struct hone_session_params *p = &s->params, told = *p;
    struct ranks_spec spec;
    int rc = ranks_spec_read(&spec, p, e);
    if (rc || spec.n < 2)
        return rc;
    char *gates = gates_text(&s->gates);
    told.n_threads = asked;
    rc = gates ? follow_create(s->model->gguf->path, &told, gates, &s->followed, e) : err_set(e, HONE_ERESOURCE, "no memory for a session");
    free(gates);
    if (!rc)
        rc = ranks_create(&s->ranks, &spec, s->model, p->poll, gates_comm_timeout_ms(&s->gates), e);
    if (!rc) {
        p->n_threads = spec.threads[s->ranks->first];
        s->ranks->skips = gates_skip_all_reduce(&s->gates);
    }
    return rc;
}

/* Over processes: whether all could, and have the same. */
static int session_agree(struct hone_session *s, int rc, const struct hone_error *own, struct hone_error *e)
{
    static const char *const what[] = {"the build of hone", "the processors' features (--mask makes them alike)", "the model's file", "the split"};
    enum { N = sizeof what / sizeof *what };
    uint64_t facts[N] = {0};
    struct comm *world = follow_comm();
    if (!world || (comm_rank(world) == 0 && !s->followed))
        return rc ? err_set(e, own->code, "%s", own->message) : 0;
    if (!rc && s->ranks) {
        facts[0] = hash64(hone_build(), strlen(hone_build()));
        facts[1] = cpu_features();
        facts[2] = session_model_id(s->model);
        facts[3] = shard_hash(s->ranks->cut->shard);
    }
    return follow_agree(rc, own, facts, what, N, e);
}

/* The plug-ins that the recipe was made with must be here: under another one's kernel of the same name it would be another recipe. */
static int check_plugins(const struct settings *s, const char *recipe, struct hone_error *e)
{
    for (int i = 0; i < s->n_plugins; i++)
        if (!backend_has_origin(s->plugins[i]))
            return err_set(e, HONE_EINPUT, "%s: it wants the plug-in with the SHA-256 %.16s..., which is not loaded (--plugin FILE)",
                           recipe, s->plugins[i]);
    return 0;
}

/* Which devices take layers. Ranks are groups of threads or processes, and have the model to themselves. */
static int session_places(struct hone_session *s, struct hone_error *e)
{
    const struct hone_session_params *p = &s->params;
    bool ranks = follow_comm() || (p->split_mode && !strcmp(p->split_mode, "tensor"));
    struct places_options o = {.devices = p->devices, .n_gpu_layers = ranks ? 0 : p->n_gpu_layers, .tensor_split = p->tensor_split,
                               .gates = &s->gates, .all_reference = gates_all_reference(&s->gates)};
    return places_open(&s->places, s->model, &o, e);
}

/* Cells and states, where their layers are. */
static int session_memory(struct hone_session *s, enum format_id k, enum format_id v, struct hone_error *e)
{
    const struct hone_session_params *p = &s->params;
    const struct model *mine = s->ranks ? ranks_model(s->ranks, s->ranks->first) : s->model;
    const struct places *places = s->ranks ? NULL : &s->places;
    size_t bytes[MAX_PLACES], more[MAX_PLACES];
    int rc = 0;
    if (s->places.placement.n > 1) {
        kv_bytes_at(mine, k, v, (int64_t)p->n_ctx * p->n_seq, places, bytes);
        states_bytes_at(mine, p->n_seq, p->n_snapshots, places, more);
        for (int i = 0; i < MAX_PLACES; i++)
            bytes[i] += more[i];
        rc = places_fit(&s->places, s->model, bytes, e);
    }
    if (!rc)
        rc = states_create(&s->states, mine, p->n_seq, p->n_snapshots, places, e);
    if (!rc)
        rc = kv_create(&s->kv, mine, p->n_ctx, p->n_seq, k, v, s->states.host_bytes, places, e);
    if (!rc && s->ranks)
        rc = ranks_memory(s->ranks, &s->kv, &s->states, e);
    return rc;
}

static int session_open(struct hone_session *s, struct hone_error *e)
{
    struct hone_session_params *p = &s->params;
    const char *environment = getenv("HONE_SET");
    int rc = p->recipe ? recipe_read(&s->gates, &s->settings, p->recipe, e) : 0;
    if (!rc)
        rc = check_plugins(&s->settings, p->recipe, e);
    if (!p->type_k && s->settings.type_k[0])
        p->type_k = s->settings.type_k;
    if (!p->type_v && s->settings.type_v[0])
        p->type_v = s->settings.type_v;
    if (!p->n_threads)
        p->n_threads = s->settings.n_threads;
    if (!rc && environment)
        rc = gates_parse(&s->gates, environment, "HONE_SET", e);
    if (!rc && p->gates)
        rc = gates_parse(&s->gates, p->gates, "--set", e);
    enum format_id k = FORMAT_F16, v = FORMAT_F16;
    if (!rc)
        rc = format_of(p->type_k, gates_all_reference(&s->gates), "-ctk", &k, e);
    if (!rc)
        rc = format_of(p->type_v, gates_all_reference(&s->gates), "-ctv", &v, e);
    if (rc)
        return rc;
    s->spin = gates_spin(&s->gates);
    if (s->spin > 0)
        log_line(LOG_WARN, "debug.spin makes every step %g %% longer: a diagnostic, no speed is a result", 100 * s->spin);
    if (gates_skip_all_reduce(&s->gates))
        log_line(LOG_WARN, "debug.skip_all_reduce leaves the collectives out: a diagnostic, the output is wrong and no speed is a result");
    if (!p->n_ctx)
        p->n_ctx = s->model->n_ctx_train < DEFAULT_CTX_CAP ? s->model->n_ctx_train : DEFAULT_CTX_CAP;
    int asked = p->n_threads;
    if (!p->n_threads)
        p->n_threads = cpu_cores();
    int threads = p->n_threads;
    rc = session_places(s, e);
    if (!rc && s->places.placement.n < 2)
        rc = session_ranks_open(s, asked, e);
    if (rc)
        return rc;
    if (threads > cpu_processors()) /* every node ends where all threads meet, and only so many run at a time */
        log_line(LOG_WARN, "%d threads on %d processors are slower than one each", threads, cpu_processors());
    if (p->n_ctx > s->model->n_ctx_train)
        log_line(LOG_WARN, "a context of %d is longer than the %d that the model was trained on", p->n_ctx, s->model->n_ctx_train);
    rc = session_memory(s, k, v, e);
    if (rc)
        return rc;
    s->pool = pool_create(p->n_threads, p->poll, e);
    return s->pool ? 0 : e->code;
}

int hone_session_create(struct hone_session **out, const struct hone_model *m, const struct hone_session_params *p,
                        struct hone_error *e)
{
    struct hone_error own = {0};
    struct hone_session *s = NULL;
    struct hone_session_params defaults = hone_session_defaults();
    p = p ? p : &defaults;
    int rc = check_params(p, &own);
    if (!rc) {
        s = calloc(1, sizeof *s);
        rc = s ? 0 : err_set(&own, HONE_ERESOURCE, "no memory for a session");
    }
    if (!rc) {
        s->model = m->model;
        s->params = *p;
        struct hone_error opening = {0};
        rc = session_open(s, &opening);
        rc = session_agree(s, rc, &opening, &own);
    }
    if (rc) {
        hone_session_free(s);
        s = NULL;
    }
    *out = s;
    if (e)
        *e = own;
    return rc;
}

static void planned_free(struct planned *p)
{
    plan_release(p->plan);
    arena_free(&p->arena);
    *p = (struct planned){0};
}

void hone_session_free(struct hone_session *s)
{
    if (!s)
        return;
    for (int i = 0; i < MAX_PLANS; i++)
        planned_free(&s->plans[i]);
    follow_free(s->followed);
    ranks_free(s->ranks);
    pool_free(s->pool);
    kv_free(&s->kv);
    states_free(&s->states);
    gates_free(&s->gates);
    if (s->values != s->places.host_values)
        pages_free(s->values, s->value_bytes);
    places_close(&s->places);
    free(s->scratch);
    free(s->logits);
    free(s);
}

int32_t hone_session_n_ctx(const struct hone_session *s)
{
    return s->kv.n_ctx;
}

/* The blocks of devices for a plan's values; a larger one means new addresses for all plans. */
static int reserve_places(struct hone_session *s, const struct plan *p, struct hone_error *e)
{
    for (int i = 1; i < s->places.placement.n; i++) {
        const struct place *at = &s->places.placement.list[i];
        struct buffer *b = &s->places.values[i];
        if (!p->placement || p->places[i].bytes <= b->bytes)
            continue;
        at->backend->api->free(at->device, b->data); /* the old one first: a device's memory may be just enough for one */
        b->bytes = 0;
        int rc = at->backend->api->alloc(at->device, p->places[i].bytes, &b->data, e);
        for (int k = 0; k < MAX_PLANS; k++)
            if (s->plans[k].plan && s->plans[k].plan->placement)
                plan_bind_place(s->plans[k].plan, i, b->data);
        if (rc) {
            for (int k = 0; k < MAX_PLANS; k++) /* they have lost their memory */
                if (s->plans[k].plan)
                    planned_free(&s->plans[k]);
            return err_prefix(e, "a step's values");
        }
        b->bytes = p->places[i].bytes;
    }
    return 0;
}

/* The host's block, in memory that devices copy fast where there are any. */
static void *values_alloc(struct hone_session *s, size_t bytes, struct hone_error *e)
{
    void *block = NULL;
    if (s->places.placement.n < 2)
        block = pages_alloc(bytes);
    else if (!s->places.placement.list[1].backend->api->host_alloc(bytes, &block, e))
        memset(block, 0, bytes);
    if (!block)
        err_set(e, HONE_ERESOURCE, "no memory for a step's values: %.1f MiB", (double)bytes / 0x1p20);
    return block;
}

/* Room for a plan's values and scratch; a larger block means new addresses for all plans. */
static int session_reserve(struct hone_session *s, const struct plan *p, struct hone_error *e)
{
    int rc = reserve_places(s, p, e);
    if (rc)
        return rc;
    if (p->value_bytes > s->value_bytes) {
        void *block = values_alloc(s, p->value_bytes, e);
        if (!block)
            return HONE_ERESOURCE;
        if (s->view)
            memcpy(s->logits, s->view, s->n_logits * (size_t)s->model->n_vocab * sizeof *s->logits);
        s->view = NULL;
        if (s->places.placement.n < 2) {
            pages_free(s->values, s->value_bytes);
        } else {
            s->places.placement.list[1].backend->api->host_free(s->places.host_values);
            s->places.host_values = block;
        }
        s->values = block;
        s->value_bytes = p->value_bytes;
        for (int i = 0; i < MAX_PLANS; i++)
            if (s->plans[i].plan)
                plan_bind(s->plans[i].plan, block);
    }
    size_t stride = (p->scratch_bytes + 63) / 64 * 64;
    if (stride > s->scratch_stride || !s->scratch) {
        void *scratch = aligned_alloc(64, (stride + 64) * (size_t)s->params.n_threads);
        if (!scratch)
            return err_set(e, HONE_ERESOURCE, "no memory for scratch: %.1f MiB a thread", (double)stride / 0x1p20);
        free(s->scratch);
        s->scratch = scratch;
        s->scratch_stride = stride;
    }
    return 0;
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
    struct plan_options options = {.gates = &s->gates, .strict = s->params.strict, .fuse_off = p->fuse_off, .dry = s->dry,
                                   .pool = s->pool, .placement = &s->places.placement};
    if (!rc)
        rc = plan_create(&plan, g, &options, e);
    if (!rc)
        rc = session_reserve(s, plan, e);
    if (!rc && s->ranks)
        rc = ranks_plan(s->ranks, p->others, &options, e);
    if (rc)
        return rc;
    p->plan = plan;
    plan_bind(plan, s->values);
    for (int i = 1; plan->placement && i < plan->placement->n; i++)
        plan_bind_place(plan, i, s->places.values[i].data);
    for (int i = 0; i < MAX_PLANS && s->ranks; i++)
        if (s->plans[i].plan)
            ranks_bind(s->ranks, s->plans[i].others);
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

/* The first fused step of any rank that declines; -1: none. *p: whose plan it is. */
static int step_declines(const struct hone_session *s, const struct planned *planned, const struct plan **p, struct reason *why)
{
    int step = plan_declines(*p = planned->plan, &s->gates, why);
    for (int i = 0; step < 0 && s->ranks && i < s->ranks->n_others; i++)
        step = plan_declines(*p = planned->others[i].plan, &s->gates, why);
    return step;
}

/* The plan that will run the step: where a fused kernel declines, one without that fusion, on all ranks; counted, or an error under
 * strict. */
static int planned_ready(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, struct planned **out, struct hone_error *e)
{
    uint32_t off = 0;
    for (;;) {
        int rc = planned_get(s, n_tokens, n_outputs, off, out, e);
        if (rc)
            return rc;
        struct reason why;
        const struct plan *p;
        int step = step_declines(s, *out, &p, &why);
        if (step < 0)
            return 0;
        int f = p->steps[step].node->fusion;
        if (s->params.strict)
            return err_set(e, HONE_ECHECK, "node %s: the fusion %s declined: %s", p->steps[step].node->out->name,
                           fusion_get((enum fusion_id)f)->name, why.text);
        s->declines[f].count++;
        s->declines[f].reason = why;
        off |= 1u << f;
    }
}

const struct decline *session_declines(const struct hone_session *s)
{
    return s->declines;
}

void session_set_dry(struct hone_session *s)
{
    s->dry = true;
}

void session_observe(struct hone_session *s, const struct observer *o)
{
    s->observer = o;
}

double session_spin(const struct hone_session *s)
{
    return s->spin;
}

int64_t session_graphs(const struct hone_session *s)
{
    return s->graphs;
}

void session_set_timed(struct hone_session *s, bool timed)
{
    if (s->ranks)
        ranks_set_timed(s->ranks, timed);
}

bool session_skips_all_reduce(const struct hone_session *s)
{
    return gates_skip_all_reduce(&s->gates);
}

int session_ranks(const struct hone_session *s)
{
    return s->ranks ? s->ranks->spec.n : 1;
}

const struct shard *session_shard(const struct hone_session *s)
{
    return s->ranks ? s->ranks->cut->shard : NULL;
}

int session_rank(const struct hone_session *s)
{
    return s->ranks ? s->ranks->first : 0;
}

const struct comm *session_comm(const struct hone_session *s)
{
    return s->ranks ? s->ranks->comm : NULL;
}

void session_rank_memory(const struct hone_session *s, int rank, struct rank_memory *m)
{
    *m = (struct rank_memory){.here = true, .threads = s->params.n_threads, .kv = s->kv.bytes, .states = s->states.bytes,
                              .values = s->value_bytes + s->scratch_stride * (size_t)s->params.n_threads};
    for (int i = 1; i < s->places.placement.n; i++)
        m->values += s->places.values[i].bytes;
    if (s->ranks)
        shard_bytes(s->ranks->cut->shard, rank, &m->weights, &m->mirrored);
    if (s->ranks && rank != s->ranks->first && (rank < s->ranks->first || rank > s->ranks->first + s->ranks->n_others)) {
        *m = (struct rank_memory){.threads = s->ranks->spec.threads[rank], .weights = m->weights, .mirrored = m->mirrored};
    } else if (s->ranks && rank > s->ranks->first) {
        const struct rank *k = &s->ranks->others[rank - s->ranks->first - 1];
        m->threads = pool_size(k->pool);
        m->kv = k->kv.bytes;
        m->states = k->states.bytes;
        m->values = k->value_bytes + k->scratch_stride * (size_t)m->threads;
    }
}

const struct plan *session_rank_plan(const struct hone_session *s, const struct plan *own, int rank)
{
    int other = s->ranks ? rank - s->ranks->first - 1 : -1;
    if (other < 0)
        return own;
    for (int i = 0; i < MAX_PLANS && other < s->ranks->n_others; i++)
        if (s->plans[i].plan == own)
            return s->plans[i].others[other].plan;
    return NULL;
}

/* Of all ranks in this process. */
static struct rank_memory memory_sum(const struct hone_session *s)
{
    struct rank_memory sum, one;
    session_rank_memory(s, session_rank(s), &sum);
    for (int i = 0; s->ranks && i < s->ranks->n_others; i++) {
        session_rank_memory(s, s->ranks->first + 1 + i, &one);
        sum.kv += one.kv;
        sum.states += one.states;
        sum.values += one.values;
    }
    return sum;
}

size_t session_kv_bytes(const struct hone_session *s)
{
    return memory_sum(s).kv;
}

size_t session_state_bytes(const struct hone_session *s)
{
    return memory_sum(s).states;
}

int32_t session_rewind_reach(const struct hone_session *s, int32_t seq, int32_t length)
{
    while (length > 0 && !states_can_rewind(&s->states, seq, length))
        length--;
    return length;
}

size_t session_value_bytes(const struct hone_session *s)
{
    return memory_sum(s).values;
}

/* Progress is asked for at most ten times a second, from inside the run, on thread 0. */
struct progress {
    struct hone_session *s;
    const struct observer *inner;
    size_t done, now, total; /* tokens before this chunk, in it, in all */
    int64_t last;
};

static int progress_before(void *user, const struct plan *plan, int step)
{
    struct progress *p = user;
    return p->inner && p->inner->before ? p->inner->before(p->inner->user, plan, step) : 0;
}

static int progress_after(void *user, const struct plan *plan, int step, int64_t ns)
{
    struct progress *p = user;
    int rc = p->inner && p->inner->after ? p->inner->after(p->inner->user, plan, step, ns) : 0;
    int64_t t = clock_ns();
    if (rc || t - p->last < 100000000)
        return rc;
    p->last = t;
    double share = ((double)p->done + (double)p->now * (step + 1) / plan->n_steps) / (double)p->total;
    return p->s->params.progress(p->s->params.progress_user, (float)share) ? HONE_ECANCELED : 0;
}

static void inputs_set(struct hone_session *s, const struct step_inputs *in, const struct hone_token *tokens, const int32_t *positions,
                       int32_t n)
{
    int32_t *ids = in->tokens->data, *pos = in->positions->data, *seqs = in->sequences->data, *cells = in->cells->data,
            *outputs = in->outputs->data; /* one that no node reads has no place: of a rank that runs some of the layers */
    if (in->slots && in->slots->data)
        memcpy(in->slots->data, s->states.slots, 2 * (size_t)s->states.n_seq * sizeof *s->states.slots);
    if (outputs)
        outputs[0] = n - 1; /* of a chunk whose logits nobody wants */
    for (int32_t i = 0, o = 0; i < n; i++) {
        if (ids)
            ids[i] = tokens[i].id;
        if (pos)
            pos[i] = positions[i];
        if (seqs)
            seqs[i] = tokens[i].seq;
        if (cells)
            cells[i] = s->kv.map[(int64_t)tokens[i].seq * s->kv.n_ctx + positions[i]];
        if (outputs && tokens[i].want_logits)
            outputs[o++] = i;
    }
}

/* debug.spin; a cancel ends it. */
static void spin_until(struct hone_session *s, int64_t ns)
{
    while (clock_ns() < ns && !atomic_load_explicit(&s->cancel, memory_order_relaxed))
        ;
}

/* One chunk: at most n_batch tokens, whose cells are appended already. whole: it is the whole eval. */
static int eval_chunk(struct hone_session *s, const struct hone_token *tokens, const int32_t *positions, int32_t n, bool whole,
                      struct progress *progress, struct hone_error *e)
{
    int32_t n_outputs = 0;
    for (int32_t i = 0; i < n; i++)
        n_outputs += tokens[i].want_logits;
    struct planned *p;
    for (;;) { /* a chunk without wanted logits runs with one output: without any would be another shape to plan and test */
        int rc = planned_ready(s, n, n_outputs ? n_outputs : 1, &p, e);
        if (rc)
            return rc;
        weights_hold();
        if (planned_current(s, p))
            break;
        weights_release(); /* another session changed a layout in between */
    }
    inputs_set(s, &p->in, tokens, positions, n);
    for (int i = 0; s->ranks && i < s->ranks->n_others; i++)
        inputs_set(s, &p->others[i].in, tokens, positions, n);
    struct observer with_progress = {progress, progress_before, progress_after};
    bool watched = progress && !p->plan->placement; /* nodes of a device are not waited for one by one, only to say how far they are */
    struct run run = {.pool = s->pool, .scratch = s->scratch, .scratch_stride = s->scratch_stride, .cancel = &s->cancel,
                      .observer = watched ? &with_progress : s->observer};
    s->graphs++;
    int64_t start = clock_ns();
    int rc = kv_upload(&s->kv, e);
    if (!rc)
        rc = s->ranks ? ranks_run(s->ranks, p->plan, &run, p->others, e) : plan_run(p->plan, &run, e);
    if (!rc && progress && !watched &&
        s->params.progress(s->params.progress_user, (float)(progress->done + progress->now) / (float)progress->total))
        rc = err_set(e, HONE_ECANCELED, "cancelled");
    if (s->spin > 0)
        spin_until(s, start + (int64_t)((double)(clock_ns() - start) * (1 + s->spin)));
    if (!rc && n_outputs) {
        size_t row = (size_t)s->model->n_vocab;
        if (s->ranks)
            ranks_logits(s->ranks, &p->graph, p->others, n_outputs, (int64_t)row, s->logits + s->n_logits * row);
        else if (p->plan->placement && whole) /* a step of a small model on a device takes less than ten times this copy */
            s->view = p->graph.logits->data;
        else
            memcpy(s->logits + s->n_logits * row, p->graph.logits->data, (size_t)n_outputs * row * sizeof(float));
        s->n_logits += (size_t)n_outputs;
    }
    weights_release();
    return rc;
}

/* Ids, sequences and room, before anything changes; and the room for the logits. */
static int eval_check(struct hone_session *s, const struct hone_token *tokens, size_t n, struct hone_error *e)
{
    if (n > INT32_MAX)
        return err_set(e, HONE_EUSAGE, "%zu tokens in one call", n);
    size_t outputs = 0;
    int32_t more[64] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct hone_token *t = &tokens[i];
        if (t->id < 0 || t->id >= s->model->n_vocab)
            return err_set(e, HONE_EINPUT, "token %zu has id %d; the vocabulary has 0 to %d", i, t->id, s->model->n_vocab - 1);
        if (t->seq < 0 || t->seq >= s->kv.n_seq)
            return err_set(e, HONE_EUSAGE, "token %zu is of sequence %d; the session has %d", i, t->seq, s->kv.n_seq);
        if (s->kv.length[t->seq] + ++more[t->seq] > s->kv.n_ctx)
            return err_set(e, HONE_EINPUT, "sequence %d would grow to more than its context of %d positions (-c)", t->seq,
                           s->kv.n_ctx);
        outputs += t->want_logits;
    }
    if (outputs > s->cap_logits) {
        size_t bytes;
        if (__builtin_mul_overflow(outputs, (size_t)s->model->n_vocab * sizeof(float), &bytes))
            return err_set(e, HONE_EUSAGE, "logits of %zu tokens", outputs);
        float *logits = realloc(s->logits, bytes);
        if (!logits)
            return err_set(e, HONE_ERESOURCE, "no memory for the logits of %zu tokens: %.1f MiB", outputs, (double)bytes / 0x1p20);
        s->logits = logits;
        s->cap_logits = outputs;
    }
    return 0;
}

/* The cells of a chunk's tokens, and for each sequence in it a slot to write; which sequences those are goes to `seen`. */
static void chunk_begin(struct hone_session *s, const struct hone_token *tokens, size_t n, int32_t *positions, bool *moving, bool *seen)
{
    memset(seen, 0, (size_t)s->kv.n_seq * sizeof *seen);
    for (size_t j = 0; j < n; j++) {
        int32_t seq = tokens[j].seq;
        positions[j] = s->kv.length[seq];
        kv_append(&s->kv, seq);
        if (!moving[seq])
            states_begin(&s->states, seq);
        moving[seq] = seen[seq] = true;
    }
}

static void eval_end(struct hone_session *s, const bool *moving, const int32_t *before, bool failed)
{
    if (failed)
        s->n_logits = 0;
    for (int32_t q = 0; q < s->kv.n_seq; q++) {
        if (failed)
            kv_truncate(&s->kv, q, before[q]);
        if (moving[q] && failed)
            states_abort(&s->states, q);
        else if (moving[q])
            states_commit(&s->states, q, s->kv.length[q]);
    }
}

int hone_session_eval(struct hone_session *s, const struct hone_token *tokens, size_t n, struct hone_error *e)
{
    struct hone_error own = {0};
    INVARIANT(!s->dry);
    int rc = eval_check(s, tokens, n, &own);
    if (!rc)
        rc = follow_eval(s->followed, tokens, n, &own);
    int32_t before[64], *positions = NULL;
    bool moving[64] = {false}, seen[64];
    if (!rc) {
        positions = malloc(n * sizeof *positions + 1);
        rc = positions ? 0 : err_set(&own, HONE_ERESOURCE, "no memory for %zu tokens", n);
    }
    if (!rc) {
        memcpy(before, s->kv.length, (size_t)s->kv.n_seq * sizeof *before);
        s->n_logits = 0;
        s->view = NULL;
        struct progress progress = {.s = s, .inner = s->observer, .total = n, .last = clock_ns()};
        for (size_t i = 0; i < n && !rc; i += progress.now) {
            progress.done = i;
            progress.now = n - i < (size_t)s->params.n_batch ? n - i : (size_t)s->params.n_batch;
            chunk_begin(s, tokens + i, progress.now, positions + i, moving, seen);
            rc = eval_chunk(s, tokens + i, positions + i, (int32_t)progress.now, progress.now == n,
                            s->params.progress && n > 1 ? &progress : NULL, &own);
            for (int32_t q = 0; q < s->kv.n_seq; q++)
                if (seen[q])
                    states_next(&s->states, q);
        }
        eval_end(s, moving, before, rc != 0);
        if (rc == HONE_ECANCELED)
            atomic_store(&s->cancel, 0);
    }
    free(positions);
    if (e)
        *e = own;
    return rc;
}

const float *hone_session_logits(const struct hone_session *s, size_t i)
{
    return i < s->n_logits ? (s->view ? s->view : s->logits) + i * (size_t)s->model->n_vocab : NULL;
}

int32_t hone_greedy(const struct hone_session *s)
{
    const float *logits = s->n_logits ? hone_session_logits(s, s->n_logits - 1) : NULL;
    return logits ? sampler_argmax(logits, s->model->n_vocab) : -1;
}

int32_t hone_session_length(const struct hone_session *s, int32_t seq)
{
    return seq >= 0 && seq < s->kv.n_seq ? s->kv.length[seq] : 0;
}

static int check_seq(const struct hone_session *s, int32_t seq, struct hone_error *e)
{
    return seq >= 0 && seq < s->kv.n_seq ? 0 : err_set(e, HONE_EUSAGE, "sequence %d; the session has %d", seq, s->kv.n_seq);
}

int hone_session_rewind(struct hone_session *s, int32_t seq, int32_t length, struct hone_error *e)
{
    struct hone_error own = {0};
    int rc = check_seq(s, seq, &own);
    if (!rc && (length < 0 || length > s->kv.length[seq]))
        rc = err_set(&own, HONE_EUSAGE, "sequence %d holds %d positions; it cannot go back to %d", seq, s->kv.length[seq], length);
    if (!rc && length < s->kv.length[seq] && !states_can_rewind(&s->states, seq, length)) {
        char text[STATES_MAX_SNAPSHOTS * 13];
        rc = err_set(&own, HONE_EUSAGE, "sequence %d has a recurrent state: it can go back to %.300s, not to %d", seq,
                     states_positions(&s->states, seq, text, sizeof text), length);
    }
    if (!rc)
        rc = follow_rewind(s->followed, seq, length, &own);
    if (!rc) {
        kv_truncate(&s->kv, seq, length);
        states_rewind(&s->states, seq, length);
    }
    if (e)
        *e = own;
    return rc;
}

int hone_session_fork(struct hone_session *s, int32_t from, int32_t to, struct hone_error *e)
{
    struct hone_error own = {0};
    int rc = check_seq(s, from, &own);
    if (!rc)
        rc = check_seq(s, to, &own);
    if (!rc)
        rc = follow_fork(s->followed, from, to, &own);
    if (!rc) {
        kv_fork(&s->kv, from, to);
        states_fork(&s->states, from, to);
    }
    if (e)
        *e = own;
    return rc;
}

/* What a file holds: the session's own memory, or that of all its ranks put together in w. */
static int parts_of(struct session_parts *parts, struct ranks_whole *w, struct hone_session *s, struct hone_error *e)
{
    *parts = (struct session_parts){s->model, &s->kv, &s->states};
    if (!s->ranks)
        return 0;
    if (s->ranks->processes)
        return err_set(e, HONE_EUSAGE, "a session over several processes cannot be saved or restored: its cells lie in all of them");
    int rc = ranks_whole_create(w, s->model, &s->kv, &s->states, e);
    *parts = (struct session_parts){s->model, &w->kv, &w->states};
    return rc;
}

int hone_session_save_noted(struct hone_session *s, const char *path, const char *note, struct hone_error *e)
{
    struct hone_error own = {0};
    struct session_parts parts;
    struct ranks_whole whole = {0};
    int rc = parts_of(&parts, &whole, s, &own);
    if (!rc && s->ranks)
        ranks_gather(&whole, s->ranks, &s->kv, &s->states);
    if (!rc)
        rc = session_file_save(&parts, path, note, &own);
    ranks_whole_free(&whole);
    if (e)
        *e = own;
    return rc;
}

int hone_session_save(struct hone_session *s, const char *path, struct hone_error *e)
{
    return hone_session_save_noted(s, path, NULL, e);
}

int session_restore_memory(struct hone_session *s, const void *data, size_t size, const char *label, char **note, struct hone_error *e)
{
    struct session_parts parts;
    struct ranks_whole whole = {0};
    int rc = parts_of(&parts, &whole, s, e);
    if (!rc)
        rc = session_file_restore(&parts, data, size, label, note, e);
    if (!rc && s->ranks)
        ranks_scatter(&whole, s->ranks, &s->kv, &s->states);
    if (!rc)
        s->n_logits = 0;
    ranks_whole_free(&whole);
    return rc;
}

int hone_session_restore_noted(struct hone_session *s, const char *path, char **note, struct hone_error *e)
{
    struct hone_error own = {0};
    struct mapping m;
    int rc = mapping_open(&m, path, &own);
    if (!rc) {
        rc = session_restore_memory(s, m.data, m.size, path, note, &own);
        mapping_close(&m);
    }
    if (e)
        *e = own;
    return rc;
}

int hone_session_restore(struct hone_session *s, const char *path, struct hone_error *e)
{
    return hone_session_restore_noted(s, path, NULL, e);
}

void hone_session_cancel(struct hone_session *s)
{
    atomic_store(&s->cancel, 1);
}
