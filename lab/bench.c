/* bench.c: the sweep. A model is opened once; a session is kept while the parameters that it is made of stay, and its context
 * has room for every test that will run on it, so that a sweep over depths prefills each position once. What belongs to a
 * session is found out once, at its start: whether its output is the reference's. What belongs to a test is found out between
 * its samples: how fast memory can be read now, and who else used the machine.
 *
 * The verdict comes from few positions (see reference_size), since the reference is some hundred times slower; `hone verify`
 * takes more. A verdict on the test's own random ids was the alternative: what a model says to random ids is a coin toss, and
 * near-ties abound.
 *
 * Order within a test: verdict (of the session), depth, hashed run, warm-up until stable, then roof and sample in turn. After a
 * reading of the roof one step is run unwatched: 1 GiB has gone through the caches, and a model of 90 MB that fits into the
 * third level would be charged for it. */
#include "lab/bench.h"

#include "base/bandwidth.h"
#include "base/cpu.h"
#include "comm/comm.h"
#include "engine/follow.h"
#include "graph/fuse.h"
#include "lab/affinity.h"
#include "lab/collectives.h"
#include "lab/identity.h"
#include "lab/one_device.h"
#include "lab/reference.h"
#include "lab/roof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench {
    const struct bench_sweep *sweep;
    const struct bench_options *o;
    const struct bench_hooks *h;
    size_t test; /* from 1 */

    struct hone_model *model;
    const char *path; /* that model is, or failed to be, opened from */
    struct hone_error model_error;

    struct hone_session *session;
    struct hone_session_params params;
    struct bench_config config; /* that session was made for */
    struct measure_prefix prefix;
    struct affinity affinity;
    struct one_device_place place; /* of a one-device test beside others */

    struct reference ref;
    bool referenced; /* ref is of this model */
    struct comparison right;
    bool verified;
    char unverified[512];

    struct bandwidth *roof;      /* of the host */
    const struct place *roof_at; /* of a device: of the session's plan; NULL: the host's */
    bool roof_missing;

    struct machine machine;
    json_t *build, *machine_json;
    json_t *rates; /* on one device, by bench_alone_key */
};

static int64_t number(const struct bench_config *c, enum bench_param p)
{
    return c->values[p]->number;
}

static bool stopped(const struct bench *b)
{
    return b->h->stopped && b->h->stopped(b->h->user);
}

static void tell(const struct bench *b, const char *what)
{
    if (b->h->tell)
        b->h->tell(b->h->user, b->test, b->sweep->n_tests, what);
}

static int cancelled(struct hone_error *e)
{
    return err_set(e, HONE_ECANCELED, "cancelled");
}

/* ---- model and session */

static void session_close(struct bench *b)
{
    if (b->h->session)
        b->h->session(b->h->user, NULL);
    hone_session_free(b->session);
    b->session = NULL;
    bandwidth_close(b->roof);
    b->roof = NULL;
    one_device_leave(&b->place);
    affinity_leave(&b->affinity);
    comparison_free(&b->right);
    b->verified = false;
}

static int model_take(struct bench *b, const struct bench_config *c, struct hone_error *e)
{
    const char *path = c->values[BENCH_MODEL]->text;
    if (!b->path || strcmp(b->path, path) != 0) {
        session_close(b);
        if (b->referenced)
            reference_free(&b->ref);
        b->referenced = false;
        hone_model_close(b->model);
        b->path = path;
        b->model_error = (struct hone_error){0};
        tell(b, "opening the model");
        hone_model_open(&b->model, path, &b->model_error);
    }
    return b->model ? 0 : err_set(e, b->model_error.code, "%s", b->model_error.message);
}

/* Tokens a step. */
static int32_t step_of(const struct bench_config *c)
{
    return bench_session_params(c).n_batch;
}

static int64_t positions_of(const struct bench_config *c)
{
    return (int64_t)c->n_prompt + c->n_gen + number(c, BENCH_N_DEPTH);
}

