/* journal_read.c: runs, what was found of them, and their samples, as JSON.
 *
 * SQL finds what indices find (runs by time, records of a run); what is in the bodies is looked at here, where a damaged body
 * is an error with a name. SQLite's own JSON functions would call the whole query malformed. Builds, machines, models and
 * recipes are few and shared by many runs: each is read once. */
#include "lab/journal_store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void journal_time(int64_t at, char text[32])
{
    time_t seconds = (time_t)(at / 1000 - (at % 1000 < 0));
    struct tm t;
    text[0] = 0;
    if (!gmtime_r(&seconds, &t) || t.tm_year > 8099 || t.tm_year < -1900 || !strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &t)) {
        snprintf(text, 32, "%" PRId64, at); /* a time that no calendar has */
        return;
    }
    snprintf(text + strlen(text), 32 - strlen(text), ".%03dZ", (int)((at % 1000 + 1000) % 1000));
}

/* ---- builds, machines, models, recipes */

enum { BUILD, MACHINE, MODEL, RECIPE, N_IDENTITIES };
static const char *const identity_kinds[N_IDENTITIES] = {"build", "machine", "model", "recipe"};

#define IDENTITY_QUERY                                                                                                         \
    "SELECT body FROM record INDEXED BY record_identity WHERE name = ?1 AND kind = ?2 AND kind IN ('build', 'machine', "       \
    "'model', 'recipe') LIMIT 1"

struct reader {
    struct journal *j;
    const struct journal_filter *filter;
    json_t *identities;  /* "kind hash": the body, or null when the filter does not want it */
    json_t *superseded;  /* by hash of the run */
    json_t *with_series; /* "chain:number" of the runs that have the filter's series */
    sqlite3_stmt *identity;
};

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool wanted(const struct reader *r, int kind, const char *hash, const json_t *body)
{
    const struct journal_filter *f = r->filter;
    const char *word = kind == MODEL ? f->model : kind == RECIPE ? f->recipe : kind == MACHINE ? f->machine : NULL;
    if (!word || !strncmp(hash, word, strlen(word)))
        return true;
    if (kind == MODEL)
        return strcasestr(text_of(body, "name"), word) || !strncmp(text_of(body, "sha256"), word, strlen(word));
    char *text = body_text(body);
    bool found = text && strcasestr(text, word);
    free(text);
    return found;
}

/* The identity of a run by its hash; *out JSON null when the filter does not want it, NULL when the run has none. */
static int find_identity(struct reader *r, int kind, const char *hash, json_t **out, struct hone_error *e)
{
    char key[128];
    json_t *body = NULL;
    snprintf(key, sizeof key, "%s %.80s", identity_kinds[kind], hash);
    *out = json_object_get(r->identities, key);
    if (*out)
        return 0;
    sqlite3_bind_text(r->identity, 1, hash, -1, SQLITE_STATIC);
    sqlite3_bind_text(r->identity, 2, identity_kinds[kind], -1, SQLITE_STATIC);
    struct hone_error own = {0};
    int rc = 0;
    if (store_step(r->j, r->identity, &own))
        rc = column_body(r->j, r->identity, 0, &body, &own);
    else
        rc = own.code
                 ? own.code
                 : err_set(&own, HONE_EINPUT, "%s: the %s %.12s of a run is not there", r->j->path, identity_kinds[kind], hash);
    sqlite3_reset(r->identity);
    if (!rc && !wanted(r, kind, hash, body)) {
        json_decref(body);
        body = json_null();
    } else if (!rc) {
        json_object_set_new(body, "hash", json_string(hash));
    }
    if (!rc && json_object_set_new(r->identities, key, body))
        rc = err_set(&own, HONE_ERESOURCE, "%s: no memory", r->j->path);
    *out = rc ? NULL : body;
    if (rc && e)
        *e = own;
    return rc;
}

/* Fills row->identities; *ours false when the filter does not want the run. */
static int find_identities(struct reader *r, struct run_row *row, bool *ours, struct hone_error *e)
{
    const char *words[N_IDENTITIES] = {NULL, r->filter->machine, r->filter->model, r->filter->recipe};
    for (int i = 0; i < N_IDENTITIES && *ours; i++) {
        const json_t *hash = json_object_get(row->body, identity_kinds[i]);
        row->identities[i] = NULL;
        if (!json_is_string(hash)) {
            *ours = words[i] == NULL;
            continue;
        }
        if (find_identity(r, i, json_string_value(hash), &row->identities[i], e))
            return e ? e->code : HONE_EINPUT;
        if (json_is_null(row->identities[i]))
            *ours = false;
    }
    return 0;
}

