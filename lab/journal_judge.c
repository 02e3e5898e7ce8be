/* journal_judge.c: conclusions from a journal. A record of a verdict says what was concluded once; here it is concluded again,
 * by the rules of today from the samples of then, and a difference is shown. So a rule that was wrong needs no edit of the
 * past. */
#include "lab/journal_judge.h"

#include "lab/ab_record.h"
#include "lab/shift.h"
#include "lab/stats.h"
#include "lab/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *judged_name(enum judged j)
{
    return j == JUDGED_BETTER ? "better" : j == JUDGED_WORSE ? "worse" : "unclear";
}

/* ---- two runs */

/* In place: logarithms. False when a value has none. */
static bool to_logs(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] > 0))
            return false;
        x[i] = log(x[i]);
    }
    return true;
}

static double median_of(const struct journal_series *s, double *scratch)
{
    memcpy(scratch, s->values, s->n * sizeof *scratch);
    return stats_median(scratch, s->n);
}

static int contrast(struct journal_contrast *c, const char *name, const struct journal_series *a,
                    const struct journal_series *b, double level, struct hone_error *e)
{
    size_t n = (a ? a->n : 0) + (b ? b->n : 0);
    double *x = calloc(n + 1, sizeof *x), *y = a ? x + a->n : x;
    *c = (struct journal_contrast){.series = strdup(name), .n_a = a ? a->n : 0, .n_b = b ? b->n : 0};
    int rc = x && c->series ? 0 : err_set(e, HONE_ERESOURCE, "no memory to compare");
    if (!rc && a)
        c->median_a = median_of(a, x);
    if (!rc && b)
        c->median_b = median_of(b, y);
    if (!rc && a && b && to_logs(x, a->n) && to_logs(y, b->n)) {
        struct shift s;
        rc = shift_make(&s, x, a->n, y, b->n, level, e);
        c->has_ratio = rc == 0;
        c->ratio = exp(s.estimate);
        c->lo = exp(s.lo);
        c->hi = exp(s.hi);
        bool larger = journal_larger_better(name);
        if (!rc && (c->lo > 1 || c->hi < 1))
            c->word = (c->lo > 1) == larger ? JUDGED_BETTER : JUDGED_WORSE;
    }
    free(x);
    return rc;
}

int journal_compare(struct journal *j, int64_t a, int64_t b, double level, struct journal_contrast **list, size_t *n,
                    struct hone_error *e)
{
    struct hone_error own = {0};
    struct journal_series_list x = {0}, y = {0};
    *n = 0;
    *list = NULL;
    int rc = journal_series(j, a, &x, &own);
    rc = rc ? rc : journal_series(j, b, &y, &own);
    if (!rc && !(*list = calloc(x.n + y.n + 1, sizeof **list)))
        rc = err_set(&own, HONE_ERESOURCE, "no memory to compare");
    for (size_t i = 0; i < x.n && !rc; i++) {
        rc = contrast(&(*list)[*n], x.list[i].name, &x.list[i], journal_series_find(&y, x.list[i].name), level, &own);
        ++*n;
    }
    for (size_t i = 0; i < y.n && !rc; i++)
        if (!journal_series_find(&x, y.list[i].name)) {
            rc = contrast(&(*list)[*n], y.list[i].name, NULL, &y.list[i], level, &own);
            ++*n;
        }
    journal_series_free(&x);
    journal_series_free(&y);
    if (rc) {
        journal_contrasts_free(*list, *n);
        *list = NULL;
        *n = 0;
        if (e)
            *e = own;
    }
    return rc;
}

void journal_contrasts_free(struct journal_contrast *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i].series);
    free(list);
}

static void add_differences(json_t *list, const char *path, json_t *a, json_t *b);

/* The same of one member. */
static void add_member(json_t *list, const char *path, const char *key, json_t *a, json_t *b)
{
    char *below = NULL;
    if (strcmp(key, "hash") != 0 && asprintf(&below, "%s.%s", path, key) >= 0) { /* what a hash stands for is beside it */
        add_differences(list, below, a, b);
        free(below);
    }
}