static bool same_session(const struct bench_config *a, const struct bench_config *b)
{
    static const enum bench_param of_session[] = {BENCH_MODEL,      BENCH_TYPE_K,     BENCH_TYPE_V,      BENCH_N_THREADS,
                                                  BENCH_CPU_MASK,   BENCH_CPU_STRICT, BENCH_POLL,        BENCH_N_GPU_LAYERS,
                                                  BENCH_SPLIT_MODE, BENCH_DEVICES,    BENCH_TENSOR_SPLIT};
    for (size_t i = 0; i < sizeof of_session / sizeof *of_session; i++)
        if (strcmp(a->values[of_session[i]]->text, b->values[of_session[i]]->text) != 0)
            return false;
    return step_of(a) == step_of(b);
}

enum { VERIFY_POSITIONS = 64 }; /* room that a verdict needs at least */

/* The largest context of this test and of those behind it that could run on the same session. */
static int64_t context_for(const struct bench *b, const struct bench_config *c)
{
    int64_t most = VERIFY_POSITIONS;
    for (size_t i = b->test - 1; i < b->sweep->n_tests; i++) {
        struct bench_config other;
        bench_sweep_get(b->sweep, i, &other);
        if (!same_session(c, &other))
            break;
        if (positions_of(&other) > most && positions_of(&other) <= INT32_MAX)
            most = positions_of(&other);
    }
    return most;
}

static int session_make(struct bench *b, const struct bench_config *c, struct hone_error *e)
{
    int64_t need = positions_of(c), most = context_for(b, c);
    if (need > INT32_MAX)
        return err_set(e, HONE_EUSAGE, "a context of %lld positions", (long long)need);
    int rc = affinity_enter(&b->affinity, c->values[BENCH_CPU_MASK]->text, e);
    if (rc)
        return rc;
    struct hone_error first = {0};
    if (c->alone)
        one_device_enter(&b->place);
    b->params = bench_session_params(c);
    b->params.n_ctx = (int32_t)most;
    b->params.recipe = b->o->recipe;
    b->params.gates = b->o->gates;
    b->params.strict = b->o->strict;
    rc = hone_session_create(&b->session, b->model, &b->params, &first);
    if (rc == HONE_ERESOURCE && need < most) { /* a later, deeper test needs more than there is: this one may not */
        b->params.n_ctx = (int32_t)(need < VERIFY_POSITIONS ? VERIFY_POSITIONS : need);
        first = (struct hone_error){0};
        rc = hone_session_create(&b->session, b->model, &b->params, &first);
    }
    if (rc)
        err_set(e, first.code, "%s", first.message);
    else if (number(c, BENCH_CPU_STRICT))
        rc = affinity_pin(&b->affinity, e);
    b->prefix = (struct measure_prefix){0};
    b->config = *c;
    if (rc)
        session_close(b);
    return rc;
}

/* ---- the verdict */

/* How much of the reference a verdict takes: it multiplies about 4e9 weights a second on two cores, and should cost a minute at
 * most, once for a model and a build (its logits are cached): 128 tokens up to 1.5e9 weights, 25 of a model of 8e9. */
static void reference_size(const struct hone_model *m, int *texts, size_t *prompt, size_t *greedy)
{
    double weights = 1;
    for (int64_t i = 0; i < m->model->gguf->n_tensors; i++) {
        const int64_t *ne = m->model->gguf->tensors[i].ne;
        weights += (double)ne[0] * (double)ne[1] * (double)ne[2] * (double)ne[3];
    }
    double all = 2e11 / weights;
    all = all < 12 ? 12 : all > 128 ? 128 : all;
    *texts = all >= 64 ? (int)all / 32 : 1;
    size_t each = (size_t)(all / *texts < 32 ? all / *texts : 32);
    *prompt = each / 2;
    *greedy = each - each / 2;
}

static int verify_progress(void *user, float done)
{
    struct bench *b = user;
    char what[64];
    snprintf(what, sizeof what, "the reference's logits: %.0f %%", 100 * (double)done);
    tell(b, what);
    return stopped(b);
}

