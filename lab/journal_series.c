/* journal_series.c: the samples of a run by series, and series over time.
 *
 * A history puts only like with like: the same kind of run on the same machine and model with the same config. Build and recipe
 * may change: they are what a history is about. The index on samples holds name, run and value, so 100,000 samples are read in
 * order without a look at their records, each run's values already sorted for its median. */
#include "lab/journal_store.h"

#include "lab/identity.h"
#include "lab/stats.h"

#include <stdlib.h>
#include <string.h>

bool journal_larger_better(const char *series)
{
    const char *unit = strrchr(series, ' ');
    size_t n = unit ? strlen(unit) : 0;
    return n > 2 && !strcmp(unit + n - 2, "/s");
}

/* Room for one more in an array that doubles. */
static void *grow(void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return list;
    size_t larger = *cap ? 2 * *cap : 16;
    void *p = reallocarray(list, larger, size);
    if (p)
        *cap = larger;
    return p;
}

/* ---- the series of one run */

const struct journal_series *journal_series_find(const struct journal_series_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->list[i].name, name))
            return &l->list[i];
    return NULL;
}

void journal_series_free(struct journal_series_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->list[i].name);
        free(l->list[i].values);
    }
    free(l->list);
    *l = (struct journal_series_list){0};
}

/* The series of a name, made if need be; NULL: no memory. last: where the sample before went. */
static struct journal_series *series_for(struct journal_series_list *l, const char *name, size_t *last)
{
    if (*last < l->n && !strcmp(l->list[*last].name, name))
        return &l->list[*last];
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->list[i].name, name)) {
            *last = i;
            return &l->list[i];
        }
    struct journal_series *larger = grow(l->list, l->n, &l->cap, sizeof *larger);
    char *copy = strdup(name);
    if (larger)
        l->list = larger;
    if (!larger || !copy) {
        free(copy);
        return NULL;
    }
    *last = l->n;
    l->list[l->n] = (struct journal_series){.name = copy};
    return &l->list[l->n++];
}

int journal_series(struct journal *j, int64_t run, struct journal_series_list *out, struct hone_error *e)
{
    struct hone_error own = {0};
    struct record_place p;
    sqlite3_stmt *s = NULL;
    size_t last = 0;
    *out = (struct journal_series_list){0};
    int rc = store_run(j, run, &p, &own);
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT name, value FROM record INDEXED BY record_run WHERE chain = ?1 AND run = ?2 AND kind = "
                            "'sample' ORDER BY number",
                            &own);
    if (!rc) {
        sqlite3_bind_int64(s, 1, p.chain);
        sqlite3_bind_int64(s, 2, p.number);
    }
    while (!rc && store_step(j, s, &own)) {
        const char *name;
        if ((rc = column_text(j, s, 0, false, &name, &own)))
            break;
        if (sqlite3_column_type(s, 1) != SQLITE_FLOAT) {
            rc = err_set(&own, HONE_EINPUT, "%s: a sample's value is no number: the file is damaged", j->path);
            break;
        }
        struct journal_series *one = series_for(out, name, &last);
        double *larger = one ? grow(one->values, one->n, &one->cap, sizeof *larger) : NULL;
        if (!larger) {
            rc = err_set(&own, HONE_ERESOURCE, "%s: no memory for samples", j->path);
            break;
        }
        one->values = larger;
        one->values[one->n++] = sqlite3_column_double(s, 1);
    }
    rc = rc ? rc : own.code;
    sqlite3_finalize(s);
    if (rc) {
        journal_series_free(out);
        if (e)
            *e = own;
    }
    return rc;
}

/* ---- series over time */

/* What a point needs to know of its run. */
struct known_run {
    int64_t chain, number, id, at;
    json_t *of, *build, *recipe; /* owned */
    char *key;                   /* of as text: runs alike have the same */
};
struct known_runs {
    struct journal *j;
    struct known_run *list;
    size_t n, cap;
};