/* Adds where a and b differ, below the path. */
static void add_differences(json_t *list, const char *path, json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    if (a == b || json_equal(a, b))
        return;
    if (!json_is_object(a) || !json_is_object(b)) {
        json_t *d = json_pack("{s:s, s:O?, s:O?}", "what", path, "a", a, "b", b);
        if (d)
            json_array_append_new(list, d);
        return;
    }
    json_object_foreach(a, key, value) add_member(list, path, key, value, json_object_get(b, key));
    json_object_foreach(b, key, value) if (!json_object_get(a, key)) add_member(list, path, key, NULL, value);
}

json_t *journal_differences(const json_t *a, const json_t *b)
{
    static const char *const parts[] = {"kind", "machine", "model", "build", "recipe", "config"};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof parts / sizeof *parts && list; i++)
        add_differences(list, parts[i], json_object_get(a, parts[i]), json_object_get(b, parts[i]));
    return list;
}

/* ---- histories */

/* How much neighbours have in common once the levels are taken off: the lag-1 correlation. */
static double neighbours(const struct journal_history *h, const struct changepoint *c, size_t n)
{
    double last = 0, product = 0, square = 0;
    size_t at = 0;
    for (size_t i = 0; i < h->n; i++) {
        while (at < n && i >= c[at].at)
            at++;
        double level = at ? c[at - 1].after : n ? c[0].before : 0, x = h->points[i].median - level;
        if (i)
            product += last * x;
        square += x * x;
        last = x;
    }
    return square > 0 ? product / square : 0;
}

static int find_trend(struct journal_trend *t, const struct journal_history *h, double alpha, double margin,
                      struct hone_error *e)
{
    double *x = calloc(h->n + 1, sizeof *x), *scratch = calloc(h->n + 1, sizeof *x);
    *t = (struct journal_trend){.history = h};
    int rc = x && scratch ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a history");
    for (size_t i = 0; i < h->n && !rc; i++)
        x[i] = scratch[i] = h->points[i].median;
    rc = rc ? rc : changepoint_find(x, h->n, alpha, &t->changes, &t->n, e);
    if (!rc) {
        struct changepoint none = {.before = stats_median(scratch, h->n)};
        t->correlation = t->n ? neighbours(h, t->changes, t->n) : neighbours(h, &none, 1);
        t->correlated = h->n >= 8 && fabs(t->correlation) > 2.6 / sqrt((double)h->n); /* a level of 1 %, two-sided */
    }
    if (!rc && t->n) {
        const struct changepoint *c = &t->changes[t->n - 1];
        double gain = (c->after - c->before) / fabs(c->before) * (journal_larger_better(h->name) ? 1 : -1);
        t->worse = gain < -margin;
    }
    free(x);
    free(scratch);
    return rc;
}

int journal_regress(const struct journal_histories *h, double alpha, double margin, struct journal_trend **list,
                    struct hone_error *e)
{
    struct hone_error own = {0};
    size_t tests = 0;
    *list = calloc(h->n + 1, sizeof **list);
    int rc = *list ? 0 : err_set(&own, HONE_ERESOURCE, "no memory for histories");
    for (size_t i = 0; i < h->n; i++)
        tests += h->list[i].n > 2 * CHANGEPOINT_MIN;
    for (size_t i = 0; i < h->n && !rc; i++)
        rc = find_trend(&(*list)[i], &h->list[i], alpha / (double)(tests ? tests : 1), margin, &own);
    if (rc) {
        journal_trends_free(*list, *list ? h->n : 0);
        *list = NULL;
        if (e)
            *e = own;
    }
    return rc;
}

void journal_trends_free(struct journal_trend *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i].changes);
    free(list);
}

/* ---- verdicts */