static int verify(struct bench *b, struct hone_error *e)
{
    int texts, rc = 0;
    size_t prompt, greedy;
    struct hone_session_params p = b->params;
    if (!b->referenced) {
        tell(b, "the reference's logits");
        reference_size(b->model, &texts, &prompt, &greedy);
        p.n_ctx = VERIFY_POSITIONS;
        p.n_batch = VERIFY_POSITIONS;
        p.strict = false;
        rc = reference_make(&b->ref, b->model, &p, texts, prompt, greedy, b->o->cache, verify_progress, b, e);
        b->referenced = !rc;
    }
    b->right = (struct comparison){0};
    if (!rc) {
        tell(b, "comparing with the reference");
        rc = reference_compare(&b->ref, b->session, &b->right, e);
    }
    if (!rc)
        comparison_judge_for(&b->right, b->model, BENCH_KL_BOUND);
    b->verified = !rc;
    return rc;
}

/* A session for this test, with its verdict. */
static int session_take(struct bench *b, const struct bench_config *c, struct hone_error *e)
{
    if (b->session && same_session(c, &b->config) && positions_of(c) <= b->params.n_ctx)
        return 0;
    session_close(b);
    int rc = session_make(b, c, e);
    if (rc)
        return rc;
    if (b->h->session)
        b->h->session(b->h->user, b->session);
    b->unverified[0] = 0;
    if (b->o->verify) {
        struct hone_error why = {0};
        int failed = verify(b, &why);
        if (failed == HONE_ECANCELED)
            return err_set(e, failed, "%s", why.message);
        if (failed)
            snprintf(b->unverified, sizeof b->unverified, "%s", why.message);
    }
    return stopped(b) ? cancelled(e) : 0;
}

/* ---- one test */

/* Ranks on devices have no roof: a card may carry several of them. */
static void roof_take(struct bench *b)
{
    struct hone_error ignored = {0};
    const struct plan *plan;
    b->roof_missing = false;
    b->roof_at = NULL;
    if (!b->o->roof)
        return;
    if (!session_plan(b->session, 1, 1, &plan, &ignored) && (b->roof_at = roof_place(plan))) {
        b->roof_missing = session_ranks(b->session) > 1 || !b->roof_at->backend->api->read_rate;
        return;
    }
    if (b->roof)
        return;
    tell(b, "memory for the read roof");
    b->roof_missing = bandwidth_open(&b->roof, b->config.n_threads, &ignored) != 0;
}

static int pause_before(const struct bench *b, struct hone_error *e)
{
    struct timespec tenth = {0, 100000000};
    for (int i = 0; i < 10 * b->o->delay; i++) {
        if (stopped(b))
            return cancelled(e);
        nanosleep(&tenth, NULL);
    }
    return 0;
}

static int read_roof(struct bench *b, struct bench_result *r, struct measure *m, struct hone_error *e)
{
    if (!b->o->roof || b->roof_missing)
        return 0;
    if (b->roof_at) {
        double rate;
        int rc = roof_device(b->roof_at, &rate, e);
        if (!rc)
            r->roofs[r->n_roofs++] = rate;
        return rc ? rc : measure_settle(m, e);
    }
    if (b->roof)
        r->roofs[r->n_roofs++] = bandwidth_round(b->roof);
    return b->roof ? measure_settle(m, e) : 0;
}

static int take_samples(struct bench *b, struct bench_result *r, struct measure *m, bool *hook_failed, struct hone_error *e)
{
    int rc = 0;
    r->same = true;
    for (int i = 0; i < b->o->repeats && !rc; i++) {
        char what[64];
        snprintf(what, sizeof what, "sample %d of %d", i + 1, b->o->repeats);
        tell(b, what);
        rc = read_roof(b, r, m, e);
        if (!rc)
            rc = measure_once(m, &r->samples[i], e);
        if (rc)
            break;
        r->n++;
        r->same &= r->samples[i].same;
        if (b->h->sample && (rc = b->h->sample(b->h->user, r->config, &r->samples[i], e)))
            *hook_failed = true;
        if (!rc && stopped(b))
            rc = cancelled(e);
    }
    return rc ? rc : read_roof(b, r, m, e);
}

