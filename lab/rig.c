/* rig.c: two stands for one contract, and what a sample is.
 *
 * A sample is the lower decile of many short runs of the test, by default of single decode steps: what the work takes when
 * nobody comes between. Whoever else uses the machine only ever adds time, to some runs more than to others, and is no part of
 * what is compared. With two busy neighbours for each of two cores a block of samples varied by 5 % so, by 13 % with the lower
 * quartile, by 35 % with the median, and by 31 % with one long run, which is the mean.
 *
 * The output is hashed over more positions than one step has: a first run of 16 tokens of each arm, whose hash is part of that
 * of every sample.
 *
 * Within one process each sample has a session of its own, planned anew, so that both arms get their memory by the same steps;
 * two sessions that live side by side and are used in turn keep one placement each for the whole comparison, and its luck is
 * then an effect of the arm. The run that hashes the output is the warm-up. */
#include "lab/rig.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "lab/bench_format.h"
#include "lab/identity.h"
#include "lab/one_device.h"
#include "lab/stats.h"
#include "lab/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PROBE_TOKENS = 16, PROBE_DEPTH = 16, MIN_REPEATS = 3, MAX_REPEATS = 400 };
/* Of the runs of a sample, together. Longer ones tell no more: on two cores of a shared machine a block of samples of 0.03,
 * 0.06 and 0.12 s varies by 2.3, 4.5 and 2.4 %, of fresh processes with 0.1, 0.2 and 0.3 s by 1.9, 3.1 and 1.7 %. What varies
 * is the machine, from second to second; more blocks in the same time tell more. */
static const double fresh_s = 0.1, session_s = 0.04;
static const double decile = 0.1;
/* A program that hangs must not hold a night's comparison up: a first run may take as long as a large model's load does, a later one so
 * many times what the first took, and a minute. */
enum { FIRST_LIMIT_S = 3600, LATER_LIMIT = 30, LATER_LIMIT_S = 60 };

static void tell(const struct rig *r, const char *what)
{
    if (r->o.tell)
        r->o.tell(r->o.user, what);
}

static bool cancelled(const struct rig *r)
{
    return r->o.cancelled && r->o.cancelled(r->o.user);
}

char *rig_test_name(const struct rig *r, char *text, size_t size)
{
    return bench_test_name(r->test.n_prompt, r->test.n_gen, r->test.n_depth, text, size);
}

const char *rig_diagnostic(const struct arm *a)
{
    return identity_text_diagnostic(json_string_value(json_object_get(a->identity, "recipe.gates")));
}

/* ---- length of a sample */

static bool is_open(const struct rig *r)
{
    return !r->o.test.n_prompt && !r->o.test.n_gen;
}

/* What is run before anything is known. */
static struct arm_test probe_test(const struct rig *r)
{
    struct arm_test t = r->o.test;
    t.repeats = MIN_REPEATS;
    if (is_open(r)) {
        t.n_gen = PROBE_TOKENS;
        t.n_depth = t.n_depth ? t.n_depth : PROBE_DEPTH;
    }
    return t;
}

/* run_s: of the probe. */
static void choose_length(struct rig *r, double run_s)
{
    double floor_s = r->o.sample_s > 0 ? r->o.sample_s : r->o.in_process ? session_s : fresh_s;
    r->test = probe_test(r);
    r->test.repeats = r->o.test.repeats;
    r->run_s = run_s;
    if (is_open(r)) {
        r->test.n_gen = 1;
        r->run_s = run_s / PROBE_TOKENS;
    }
    if (!r->test.repeats)
        r->test.repeats = (int)fmax(MIN_REPEATS, fmin(ceil(floor_s / r->run_s), MAX_REPEATS));
}

/* Both hashes in one: of the sample's own run, and of the arm's first. */
static void set_output(const struct rig *r, int arm, struct ab_sample *s, const char *output, bool steady)
{
    if (!steady) /* no two such are the same */
        snprintf(s->output, sizeof s->output, "not the same twice: block %d, sample %d", s->block, s->position);
    else if (output && r->first[arm].hex[0])
        snprintf(s->output, sizeof s->output, "%.32s%.32s", output, r->first[arm].hex);
    else
        s->output[0] = 0;
}

/* ---- fresh processes */