/* ---- what supersedes what, and remarks on runs of other chains */

/* Hashes of the runs that some decision says another stands in the place of. */
static int read_superseded(struct reader *r, struct hone_error *e)
{
    sqlite3_stmt *s = NULL;
    struct hone_error own = {0};
    int rc = store_prepare(r->j, &s,
                           "SELECT body FROM record INDEXED BY record_kind WHERE kind = 'decision' AND kind <> 'sample'", &own);
    while (!rc && store_step(r->j, s, &own)) {
        json_t *body;
        if ((rc = column_body(r->j, s, 0, &body, &own)))
            break;
        const char *hash = text_of(body, "supersedes");
        if (*hash)
            json_object_set_new(r->superseded, hash, json_true());
        json_decref(body);
    }
    rc = own.code;
    sqlite3_finalize(s);
    if (rc && e)
        *e = own;
    return rc;
}

/* Which runs have a series that the filter names: one walk along the index. */
static int read_with_series(struct reader *r, struct hone_error *e)
{
    struct hone_error own = {0};
    sqlite3_stmt *s = NULL;
    char key[64];
    int rc = store_prepare(
        r->j, &s, "SELECT DISTINCT chain, run FROM record INDEXED BY record_series WHERE kind = 'sample' AND name GLOB ?1",
        &own);
    if (!rc)
        sqlite3_bind_text(s, 1, r->filter->series, -1, SQLITE_STATIC);
    while (!rc && store_step(r->j, s, &own)) {
        snprintf(key, sizeof key, "%lld:%lld", (long long)sqlite3_column_int64(s, 0), (long long)sqlite3_column_int64(s, 1));
        if (json_object_set_new(r->with_series, key, json_true()))
            rc = err_set(&own, HONE_ERESOURCE, "%s: no memory", r->j->path);
    }
    rc = own.code;
    sqlite3_finalize(s);
    if (rc && e)
        *e = own;
    return rc;
}

static bool has_series(const struct reader *r, const struct run_row *row)
{
    char key[64];
    snprintf(key, sizeof key, "%lld:%lld", (long long)row->chain, (long long)row->number);
    return json_object_get(r->with_series, key) != NULL;
}

/* ---- runs */

static int row_from(struct journal *j, sqlite3_stmt *s, struct run_row *row, struct hone_error *e)
{
    *row = (struct run_row){0};
    int rc = column_integer(j, s, 0, INT64_MIN, &row->id, e);
    rc = rc ? rc : column_integer(j, s, 1, 1, &row->chain, e);
    rc = rc ? rc : column_integer(j, s, 2, 1, &row->number, e);
    rc = rc ? rc : column_integer(j, s, 3, INT64_MIN, &row->at, e);
    rc = rc ? rc : column_text(j, s, 4, false, &row->kind, e);
    rc = rc ? rc : column_text(j, s, 5, false, &row->hash, e);
    return rc ? rc : column_body(j, s, 6, &row->body, e);
}

#define RUN_COLUMNS "id, chain, number, at, name, hash, body"

/* One row: whether the filter wants it, and what then is done with it. */
static int take_row(struct reader *r, sqlite3_stmt *s, int *n,
                    int (*each)(void *user, const struct run_row *r, struct hone_error *e), void *user, struct hone_error *e)
{
    const struct journal_filter *f = r->filter;
    struct run_row row;
    bool ours = true;
    int rc = row_from(r->j, s, &row, e);
    if (!rc && f->kind && strcmp(f->kind, row.kind) != 0)
        ours = false;
    if (!rc && ours && !f->superseded && json_object_get(r->superseded, row.hash))
        ours = false;
    if (!rc && ours)
        rc = find_identities(r, &row, &ours, e);
    if (!rc && ours && f->series)
        ours = has_series(r, &row);
    if (!rc && ours) {
        ++*n;
        rc = each(user, &row, e);
    }
    json_decref(row.body);
    return rc;
}