static int warm(struct bench *b, struct bench_result *r, struct measure *m, struct hone_error *e)
{
    tell(b, "warm-up");
    r->warmed = true;
    return measure_warm(m, &b->o->warm, &r->warmth, e);
}

static int hash(struct bench *b, struct bench_result *r, struct measure *m, struct hone_error *e)
{
    tell(b, "hashing the output");
    int rc = measure_hash(m, &r->output, e);
    r->hashed = !rc;
    return rc;
}

/* What the lab itself keeps in memory meanwhile. */
static int64_t own_bytes(const struct bench *b)
{
    size_t roof = b->roof ? bandwidth_bytes(b->roof) : 0;
    return (int64_t)(roof + (b->referenced ? b->ref.n * (size_t)b->ref.n_vocab * sizeof *b->ref.logits : 0));
}

/* Of the test's decode step, or its prefill. */
static int look_at_collectives(const struct bench *b, struct bench_result *r, struct hone_error *e)
{
    const struct plan *p;
    struct collectives c;
    int32_t step = b->params.n_batch < r->config->n_prompt ? b->params.n_batch : r->config->n_prompt;
    int rc = session_plan(b->session, r->config->n_gen ? 1 : step, 1, &p, e);
    if (!rc)
        rc = collectives_find(&c, p, p, session_ranks(b->session), e);
    if (rc)
        return rc;
    r->collectives = collectives_sum_json(&c);
    collectives_free(&c);
    const struct comm *comm = session_comm(b->session);
    json_t *threads = json_array();
    for (int i = 0; i < session_ranks(b->session); i++) {
        struct rank_memory m;
        session_rank_memory(b->session, i, &m);
        json_array_append_new(threads, json_integer(m.threads));
    }
    json_object_set_new(r->collectives, "transport", json_string(comm ? comm_transport(comm) : "local"));
    json_object_set_new(r->collectives, "threads", threads);
    return 0;
}

/* Everything of a test that can fail by itself; *hook_failed: the caller's own hook did. */
static int run_test(struct bench *b, struct bench_result *r, bool *begun, bool *hook_failed, struct hone_error *e)
{
    const struct bench_config *c = r->config;
    struct measure_test t = {c->n_prompt, c->n_gen, (int32_t)number(c, BENCH_N_DEPTH), (int32_t)number(c, BENCH_N_BATCH)};
    struct measure *m = NULL;
    int64_t declined[N_FUSIONS];
    struct machine_state before, after;
    int rc = model_take(b, c, e);
    if (!rc)
        rc = session_take(b, c, e);
    if (!rc)
        rc = pause_before(b, e);
    if (!rc && b->h->begin) {
        rc = b->h->begin(b->h->user, b->model, c, e);
        *hook_failed = rc != 0;
        *begun = !rc;
    }
    if (rc)
        return rc;
    roof_take(b);
    machine_peak_reset(); /* where the kernel refuses, the peak is that of the process so far */
    workload_declined(b->session, declined);
    tell(b, t.n_depth ? "prefilling to the depth" : "planning");
    rc = measure_open(&m, b->session, &b->params, b->model, &t, &b->prefix, e);
    if (!rc)
        rc = workload_of(&r->work, b->session, b->model, &t, b->params.n_batch, e);
    if (!rc && c->n_devices > 1)
        rc = look_at_collectives(b, r, e);
    if (!rc && b->o->warmup)
        rc = hash(b, r, m, e);
    if (!rc && b->o->warmup)
        rc = warm(b, r, m, e);
    machine_look(&before, "");
    if (!rc)
        rc = take_samples(b, r, m, hook_failed, e);
    machine_look(&after, "");
    r->peak = machine_peak() - own_bytes(b);
    if (!rc && !b->o->warmup)
        rc = hash(b, r, m, e);
    r->change = machine_between(&before, &after);
    r->declines = workload_declines(b->session, declined);
    measure_close(m);
    return rc;
}