static int fresh_row(struct rig *r, struct arm *a, const struct arm_test *t, json_t **row, struct hone_error *e)
{
    return arm_run(a, t, r->o.cancelled, r->o.user, row, e);
}

/* A quantile of a row's samples; 0 of none. */
static double quantile_of(const json_t *row, double q)
{
    const json_t *list = json_object_get(row, "samples_ns");
    size_t n = json_array_size(list);
    double *x = calloc(n + 1, sizeof *x), ns = 0;
    for (size_t i = 0; i < n && x; i++)
        x[i] = json_number_value(json_array_get(list, i));
    if (x) {
        stats_sort(x, n);
        ns = stats_quantile(x, n, q);
    }
    free(x);
    return ns;
}

/* Who answered must be who answered first. */
static int same_build(const struct arm *a, const json_t *row, struct hone_error *e)
{
    json_t *now = arm_identity(a, row);
    const char *what;
    json_t *value;
    int rc = now ? 0 : err_set(e, HONE_ERESOURCE, "no memory for an identity");
    json_object_foreach(now, what, value)
    {
        const json_t *then = json_object_get(a->identity, what);
        if (rc || !strcmp(what, "declines") || (then && json_equal(then, value)))
            continue;
        char *was = json_dumps(then ? then : json_null(), JSON_ENCODE_ANY), *is = json_dumps(value, JSON_ENCODE_ANY);
        rc = err_set(e, HONE_ECHECK, "arm '%s' changed while it was measured: %s was %.80s, is %.80s", a->spec, what,
                     was ? was : "?", is ? is : "?");
        free(was);
        free(is);
    }
    json_decref(now);
    return rc;
}

static int fresh_sample(struct rig *r, int arm, struct ab_sample *s, struct hone_error *e)
{
    struct arm *a = &r->arms[arm];
    json_t *row;
    int rc = fresh_row(r, a, &r->test, &row, e);
    if (rc)
        return rc;
    rc = same_build(a, row, e);
    s->ns = quantile_of(row, decile);
    set_output(r, arm, s, json_string_value(json_object_get(row, "output_hash")),
               !json_is_false(json_object_get(row, "deterministic")));
    json_decref(row);
    return rc;
}

static int fresh_open(struct rig *r, int i, double *run_s, struct hone_error *e)
{
    struct arm *a = &r->arms[i];
    struct arm_test t = probe_test(r);
    json_t *row = NULL;
    int64_t start = clock_ns();
    int rc = arm_open(a, e);
    a->limit_s = FIRST_LIMIT_S;
    if (!rc)
        rc = fresh_row(r, a, &t, &row, e);
    a->limit_s = LATER_LIMIT_S + LATER_LIMIT * (double)(clock_ns() - start) / 1e9;
    if (!rc && !json_is_object(json_object_get(row, "build")))
        rc = err_set(e, HONE_EINPUT, "arm '%s': its `bench` does not say which build it is: too old to be compared", a->spec);
    if (!rc) {
        const char *output = json_string_value(json_object_get(row, "output_hash"));
        snprintf(r->first[i].hex, sizeof r->first[i].hex, "%s", output ? output : "");
        a->identity = arm_identity(a, row);
        *run_s = quantile_of(row, 0) / 1e9; /* the quickest: what held up this one will not hold up all */
        rc = !a->identity ? err_set(e, HONE_ERESOURCE, "no memory for an identity")
             : *run_s > 0 ? 0
                          : err_set(e, HONE_EINPUT, "arm '%s': a sample of no time", a->spec);
    }
    if (!rc)
        rc = arm_identify_libraries(a, e);
    json_decref(row);
    return rc;
}

/* ---- sessions of this process */

struct seat {
    struct hone_session *session;
    struct measure *measure;
    struct hone_session_params params;
};

static void seat_leave(struct rig *r, struct seat *s)
{
    if (r->o.session)
        r->o.session(r->o.user, NULL);
    measure_close(s->measure);
    hone_session_free(s->session);
    *s = (struct seat){0};
}