static int know_run(void *user, const struct run_row *r, struct hone_error *e)
{
    struct known_runs *k = user;
    if (identity_diagnostic(json_object_get(r->identities[3], "gates"))) /* it stays in the journal, and is no point of a history */
        return 0;
    struct known_run *larger = grow(k->list, k->n, &k->cap, sizeof *larger);
    if (!larger)
        return err_set(e, HONE_ERESOURCE, "%s: no memory for runs", k->j->path);
    k->list = larger;
    json_t *of = json_pack("{s:s}", "kind", r->kind), *config = json_object_get(r->body, "config");
    if (r->identities[1])
        json_object_set(of, "machine", r->identities[1]);
    if (r->identities[2])
        json_object_set(of, "model", r->identities[2]);
    if (config)
        json_object_set(of, "config", config);
    char *key = of ? body_text(of) : NULL;
    if (!key) {
        json_decref(of);
        return err_set(e, HONE_ERESOURCE, "%s: no memory for runs", k->j->path);
    }
    k->list[k->n++] = (struct known_run){
        r->chain, r->number, r->id, r->at, of, json_incref(r->identities[0]), json_incref(r->identities[3]), key};
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct known_run *x = a, *y = b;
    if (x->chain != y->chain)
        return x->chain < y->chain ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void forget_runs(struct known_runs *k)
{
    for (size_t i = 0; i < k->n; i++) {
        json_decref(k->list[i].of);
        json_decref(k->list[i].build);
        json_decref(k->list[i].recipe);
        free(k->list[i].key);
    }
    free(k->list);
}

/* The values of one series of one run, as the index gives them: sorted. */
struct group {
    char *name;
    int64_t chain, run;
    double *values;
    size_t n, cap;
};

/* The history that a run of this key belongs to, among those of the series at hand, which are the last ones. */
static struct journal_history *history_for(struct journal_histories *h, size_t first, char **keys, const char *name,
                                           const struct known_run *r)
{
    for (size_t i = first; i < h->n; i++)
        if (!strcmp(keys[i - first], r->key))
            return &h->list[i];
    struct journal_history *larger = grow(h->list, h->n, &h->cap, sizeof *larger);
    char *copy = strdup(name);
    if (larger)
        h->list = larger;
    if (!larger || !copy) {
        free(copy);
        return NULL;
    }
    keys[h->n - first] = r->key;
    h->list[h->n] = (struct journal_history){.name = copy, .of = json_incref(r->of)};
    return &h->list[h->n++];
}

struct gathering {
    struct known_runs runs;
    struct journal_histories *out;
    char *series; /* at hand */
    size_t first; /* its first history */
    char **keys;  /* of its histories; room for one a run */
};

/* A group is complete: a point. */
static int add_point(struct gathering *a, const struct group *g)
{
    struct known_run key = {.chain = g->chain, .number = g->run};
    const struct known_run *r = a->runs.n ? bsearch(&key, a->runs.list, a->runs.n, sizeof key, by_place) : NULL;
    if (!g->n || !r)
        return 0; /* the filter did not want the run */
    if (!a->series || strcmp(a->series, g->name) != 0) {
        free(a->series);
        a->series = strdup(g->name);
        a->first = a->out->n;
    }
    struct journal_history *h = a->series ? history_for(a->out, a->first, a->keys, g->name, r) : NULL;
    struct journal_point *larger = h ? grow(h->points, h->n, &h->cap, sizeof *larger) : NULL;
    if (!larger)
        return HONE_ERESOURCE;
    h->points = larger;
    h->points[h->n++] = (struct journal_point){
        r->id, r->at, stats_quantile(g->values, g->n, 0.5), g->n, json_incref(r->build), json_incref(r->recipe)};
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct journal_point *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->run < y->run ? -1 : x->run > y->run;
}

/* One row of the index: into the group at hand, or the first of the next. */
static int add_value(struct journal *j, sqlite3_stmt *s, struct gathering *a, struct group *g, struct hone_error *e)
{
    const char *name;
    int64_t chain, run;
    int rc = column_text(j, s, 0, false, &name, e);
    rc = rc ? rc : column_integer(j, s, 1, 1, &chain, e);
    rc = rc ? rc : column_integer(j, s, 2, 1, &run, e);
    if (rc)
        return rc;
    if (sqlite3_column_type(s, 3) != SQLITE_FLOAT)
        return err_set(e, HONE_EINPUT, "%s: a sample's value is no number: the file is damaged", j->path);
    if (!g->name || g->chain != chain || g->run != run || strcmp(g->name, name) != 0) {
        char *copy = g->name && !strcmp(g->name, name) ? g->name : strdup(name);
        if (!copy || add_point(a, g)) {
            if (copy != g->name)
                free(copy);
            return err_set(e, HONE_ERESOURCE, "%s: no memory for a history", j->path);
        }
        if (copy != g->name)
            free(g->name);
        *g = (struct group){copy, chain, run, g->values, 0, g->cap};
    }
    double *larger = grow(g->values, g->n, &g->cap, sizeof *larger);
    if (!larger)
        return err_set(e, HONE_ERESOURCE, "%s: no memory for a history", j->path);
    g->values = larger;
    g->values[g->n++] = sqlite3_column_double(s, 3);
    return 0;
}

int journal_history(struct journal *j, const struct journal_filter *f, struct journal_histories *out, struct hone_error *e)
{
    struct hone_error own = {0};
    struct gathering a = {.runs = {.j = j}, .out = out};
    struct group g = {0};
    sqlite3_stmt *s = NULL;
    *out = (struct journal_histories){0};
    int rc = store_each_run(j, f, know_run, &a.runs, &own);
    if (!rc && !(a.keys = calloc(a.runs.n + 1, sizeof *a.keys)))
        rc = err_set(&own, HONE_ERESOURCE, "%s: no memory for runs", j->path);
    if (!rc && a.runs.n)
        qsort(a.runs.list, a.runs.n, sizeof *a.runs.list, by_place);
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT name, chain, run, value FROM record INDEXED BY record_series WHERE kind = 'sample' AND "
                            "name GLOB ?1 ORDER BY name, "
                            "chain, run, value",
                            &own);
    if (!rc)
        sqlite3_bind_text(s, 1, f->series ? f->series : "*", -1, SQLITE_STATIC);
    while (!rc && a.runs.n && store_step(j, s, &own))
        rc = add_value(j, s, &a, &g, &own);
    rc = rc ? rc : own.code;
    if (!rc && add_point(&a, &g))
        rc = err_set(&own, HONE_ERESOURCE, "%s: no memory for a history", j->path);
    for (size_t i = 0; i < out->n && !rc; i++)
        qsort(out->list[i].points, out->list[i].n, sizeof *out->list[i].points, by_time);
    sqlite3_finalize(s);
    forget_runs(&a.runs);
    free(a.keys);
    free(a.series);
    free(g.name);
    free(g.values);
    if (rc) {
        journal_history_free(out);
        if (e)
            *e = own;
    }
    return rc;
}

void journal_history_free(struct journal_histories *h)
{
    for (size_t i = 0; i < h->n; i++) {
        for (size_t k = 0; k < h->list[i].n; k++) {
            json_decref(h->list[i].points[k].build);
            json_decref(h->list[i].points[k].recipe);
        }
        free(h->list[i].points);
        free(h->list[i].name);
        json_decref(h->list[i].of);
    }
    free(h->list);
    *h = (struct journal_histories){0};
}