/* A check is right when no kernel of it has a fault. */
static int rederive_check(struct journal *j, int64_t id, json_t **verdict, struct hone_error *e)
{
    json_t *checks, *check;
    size_t i;
    json_int_t faults = 0, kernels = 0, not_run = 0;
    int rc = journal_records(j, id, "check", &checks, e);
    json_array_foreach(checks, i, check)
    {
        const json_t *body = json_object_get(check, "body");
        faults += json_integer_value(json_object_get(body, "faults")) + json_is_true(json_object_get(body, "untested"));
        not_run += json_integer_value(json_object_get(body, "not_run"));
        kernels++;
    }
    json_decref(checks);
    if (!rc && !(*verdict = json_pack("{s:s, s:I, s:I, s:I}", "verdict",
                                      faults    ? "faults"
                                      : not_run ? "incomplete"
                                                : "right",
                                      "kernels", kernels, "faults", faults, "not_run", not_run)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a verdict");
    return rc;
}

/* A ladder has come to its end when its last rung, everything local, was kept with nothing left on a reference and no step
 * declined. */
static int rederive_ladder(struct journal *j, int64_t id, json_t **verdict, struct hone_error *e)
{
    json_t *rungs, *rung;
    size_t i;
    bool all_local = false;
    json_int_t kept = 0;
    int rc = journal_records(j, id, "check", &rungs, e);
    json_array_foreach(rungs, i, rung)
    {
        const json_t *body = json_object_get(rung, "body");
        const char *kind = json_string_value(json_object_get(body, "kind"));
        bool stands = json_is_true(json_object_get(body, "kept"));
        kept += stands;
        all_local = kind && !strcmp(kind, "local") && stands && json_integer_value(json_object_get(body, "references")) == 0 &&
                    json_integer_value(json_object_get(body, "declined")) == 0;
    }
    if (!rc && !(*verdict = json_pack("{s:s, s:I, s:I}", "verdict", all_local ? "all local" : "not all local", "rungs",
                                      (json_int_t)json_array_size(rungs), "kept", kept)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a verdict");
    json_decref(rungs);
    return rc;
}

static const json_t *last_body(const json_t *records)
{
    return json_object_get(json_array_get(records, json_array_size(records) - 1), "body");
}

static int rederive_verify(struct journal *j, int64_t id, json_t **verdict, struct hone_error *e)
{
    json_t *found;
    int rc = journal_records(j, id, "verdict", &found, e);
    if (!rc && json_array_size(found) &&
        !(*verdict = json_pack("{s:s}", "verdict", verify_class_name(verify_rederive(last_body(found))))))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a verdict");
    json_decref(found);
    return rc;
}

static int add_loss(void *user, const struct journal_sample *s)
{
    double *sum = user;
    sum[0] += s->value;
    sum[1]++;
    return 0;
}

/* Windows are of one length, so the perplexity is the exponential of the mean of their losses. It is a figure, not a class: agreement is
 * to within rounding, and shows as the same word. */
static int rederive_perplexity(struct journal *j, int64_t id, json_t **verdict, bool *agrees, struct hone_error *e)
{
    double sum[2] = {0};
    json_t *found;
    int rc = journal_records(j, id, "verdict", &found, e);
    if (!rc && json_array_size(found) && !(rc = journal_each_sample(j, id, add_loss, sum, e)) && sum[1] > 0) {
        double derived = exp(sum[0] / sum[1]), recorded = json_number_value(json_object_get(last_body(found), "perplexity"));
        *agrees = fabs(derived - recorded) <= 1e-9 * derived;
        if (!(*verdict = json_pack("{s:f, s:I}", "perplexity", derived, "windows", (json_int_t)sum[1])))
            rc = err_set(e, HONE_ERESOURCE, "no memory for a verdict");
    }
    json_decref(found);
    return rc;
}

int journal_rederive(struct journal *j, const json_t *run, json_t **verdict, bool *agrees, struct hone_error *e)
{
    struct hone_error own = {0};
    const char *kind = json_string_value(json_object_get(run, "kind"));
    int64_t id = json_integer_value(json_object_get(run, "id"));
    int rc = 0;
    *verdict = NULL;
    *agrees = true;
    if (kind && !strcmp(kind, "ab"))
        rc = ab_record_derive(j, id, verdict, &own);
    else if (kind && !strcmp(kind, "check"))
        rc = rederive_check(j, id, verdict, &own);
    else if (kind && !strcmp(kind, "ladder"))
        rc = rederive_ladder(j, id, verdict, &own);
    else if (kind && !strcmp(kind, "verify"))
        rc = rederive_verify(j, id, verdict, &own);
    else if (kind && !strcmp(kind, "perplexity"))
        rc = rederive_perplexity(j, id, verdict, agrees, &own);
    if (rc && e)
        *e = own;
    const json_t *recorded = json_object_get(run, "verdict");
    if (!rc && json_object_get(*verdict, "verdict") && recorded)
        *agrees = json_equal(json_object_get(*verdict, "verdict"), json_object_get(recorded, "verdict"));
    return rc;
}