static int seat_take(struct rig *r, const struct arm *a, const struct arm_test *t, struct seat *s, struct hone_error *e)
{
    int n = t->n_depth + t->n_prompt + t->n_gen;
    struct measure_test test = {t->n_prompt, t->n_gen, t->n_depth, 2048};
    struct hone_error own = {0};
    *s = (struct seat){.params = arm_params(a, n < 64 ? 64 : n)};
    int rc = hone_session_create(&s->session, r->model, &s->params, &own);
    if (!rc && r->o.session)
        r->o.session(r->o.user, s->session);
    if (!rc)
        rc = measure_open(&s->measure, s->session, &s->params, r->model, &test, NULL, &own);
    if (rc) {
        seat_leave(r, s);
        err_set(e, own.code, "arm '%s': %s", a->spec, own.message);
    }
    return rc;
}

/* The runs' times, ascending, into ns (test.repeats of them), and the hash. */
static int session_runs(struct rig *r, const struct arm *a, const struct arm_test *t, double *ns, struct sha256 *hash,
                        bool *steady, struct hone_error *e)
{
    struct seat s;
    struct measure_output output;
    int rc = seat_take(r, a, t, &s, e);
    if (rc)
        return rc;
    *steady = true;
    rc = measure_hash(s.measure, &output, e);
    for (int i = 0; i < t->repeats && !rc; i++) {
        struct measure_sample one = {0};
        rc = cancelled(r) ? err_set(e, HONE_ECANCELED, "cancelled") : measure_once(s.measure, &one, e);
        ns[i] = (double)one.ns;
        *steady &= one.same;
    }
    seat_leave(r, &s);
    if (!rc)
        stats_sort(ns, (size_t)t->repeats);
    *hash = output.output;
    return rc;
}

static int session_sample(struct rig *r, int arm, struct ab_sample *s, struct hone_error *e)
{
    double ns[MAX_REPEATS];
    struct sha256 hash;
    bool steady;
    int rc = session_runs(r, &r->arms[arm], &r->test, ns, &hash, &steady, e);
    if (rc)
        return rc;
    s->ns = stats_quantile(ns, (size_t)r->test.repeats, decile);
    set_output(r, arm, s, hash.hex, steady);
    return 0;
}

/* A row as `hone bench` would give it, of what tells arms apart. */
static json_t *session_row(struct rig *r, const struct arm *a, const struct arm_test *t, struct hone_error *e)
{
    struct seat s;
    struct workload work;
    struct measure_test test = {t->n_prompt, t->n_gen, t->n_depth, 2048};
    if (seat_take(r, a, t, &s, e))
        return NULL;
    struct hone_session_params p = s.params;
    json_t *row = NULL, *build = identity_build(a->set.plugins, e),
           *recipe = build ? identity_recipe(a->set.recipe, a->set.gates, NULL, NULL, a->set.plugins, e) : NULL;
    if (recipe && !workload_of(&work, s.session, r->model, &test, p.n_batch, e)) {
        int threads;
        devices_of(&p, &threads);
        row = json_pack("{s:O, s:O, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:O, s:O, s:i}", "build", build, "recipe", recipe,
                        "n_ubatch", p.n_batch, "n_threads", threads, "poll", p.poll, "type_k", p.type_k ? p.type_k : "default",
                        "type_v", p.type_v ? p.type_v : "default", "split_mode", p.split_mode ? p.split_mode : "none",
                        "tensor_split", p.tensor_split ? p.tensor_split : "0", "devices", p.devices ? p.devices : "auto",
                        "kernels", work.kernels, "fallbacks", work.fallbacks, "gates_unfit", work.gates_unfit);
        workload_free(&work);
        if (!row)
            err_set(e, HONE_ERESOURCE, "no memory for an identity");
    }
    json_decref(build);
    json_decref(recipe);
    seat_leave(r, &s);
    return row;
}

static int session_open(struct rig *r, int i, double *run_s, struct hone_error *e)
{
    struct arm *a = &r->arms[i];
    struct arm_test t = probe_test(r);
    double ns[MIN_REPEATS] = {0};
    bool steady;
    int rc = arm_fits_process(a, e);
    json_t *row = rc ? NULL : session_row(r, a, &t, e);
    if (!rc && !row)
        rc = e->code;
    if (!rc)
        rc = session_runs(r, a, &t, ns, &r->first[i], &steady, e);
    if (!rc) {
        a->identity = arm_identity(a, row);
        rc = a->identity ? 0 : err_set(e, HONE_ERESOURCE, "no memory for an identity");
    }
    *run_s = ns[0] / 1e9;
    json_decref(row);
    return rc;
}