int store_each_run(struct journal *j, const struct journal_filter *f,
                   int (*each)(void *user, const struct run_row *r, struct hone_error *e), void *user, struct hone_error *e)
{
    struct hone_error own = {0};
    struct reader r = {
        .j = j, .filter = f, .identities = json_object(), .superseded = json_object(), .with_series = json_object()};
    sqlite3_stmt *s = NULL;
    int n = 0, rc = r.identities && r.superseded && r.with_series ? 0 : err_set(&own, HONE_ERESOURCE, "%s: no memory", j->path);
    rc = rc ? rc : store_prepare(j, &r.identity, IDENTITY_QUERY, &own);
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT " RUN_COLUMNS " FROM record INDEXED BY record_kind WHERE kind = 'run' AND "
                            "kind <> 'sample' AND at >= ?1 ORDER BY at DESC, id DESC",
                            &own);
    if (!rc && !f->superseded)
        rc = read_superseded(&r, &own);
    if (!rc && f->series)
        rc = read_with_series(&r, &own);
    if (!rc)
        sqlite3_bind_int64(s, 1, f->since ? f->since : INT64_MIN);
    while (!rc && (!f->limit || n < f->limit) && store_step(j, s, &own))
        rc = take_row(&r, s, &n, each, user, &own);
    rc = rc ? rc : own.code;
    sqlite3_finalize(s);
    sqlite3_finalize(r.identity);
    json_decref(r.identities);
    json_decref(r.superseded);
    json_decref(r.with_series);
    if (rc && e && own.code)
        *e = own;
    return rc;
}

/* ---- as JSON */

struct listing {
    struct journal *j;
    json_t *runs;
    sqlite3_stmt *count, *endings;
};

static int listing_open(struct listing *l, struct journal *j, struct hone_error *e)
{
    *l = (struct listing){.j = j, .runs = json_array()};
    int rc = l->runs ? 0 : err_set(e, HONE_ERESOURCE, "%s: no memory", j->path);
    rc = rc ? rc
            : store_prepare(
                  j, &l->count,
                  "SELECT count(*) FROM record INDEXED BY record_run WHERE chain = ?1 AND run = ?2 AND kind = 'sample'", e);
    return rc ? rc
              : store_prepare(j, &l->endings,
                              "SELECT kind, body FROM record INDEXED BY record_run WHERE chain = ?1 AND run = ?2 AND kind IN "
                              "('verdict', 'outcome', "
                              "'end') ORDER BY number",
                              e);
}

static void listing_close(struct listing *l)
{
    sqlite3_finalize(l->count);
    sqlite3_finalize(l->endings);
    json_decref(l->runs);
}

/* A finding that a list shows: of each kind the last one stands. */
static void add_finding(json_t *run, const char *kind, json_t *body)
{
    if (!strcmp(kind, "end"))
        json_object_set_new(run, "status", json_string(*text_of(body, "status") ? text_of(body, "status") : "done"));
    if (!strcmp(kind, "end") || !strcmp(kind, "outcome") || !strcmp(kind, "verdict"))
        json_object_set(run, kind, body);
}

/* How many samples a run has, how it ended, and what became of it. */
static int add_ending(struct listing *l, const struct run_row *r, json_t *run, struct hone_error *e)
{
    int rc = 0;
    sqlite3_bind_int64(l->count, 1, r->chain);
    sqlite3_bind_int64(l->count, 2, r->number);
    if (store_step(l->j, l->count, e))
        json_object_set_new(run, "samples", json_integer(sqlite3_column_int64(l->count, 0)));
    sqlite3_reset(l->count);
    json_object_set_new(run, "status", json_string("unfinished"));
    sqlite3_bind_int64(l->endings, 1, r->chain);
    sqlite3_bind_int64(l->endings, 2, r->number);
    while (!rc && !e->code && store_step(l->j, l->endings, e)) {
        const char *kind;
        json_t *body = NULL;
        rc = column_text(l->j, l->endings, 0, false, &kind, e);
        rc = rc ? rc : column_body(l->j, l->endings, 1, &body, e);
        if (!rc)
            add_finding(run, kind, body);
        json_decref(body);
    }
    sqlite3_reset(l->endings);
    if (e->code || r->chain == OWN_CHAIN)
        return e->code;
    json_t *records, *record; /* an imported run: what was said of it here is kept apart */
    size_t i;
    if (journal_records(l->j, r->id, NULL, &records, e))
        return e->code;
    json_array_foreach(records, i, record) add_finding(run, text_of(record, "kind"), json_object_get(record, "body"));
    json_decref(records);
    return 0;
}