static void warn(json_t *list, const char *text)
{
    json_array_append_new(list, json_string(text));
}

/* On average over the samples it reads faster than memory was ever read. */
static bool above_roof(const struct bench_result *r)
{
    double tokens = (double)r->config->n_prompt + r->config->n_gen, best = 0, ns = 0;
    for (size_t i = 0; i < r->n_roofs; i++)
        best = r->roofs[i] > best ? r->roofs[i] : best;
    for (size_t i = 0; i < r->n; i++)
        ns += (double)r->samples[i].ns / (double)r->n;
    return best > 0 && ns > 0 && (r->work.weights + r->work.kv + r->work.state) * tokens * 1e9 / ns > best;
}

static json_t *warnings_of(const struct bench *b, const struct bench_result *r)
{
    char text[200];
    struct machine here = b->machine;
    here.processors = cpu_processors(); /* under the mask */
    bool processes = r->config->n_devices > 1 && follow_comm(); /* each has processors of its own */
    json_t *list =
        machine_warnings(&here, r->n ? &r->change : NULL, hone_build(), processes ? b->params.n_threads : r->n_threads);
    if (r->warmed && !r->warmth.stable) {
        snprintf(text, sizeof text, "warm-up never became stable: after %d rounds the last two differ by %.1f %%",
                 r->warmth.rounds, 100 * r->warmth.gap);
        warn(list, text);
    }
    if (!r->warmed && r->n)
        warn(list, "no warm-up: the first sample packs weights and touches memory for the first time");
    if (r->hashed && r->output.nan)
        warn(list, "the output holds logits that are no finite numbers");
    if (r->hashed && !r->same)
        warn(list, "not deterministic: a sample ended on other logits than the hashed run");
    if (r->work.references) {
        snprintf(text, sizeof text, "%d nodes ran on a reference (fallbacks)", r->work.references);
        warn(list, text);
    }
    if (r->declines && json_array_size(r->declines))
        warn(list, "fused kernels declined steps (declines)");
    if (b->session && session_spin(b->session) > 0) {
        snprintf(text, sizeof text, "debug.spin makes every step %.3g %% longer: this is no result",
                 100 * session_spin(b->session));
        warn(list, text);
    }
    if (b->session && session_skips_all_reduce(b->session))
        warn(list, "debug.skip_all_reduce leaves the collectives out: the output is wrong, and this is no result");
    if (above_roof(r))
        warn(list,
             "more bytes a second than memory can be read with: the weights stay in a cache, so roof_share says nothing here");
    if (b->o->roof && b->roof_missing)
        warn(list, b->roof_at ? "no read roof of ranks on devices" : "no memory to measure the read roof with");
    if (r->right && r->right->verdict == CLASS_DIFFERENT) {
        snprintf(text, sizeof text, "the output is not the reference's: %.150s", r->right->reason);
        warn(list, text);
    }
    return list;
}