/* ---- both */

static void look_at_file(struct model_file *f, const char *path)
{
    struct stat st = {0};
    *f = (struct model_file){.path = path};
    if (stat(path, &st) == 0) {
        f->size = st.st_size;
        f->mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        f->inode = (int64_t)st.st_ino;
    }
}

static int hash_progress(void *user, float done)
{
    (void)done;
    return cancelled(user);
}

/* The model's hash into the identity; the base's model stays open. Another arm's own is opened for the hash alone. */
static int identify_model(struct rig *r, int i, struct hone_error *e)
{
    struct arm *a = &r->arms[i];
    struct hone_model *m = NULL;
    json_t *identity = NULL;
    if (i && !strcmp(a->set.model, r->arms[0].set.model)) {
        identity = json_incref(r->model_identity);
    } else {
        int rc = i ? hone_model_open(&m, a->set.model, e) : 0;
        identity = rc ? NULL : identity_model((i ? m : r->model)->model, r->o.cache, hash_progress, r, e);
        hone_model_close(m);
    }
    if (!identity)
        return e->code;
    if (!i)
        r->model_identity = json_incref(identity);
    json_object_set(a->identity, "model.sha256", json_object_get(identity, "sha256"));
    json_decref(identity);
    return 0;
}

int rig_open(struct rig *r, struct arm *arms, int n_arms, const struct rig_options *o, struct hone_error *e)
{
    *r = (struct rig){.arms = arms, .n_arms = n_arms, .o = *o};
    r->files = calloc((size_t)n_arms, sizeof *r->files);
    r->first = calloc((size_t)n_arms, sizeof *r->first);
    int rc = r->files && r->first ? 0 : err_set(e, HONE_ERESOURCE, "no memory for %d arms", n_arms);
    for (int i = 0; i < n_arms && !rc; i++) {
        if (!arms[i].set.model)
            return err_set(e, HONE_EUSAGE, "arm '%s': which model? give -m FILE, or model=FILE in the arm", arms[i].spec);
        look_at_file(&r->files[i], arms[i].set.model);
    }
    if (!rc) {
        tell(r, "opening the model");
        rc = hone_model_open(&r->model, arms[0].set.model, e);
    }
    double run_s = 0;
    cpu_cores(); /* hwloc loads its libraries now, and not between the identities of two arms */
    for (int i = 0; i < n_arms && !rc; i++) {
        double s = 0;
        int64_t start = clock_ns();
        tell(r, "a first run of each arm");
        rc = o->in_process ? session_open(r, i, &s, e) : fresh_open(r, i, &s, e);
        run_s = s > run_s ? s : run_s;
        r->sample_s = fmax(r->sample_s, (double)(clock_ns() - start) / 1e9 - MIN_REPEATS * s);
        if (!rc && cancelled(r))
            rc = err_set(e, HONE_ECANCELED, "cancelled");
    }
    for (int i = 0; i < n_arms && !rc; i++) {
        tell(r, "hashing the model");
        rc = identify_model(r, i, e);
    }
    if (!rc) {
        choose_length(r, run_s);
        /* The first session packs the weights, later ones find them so: what they cost is a plan and a warm-up, about as much again. */
        r->sample_s = r->test.repeats * r->run_s + (o->in_process ? r->test.repeats * r->run_s : r->sample_s);
    }
    return rc;
}

void rig_close(struct rig *r)
{
    hone_model_close(r->model);
    json_decref(r->model_identity);
    free(r->files);
    free(r->first);
    *r = (struct rig){0};
}

int rig_sample(void *user, int arm, struct ab_sample *s, struct hone_error *e)
{
    struct rig *r = user;
    return r->o.in_process ? session_sample(r, arm, s, e) : fresh_sample(r, arm, s, e);
}

int rig_check(const struct rig *r, struct hone_error *e)
{
    for (int i = 0; i < r->n_arms; i++) {
        struct model_file now;
        look_at_file(&now, r->files[i].path);
        if (now.size != r->files[i].size || now.mtime != r->files[i].mtime || now.inode != r->files[i].inode)
            return err_set(e, HONE_ECHECK, "%s was replaced or written to while it was measured", now.path);
    }
    return 0;
}