static json_t *row_json(const struct run_row *r)
{
    static const char *const kept[] = {"command", "hypothesis", "expected_gain", "config", "state"};
    char at[32];
    journal_time(r->at, at);
    json_t *run = json_pack("{s:I, s:s, s:s, s:s, s:b}", "id", (json_int_t)r->id, "at", at, "kind", r->kind, "record", r->hash,
                            "imported", r->chain != OWN_CHAIN);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *value = json_object_get(r->body, kept[i]);
        if (value)
            json_object_set(run, kept[i], value);
    }
    for (int i = 0; i < N_IDENTITIES; i++)
        if (r->identities[i])
            json_object_set(run, identity_kinds[i], r->identities[i]);
    return run;
}

static int list_row(void *user, const struct run_row *r, struct hone_error *e)
{
    struct listing *l = user;
    json_t *run = row_json(r);
    if (!run)
        return err_set(e, HONE_ERESOURCE, "%s: no memory, or a run's kind is no UTF-8", l->j->path);
    int rc = add_ending(l, r, run, e);
    if (rc)
        json_decref(run);
    else if (json_array_append_new(l->runs, run))
        rc = err_set(e, HONE_ERESOURCE, "%s: no memory", l->j->path);
    return rc;
}

int journal_list(struct journal *j, const struct journal_filter *f, json_t **runs, struct hone_error *e)
{
    struct hone_error own = {0};
    struct listing l;
    *runs = NULL;
    int rc = listing_open(&l, j, &own);
    rc = rc ? rc : store_each_run(j, f, list_row, &l, &own);
    if (!rc)
        *runs = json_incref(l.runs);
    listing_close(&l);
    if (rc && e)
        *e = own;
    return rc;
}

int journal_get(struct journal *j, int64_t id, json_t **run, struct hone_error *e)
{
    struct hone_error own = {0};
    static const struct journal_filter all;
    struct record_place p;
    struct run_row row = {0};
    struct reader r = {.j = j, .filter = &all, .identities = json_object()};
    struct listing l;
    sqlite3_stmt *s = NULL;
    bool ours = true;
    *run = NULL;
    int rc = listing_open(&l, j, &own);
    rc = rc ? rc : r.identities ? store_run(j, id, &p, &own) : err_set(&own, HONE_ERESOURCE, "%s: no memory", j->path);
    rc = rc ? rc : store_prepare(j, &r.identity, IDENTITY_QUERY, &own);
    rc = rc ? rc : store_prepare(j, &s, "SELECT " RUN_COLUMNS " FROM record WHERE id = ?1", &own);
    if (!rc) {
        sqlite3_bind_int64(s, 1, id);
        if (store_step(j, s, &own))
            rc = row_from(j, s, &row, &own);
        rc = rc ? rc : own.code ? own.code : find_identities(&r, &row, &ours, &own);
        rc = rc ? rc : list_row(&l, &row, &own);
    }
    if (!rc)
        *run = json_incref(json_array_get(l.runs, 0));
    json_decref(row.body);
    json_decref(r.identities);
    sqlite3_finalize(r.identity);
    sqlite3_finalize(s);
    listing_close(&l);
    if (rc && e)
        *e = own;
    return rc;
}

/* ---- records of a run */

static int record_json(struct journal *j, sqlite3_stmt *s, const char *of, json_t *records, struct hone_error *e)
{
    int64_t id, at;
    const char *kind;
    json_t *body = NULL;
    char text[32];
    int rc = column_integer(j, s, 0, INT64_MIN, &id, e);
    rc = rc ? rc : column_integer(j, s, 1, INT64_MIN, &at, e);
    rc = rc ? rc : column_text(j, s, 2, false, &kind, e);
    rc = rc ? rc : column_body(j, s, 3, &body, e);
    if (rc)
        return rc;
    if (of && strcmp(text_of(body, "of"), of) != 0) {
        json_decref(body);
        return 0;
    }
    journal_time(at, text);
    json_t *record = json_pack("{s:I, s:s, s:s, s:o}", "id", (json_int_t)id, "at", text, "kind", kind, "body", body);
    return record && !json_array_append_new(records, record) ? 0 : err_set(e, HONE_ERESOURCE, "%s: no memory", j->path);
}

static int by_id(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "id")),
               y = json_integer_value(json_object_get(*(json_t *const *)b, "id"));
    return x < y ? -1 : x > y;
}