static void start_result(const struct bench *b, struct bench_result *r, const struct bench_config *c)
{
    time_t now = time(NULL);
    struct tm utc;
    *r = (struct bench_result){.config = c, .unverified = ""};
    r->n_threads = c->n_threads;
    strftime(r->time, sizeof r->time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    r->build = b->build;
    r->machine = b->machine_json;
}

static int identify(const struct bench *b, struct bench_result *r, char hash_text[65], struct hone_error *e)
{
    const struct bench_config *c = r->config;
    r->recipe = identity_recipe(b->o->recipe, b->o->gates, c->values[BENCH_TYPE_K]->text, c->values[BENCH_TYPE_V]->text,
                                b->o->plugins, e);
    r->recipe_hash = hash_text;
    return r->recipe ? identity_hash(r->recipe, hash_text, e) : e->code;
}

/* Rates on one device are kept, for rows over several to stand beside. */
static void note_rate(struct bench *b, const struct bench_config *c, double rate)
{
    char *key = b->sweep->devices && bench_on_host(c) ? bench_alone_key(c) : NULL;
    if (key)
        json_object_set_new_nocheck(b->rates, key, json_real(rate));
    free(key);
}

/* 0: not known. */
static double one_device_rate(const struct bench *b, const struct bench_config *c)
{
    char *key = c->n_devices > 1 ? bench_alone_key(c) : NULL;
    double rate = key ? json_number_value(json_object_get(b->rates, key)) : 0;
    free(key);
    return rate;
}

static void free_result(struct bench_result *r)
{
    free(r->samples);
    free(r->roofs);
    workload_free(&r->work);
    json_decref(r->declines);
    json_decref(r->collectives);
    json_decref(r->recipe);
    json_decref(r->warnings);
}

/* A test from beginning to row. Its own failure is in the row; what is returned ends the sweep. */
static int test_row(struct bench *b, const struct bench_config *c, struct bench_tally *tally, struct hone_error *e)
{
    struct bench_result r;
    struct hone_error own = {0};
    char hash_text[65] = "";
    bool begun = false, hook_failed = false;
    start_result(b, &r, c);
    size_t n = (size_t)b->o->repeats;
    r.samples = calloc(n, sizeof *r.samples);
    r.roofs = calloc(n + 1, sizeof *r.roofs);
    int rc = r.samples && r.roofs ? identify(b, &r, hash_text, e) : err_set(e, HONE_ERESOURCE, "no memory for %zu samples", n);
    if (!rc) {
        int failed = run_test(b, &r, &begun, &hook_failed, &own);
        if (failed == HONE_ECANCELED || hook_failed)
            rc = err_set(e, own.code, "%s", own.message);
        else if (failed)
            snprintf(r.error, sizeof r.error, "%s", own.message[0] ? own.message : err_meaning(failed));
    }
    if (!rc) {
        r.model = b->model;
        r.right = b->verified ? &b->right : NULL;
        r.unverified = b->o->verify ? b->unverified : "not asked for (--no-verify)";
        r.warnings = warnings_of(b, &r);
        r.one_ts = one_device_rate(b, c);
        json_t *row = bench_row(&r);
        if (row && !r.error[0] && r.n)
            note_rate(b, c, json_number_value(json_object_get(row, "total_ts")));
        tally->rows++;
        tally->failed += r.error[0] != 0;
        tally->wrong +=
            !r.error[0] && ((b->o->verify && !b->verified) || (r.right && r.right->verdict == CLASS_DIFFERENT) || !r.same);
        rc = !row ? err_set(e, HONE_ERESOURCE, "no memory for a row") : b->h->row ? b->h->row(b->h->user, row, begun, e) : 0;
        json_decref(row);
    }
    free_result(&r);
    return rc;
}

/* The build without its list of libraries, which the journal keeps, but with the hash that covers them. */
static json_t *build_json(const char *plugins, struct hone_error *e)
{
    char hash_text[65];
    json_t *build = identity_build(plugins, e);
    if (build && identity_hash(build, hash_text, e)) {
        json_decref(build);
        return NULL;
    }
    if (build) {
        json_object_del(build, "libraries");
        json_object_set_new(build, "hash", json_string(hash_text));
    }
    return build;
}

int bench_run(const struct bench_sweep *s, const struct bench_options *o, const struct bench_hooks *h, struct bench_tally *t,
              struct hone_error *e)
{
    struct bench b = {.sweep = s, .o = o, .h = h};
    *t = (struct bench_tally){0};
    machine_describe(&b.machine, "");
    b.build = build_json(o->plugins, e);
    b.machine_json = machine_json(&b.machine);
    b.rates = json_object();
    int rc = b.build ? 0 : e->code;
    for (size_t i = 0; i < s->n_tests && !rc; i++) {
        struct bench_config c;
        bench_sweep_get(s, i, &c);
        b.test = i + 1;
        rc = test_row(&b, &c, t, e);
        if (!rc && stopped(&b))
            rc = cancelled(e);
    }
    session_close(&b);
    if (b.referenced)
        reference_free(&b.ref);
    hone_model_close(b.model);
    json_decref(b.build);
    json_decref(b.machine_json);
    json_decref(b.rates);
    return rc;
}