/* The index gives records of one run by kind; people want them as they came. */
static json_t *in_order(json_t *records)
{
    size_t n = json_array_size(records);
    json_t **list = calloc(n + 1, sizeof *list), *sorted = json_array();
    if (!list || !sorted) {
        free(list);
        json_decref(sorted);
        return records;
    }
    for (size_t i = 0; i < n; i++)
        list[i] = json_array_get(records, i);
    qsort(list, n, sizeof *list, by_id);
    for (size_t i = 0; i < n; i++)
        json_array_append(sorted, list[i]);
    free(list);
    json_decref(records);
    return sorted;
}

int journal_records(struct journal *j, int64_t run, const char *kind, json_t **records, struct hone_error *e)
{
    struct hone_error own = {0};
    struct record_place p;
    sqlite3_stmt *s = NULL, *remarks = NULL;
    json_t *list = json_array();
    *records = NULL;
    int rc = list ? store_run(j, run, &p, &own) : err_set(&own, HONE_ERESOURCE, "%s: no memory", j->path);
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT id, at, kind, body FROM record INDEXED BY record_run WHERE chain = ?1 AND run = ?2 AND "
                            "kind IN ('check', "
                            "'verdict', 'decision', 'note', "
                            "'outcome', 'end') AND (?3 IS NULL OR kind = ?3)",
                            &own);
    rc = rc ? rc
            : store_prepare(j, &remarks,
                            "SELECT id, at, kind, body FROM record INDEXED BY record_kind WHERE kind IN ('check', 'verdict', "
                            "'decision', 'note', 'outcome') AND "
                            "kind <> 'sample' AND run IS NULL AND (?3 IS NULL OR kind = ?3)",
                            &own);
    if (!rc) {
        sqlite3_bind_int64(s, 1, p.chain);
        sqlite3_bind_int64(s, 2, p.number);
        sqlite3_bind_text(s, 3, kind, -1, SQLITE_STATIC);
        sqlite3_bind_text(remarks, 3, kind, -1, SQLITE_STATIC);
    }
    while (!rc && store_step(j, s, &own))
        rc = record_json(j, s, NULL, list, &own);
    while (!rc && !own.code && p.chain != OWN_CHAIN && store_step(j, remarks, &own))
        rc = record_json(j, remarks, p.hash, list, &own);
    rc = rc ? rc : own.code;
    sqlite3_finalize(s);
    sqlite3_finalize(remarks);
    if (rc) {
        json_decref(list);
        if (e)
            *e = own;
        return rc;
    }
    *records = in_order(list);
    return 0;
}

/* ---- samples */

static int sample_row(struct journal *j, sqlite3_stmt *s, struct journal_sample *out, struct hone_error *e)
{
    *out = (struct journal_sample){0};
    int rc = column_integer(j, s, 0, INT64_MIN, &out->id, e);
    rc = rc ? rc : column_integer(j, s, 1, INT64_MIN, &out->at, e);
    rc = rc ? rc : column_text(j, s, 2, false, &out->series, e);
    if (!rc && sqlite3_column_type(s, 3) != SQLITE_FLOAT)
        rc = err_set(e, HONE_EINPUT, "%s: a sample's value is no number: the file is damaged", j->path);
    out->value = sqlite3_column_double(s, 3);
    return rc ? rc : column_body(j, s, 4, &out->more, e);
}

int journal_each_sample(struct journal *j, int64_t run, int (*each)(void *user, const struct journal_sample *s), void *user,
                        struct hone_error *e)
{
    struct hone_error own = {0};
    struct record_place p;
    sqlite3_stmt *s = NULL;
    int rc = store_run(j, run, &p, &own), stop = 0;
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT id, at, name, value, body FROM record INDEXED BY record_run WHERE chain = ?1 AND run = ?2 "
                            "AND kind = 'sample' "
                            "ORDER BY number",
                            &own);
    if (!rc) {
        sqlite3_bind_int64(s, 1, p.chain);
        sqlite3_bind_int64(s, 2, p.number);
    }
    while (!rc && !stop && store_step(j, s, &own)) {
        struct journal_sample sample;
        rc = sample_row(j, s, &sample, &own);
        if (!rc)
            stop = each(user, &sample);
        json_decref(sample.more);
    }
    rc = rc ? rc : own.code;
    sqlite3_finalize(s);
    if (rc && e)
        *e = own;
    return rc ? rc : stop;
}
