/* journal.c: opening a journal, and adding to it.
 *
 * Every record is a transaction that takes the write lock before it reads the last hash of the chain, so that two writers make
 * one chain, one after the other; with synchronous=FULL it is on the disk when the call returns. What that costs is in
 * docs/journal.md; a caller who cannot wait between two samples gathers them in a batch. A write-behind thread would hide the
 * cost and could not say what a crash has left.
 *
 * A file comes from anywhere: SQLite is told not to trust its schema, and every column is looked at before it is believed. */
#include "lab/journal_store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- SQLite */

int store_fail(struct journal *j, struct hone_error *e)
{
    int rc = sqlite3_extended_errcode(j->db), code;
    const char *what = sqlite3_errmsg(j->db), *hint = "";
    switch (rc & 0xff) {
    case SQLITE_NOTADB:
        return err_set(e, HONE_EINPUT, "%s: no journal: the file is not an SQLite database", j->path);
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
        code = HONE_EINPUT;
        hint = rc == SQLITE_CORRUPT ? "; the file is damaged" : "";
        break;
    case SQLITE_FULL:
        code = HONE_ERESOURCE;
        hint = "; what was recorded before is safe";
        break;
    case SQLITE_BUSY:
        code = HONE_ERESOURCE;
        hint = "; another process held it for a minute";
        break;
    case SQLITE_IOERR:
        code = HONE_ERESOURCE;
        hint = rc == SQLITE_IOERR_WRITE ? " (disk full, or a file size limit?); what was recorded before is safe" : "";
        break;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
    case SQLITE_NOMEM:
    case SQLITE_LOCKED:
    case SQLITE_INTERRUPT:
        code = HONE_ERESOURCE;
        break;
    default:
        code = HONE_EFAULT;
    }
    return err_set(e, code, "%s: %s%s", j->path, what, hint);
}

int store_prepare(struct journal *j, sqlite3_stmt **s, const char *sql, struct hone_error *e)
{
    return sqlite3_prepare_v2(j->db, sql, -1, s, NULL) ? store_fail(j, e) : 0;
}

int store_exec(struct journal *j, const char *sql, struct hone_error *e)
{
    return sqlite3_exec(j->db, sql, NULL, NULL, NULL) ? store_fail(j, e) : 0;
}

bool store_step(struct journal *j, sqlite3_stmt *s, struct hone_error *e)
{
    int rc = sqlite3_step(s);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        store_fail(j, e);
    return rc == SQLITE_ROW;
}

static int bad_column(struct journal *j, sqlite3_stmt *s, int i, const char *what, struct hone_error *e)
{
    return err_set(e, HONE_EINPUT, "%s: a record's %s is %s: the file is damaged", j->path, sqlite3_column_name(s, i), what);
}

int column_text(struct journal *j, sqlite3_stmt *s, int i, bool may_be_null, const char **out, struct hone_error *e)
{
    *out = NULL;
    int type = sqlite3_column_type(s, i);
    if (type == SQLITE_NULL && may_be_null)
        return 0;
    if (type != SQLITE_TEXT)
        return bad_column(j, s, i, "no text", e);
    *out = (const char *)sqlite3_column_text(s, i);
    if (!*out)
        return err_set(e, HONE_ERESOURCE, "%s: no memory for a record", j->path);
    return strlen(*out) == (size_t)sqlite3_column_bytes(s, i) ? 0 : bad_column(j, s, i, "a text with a zero byte", e);
}

int column_integer(struct journal *j, sqlite3_stmt *s, int i, int64_t least, int64_t *out, struct hone_error *e)
{
    *out = 0;
    if (sqlite3_column_type(s, i) != SQLITE_INTEGER)
        return bad_column(j, s, i, "no integer", e);
    *out = sqlite3_column_int64(s, i);
    return *out >= least ? 0 : bad_column(j, s, i, "negative", e);
}

int column_body(struct journal *j, sqlite3_stmt *s, int i, json_t **out, struct hone_error *e)
{
    const char *text;
    json_error_t why;
    *out = NULL;
    if (column_text(j, s, i, false, &text, e))
        return e->code;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (*out && json_is_object(*out))
        return 0;
    const char *what = *out ? "no object" : why.text;
    int rc = err_set(e, HONE_EINPUT, "%s: a record's body: %s: the file is damaged", j->path, what);
    json_decref(*out);
    *out = NULL;
    return rc;
}

int column_record(struct journal *j, sqlite3_stmt *s, int first, struct record *r, struct hone_error *e)
{
    *r = (struct record){0};
    int rc = column_text(j, s, first, false, &r->chain, e);
    rc = rc ? rc : column_integer(j, s, first + 1, INT64_MIN, &r->number, e);
    rc = rc ? rc : column_integer(j, s, first + 2, INT64_MIN, &r->at, e);
    rc = rc ? rc : column_text(j, s, first + 3, false, &r->kind, e);
    if (!rc && sqlite3_column_type(s, first + 4) != SQLITE_NULL)
        rc = column_integer(j, s, first + 4, 1, &r->run, e);
    rc = rc ? rc : column_text(j, s, first + 5, true, &r->name, e);
    r->has_value = sqlite3_column_type(s, first + 6) != SQLITE_NULL;
    if (!rc && r->has_value && sqlite3_column_type(s, first + 6) != SQLITE_FLOAT)
        rc = bad_column(j, s, first + 6, "no number", e);
    r->value = sqlite3_column_double(s, first + 6);
    rc = rc ? rc : column_text(j, s, first + 7, false, &r->body, e);
    rc = rc ? rc : column_text(j, s, first + 8, false, &r->previous, e);
    if (!rc && record_check(r, e))
        rc = err_prefix(e, "%s", j->path);
    return rc;
}

/* ---- opening */

static int open_file(struct journal *j, struct hone_error *e)
{
    struct stat st;
    bool there = stat(j->path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        return err_set(e, HONE_EINPUT, "%s: no regular file", j->path);
    if (!there && (errno != ENOENT || !j->writes))
        return err_set(e, errno == ENOENT ? HONE_EINPUT : HONE_ERESOURCE, "%s: %s", j->path,
                       errno == ENOENT ? "there is no journal (yet)" : strerror(errno));
    /* A path of ours is no URI, no name for memory, and no option. */
    char *path = NULL;
    if (asprintf(&path, "%s%s", j->path[0] == '/' ? "" : "./", j->path) < 0)
        return err_set(e, HONE_ERESOURCE, "no memory for a path");
    int flags = j->writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(path, &j->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    free(path);
    if (!j->db)
        return err_set(e, HONE_ERESOURCE, "%s: no memory to open it", j->path);
    if (rc)
        return store_fail(j, e);
    sqlite3_busy_timeout(j->db, BUSY_MS);
    sqlite3_limit(j->db, SQLITE_LIMIT_LENGTH, 2 * BODY_LIMIT);
    sqlite3_db_config(j->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(j->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return store_exec(
        j, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON", e);
}

static int read_own_chain(struct journal *j, struct hone_error *e)
{
    sqlite3_stmt *s = NULL;
    const char *name;
    int rc = store_prepare(j, &s, "SELECT name FROM chain WHERE id = 1", e);
    if (!rc && !store_step(j, s, e))
        rc = e->code ? e->code
                     : err_set(e, HONE_EINPUT, "%s: the journal has no chain of its own: the file is damaged", j->path);
    if (!rc && !(rc = column_text(j, s, 0, false, &name, e)))
        snprintf(j->chain, sizeof j->chain, "%s", name);
    sqlite3_finalize(s);
    return rc;
}

int journal_open(struct journal **out, const char *path, enum journal_mode mode, struct hone_error *e)
{
    struct hone_error own = {0};
    bool older = false;
    struct journal *j = calloc(1, sizeof *j);
    *out = NULL;
    if (!j || !(j->path = strdup(path))) {
        free(j);
        return err_set(e, HONE_ERESOURCE, "no memory for a journal");
    }
    j->writes = mode == JOURNAL_WRITE;
    int rc = open_file(j, &own);
    rc = rc ? rc : schema_open(j, &older, &own);
    if (!rc && older) { /* it becomes one of this version first, and then is read */
        journal_close(j);
        rc = journal_open(&j, path, JOURNAL_WRITE, e);
        if (rc)
            return rc;
        journal_close(j);
        return journal_open(out, path, mode, e);
    }
    rc = rc ? rc : read_own_chain(j, &own);
    if (rc) {
        journal_close(j);
        if (e)
            *e = own;
        return rc;
    }
    *out = j;
    return 0;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    sqlite3_finalize(j->last);
    sqlite3_finalize(j->insert);
    sqlite3_finalize(j->where);
    if (sqlite3_close(j->db)) /* a reader of ours forgot a statement */
        sqlite3_close_v2(j->db);
    line_free(&j->line);
    free(j->path);
    free(j);
}

const char *journal_path(const struct journal *j)
{
    return j->path;
}

/* ---- adding */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int store_transaction(struct journal *j, int (*work)(struct journal *j, void *user, struct hone_error *e), void *user,
                      struct hone_error *e)
{
    struct hone_error own = {0};
    if (!j->writes)
        return err_set(e, HONE_EFAULT, "%s: opened to be read", j->path);
    if (j->broken.code) {
        if (e)
            *e = j->broken;
        return j->broken.code;
    }
    int rc = j->batch ? 0 : store_exec(j, "BEGIN IMMEDIATE", &own);
    if (!rc) {
        rc = work(j, user, &own);
        if (!rc && !j->batch)
            rc = store_exec(j, "COMMIT", &own);
        if (rc && !j->batch)
            sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL); /* harmless where SQLite has done so */
    }
    if (rc && j->batch)
        j->broken = own;
    if (rc && e)
        *e = own;
    return rc;
}

int journal_batch_begin(struct journal *j, struct hone_error *e)
{
    if (!j)
        return 0;
    INVARIANT(!j->batch);
    if (!j->writes)
        return err_set(e, HONE_EFAULT, "%s: opened to be read", j->path);
    int rc = store_exec(j, "BEGIN IMMEDIATE", e);
    j->batch = rc == 0;
    return rc;
}

int journal_batch_end(struct journal *j, struct hone_error *e)
{
    if (!j || !j->batch)
        return 0;
    struct hone_error own = j->broken;
    int rc = own.code ? own.code : store_exec(j, "COMMIT", &own);
    if (rc)
        sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL);
    j->batch = false;
    j->broken = (struct hone_error){0};
    if (rc && e)
        *e = own;
    return rc;
}

int store_place(struct journal *j, int64_t id, struct record_place *p, struct hone_error *e)
{
    *p = (struct record_place){0};
    if (!j->where && store_prepare(j, &j->where, "SELECT chain, number, kind, hash FROM record WHERE id = ?1", e))
        return e->code;
    sqlite3_bind_int64(j->where, 1, id);
    const char *kind, *hash;
    struct hone_error own = {0};
    int rc = 0;
    if (!store_step(j, j->where, &own))
        rc = own.code ? own.code : err_set(&own, HONE_EINPUT, "%s: there is no record %lld", j->path, (long long)id);
    rc = rc ? rc : column_integer(j, j->where, 0, 1, &p->chain, &own);
    rc = rc ? rc : column_integer(j, j->where, 1, 1, &p->number, &own);
    rc = rc ? rc : column_text(j, j->where, 2, false, &kind, &own);
    rc = rc ? rc : column_text(j, j->where, 3, false, &hash, &own);
    if (!rc) {
        snprintf(p->kind, sizeof p->kind, "%s", kind);
        snprintf(p->hash, sizeof p->hash, "%s", hash);
    } else if (e) {
        *e = own;
    }
    sqlite3_reset(j->where);
    return rc;
}

int store_run(struct journal *j, int64_t id, struct record_place *p, struct hone_error *e)
{
    int rc = store_place(j, id, p, e);
    if (!rc && strcmp(p->kind, "run") != 0)
        rc = err_set(e, HONE_EINPUT, "%s: record %lld is a %s, not a run", j->path, (long long)id, p->kind);
    return rc;
}

int store_insert(struct journal *j, int64_t chain, const struct record *r, const struct sha256 *hash, int64_t *id,
                 struct hone_error *e)
{
    if (!j->insert && store_prepare(j, &j->insert,
                                    "INSERT INTO record (chain, number, at, kind, run, name, value, body, previous, hash) "
                                    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                                    e))
        return e->code;
    sqlite3_stmt *s = j->insert;
    sqlite3_bind_int64(s, 1, chain);
    sqlite3_bind_int64(s, 2, r->number);
    sqlite3_bind_int64(s, 3, r->at);
    sqlite3_bind_text(s, 4, r->kind, -1, SQLITE_STATIC);
    if (r->run)
        sqlite3_bind_int64(s, 5, r->run);
    if (r->name)
        sqlite3_bind_text(s, 6, r->name, -1, SQLITE_STATIC);
    if (r->has_value)
        sqlite3_bind_double(s, 7, r->value);
    sqlite3_bind_text(s, 8, r->body, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 9, r->previous, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 10, hash->hex, -1, SQLITE_STATIC);
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : store_fail(j, e);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (!rc && id)
        *id = sqlite3_last_insert_rowid(j->db);
    return rc;
}

/* The end of the own chain. */
static int read_last(struct journal *j, int64_t *number, char hash[65], struct hone_error *e)
{
    if (!j->last &&
        store_prepare(j, &j->last, "SELECT number, hash FROM record WHERE chain = 1 ORDER BY number DESC LIMIT 1", e))
        return e->code;
    struct hone_error own = {0};
    const char *text = first_previous;
    int rc = 0;
    *number = 0;
    if (store_step(j, j->last, &own)) {
        rc = column_integer(j, j->last, 0, 1, number, &own);
        rc = rc ? rc : column_text(j, j->last, 1, false, &text, &own);
    }
    rc = own.code;
    if (!rc)
        snprintf(hash, 65, "%s", text);
    else if (e)
        *e = own;
    sqlite3_reset(j->last);
    return rc;
}

/* Adds r to the end of the own chain: chain, number, at and previous are filled here. */
static int append(struct journal *j, struct record *r, int64_t *id, struct hone_error *e)
{
    char previous[65];
    struct sha256 hash;
    int rc = read_last(j, &r->number, previous, e);
    if (rc)
        return rc;
    r->number++;
    r->at = now_ms();
    r->chain = j->chain;
    r->previous = previous;
    if ((rc = record_check(r, e)) || (rc = record_line(&j->line, r, &hash, e)))
        return err_prefix(e, "%s: %s", j->path, r->kind);
    return store_insert(j, OWN_CHAIN, r, &hash, id, e);
}

/* Adds an identity unless the own chain has it. */
static int append_identity(struct journal *j, const char *kind, json_t *body, char hash[65], struct hone_error *e)
{
    struct sha256 sum;
    sqlite3_stmt *s = NULL;
    char *text = body_text(body);
    if (!text)
        return err_set(e, HONE_EFAULT, "%s: a %s that cannot be written as a JSON object", j->path, kind);
    int rc = hash_sha256(&sum, text, strlen(text), e);
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT 1 FROM record WHERE name = ?1 AND kind = ?2 AND chain = 1 AND kind IN ('build', 'machine', "
                            "'model', 'recipe')",
                            e);
    if (!rc) {
        struct hone_error own = {0};
        sqlite3_bind_text(s, 1, sum.hex, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, kind, -1, SQLITE_STATIC);
        struct record r = {.kind = kind, .name = sum.hex, .body = text};
        if (!store_step(j, s, &own) && !own.code)
            append(j, &r, NULL, &own);
        if ((rc = own.code) && e)
            *e = own;
    }
    sqlite3_finalize(s);
    free(text);
    memcpy(hash, sum.hex, 65);
    return rc;
}

struct identity_work {
    const char *kind;
    json_t *body;
    char *hash;
};

static int identity_work(struct journal *j, void *user, struct hone_error *e)
{
    struct identity_work *w = user;
    return append_identity(j, w->kind, w->body, w->hash, e);
}

int journal_identity(struct journal *j, const char *kind, json_t *body, char hash[65], struct hone_error *e)
{
    hash[0] = 0;
    INVARIANT(record_is_identity(kind));
    return j ? store_transaction(j, identity_work, &(struct identity_work){kind, body, hash}, e) : 0;
}

struct run_work {
    const struct journal_run *run;
    int64_t *id;
};

/* The run's body: what was asked, and the hashes of those who take part, which are stored here. */
static int run_body(struct journal *j, const struct journal_run *r, json_t *body, struct hone_error *e)
{
    const struct {
        const char *kind;
        json_t *body;
    } parts[] = {{"build", r->build}, {"machine", r->machine}, {"model", r->model}, {"recipe", r->recipe}};
    int failed = r->command ? json_object_set_new(body, "command", json_string(r->command)) : 0;
    if (r->hypothesis)
        failed |= json_object_set_new(body, "hypothesis", json_string(r->hypothesis));
    if (isfinite(r->expected_gain))
        failed |= json_object_set_new(body, "expected_gain", json_real(r->expected_gain));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char hash[65];
        if (!parts[i].body)
            continue;
        if (append_identity(j, parts[i].kind, parts[i].body, hash, e))
            return e->code;
        failed |= json_object_set_new(body, parts[i].kind, json_string(hash));
    }
    if (r->config)
        failed |= json_object_set(body, "config", r->config);
    if (r->state)
        failed |= json_object_set(body, "state", r->state);
    return failed ? err_set(e, HONE_EINPUT, "%s: a run whose command or hypothesis is no UTF-8", j->path) : 0;
}

static int run_work(struct journal *j, void *user, struct hone_error *e)
{
    struct run_work *w = user;
    json_t *body = json_object();
    char *text = NULL;
    int rc = body ? run_body(j, w->run, body, e) : err_set(e, HONE_ERESOURCE, "no memory for a run");
    if (!rc && !(text = body_text(body)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a run");
    struct record r = {.kind = "run", .name = w->run->kind, .body = text};
    if (!rc)
        rc = append(j, &r, w->id, e);
    free(text);
    json_decref(body);
    return rc;
}

int journal_run_begin(struct journal *j, const struct journal_run *r, int64_t *run, struct hone_error *e)
{
    *run = 0;
    return j ? store_transaction(j, run_work, &(struct run_work){r, run}, e) : 0;
}

struct add_work {
    int64_t run; /* an id */
    const char *kind, *series;
    double value;
    json_t *body; /* may be NULL */
    int64_t *id;
};

static int add_work(struct journal *j, void *user, struct hone_error *e)
{
    struct add_work *w = user;
    struct record_place p;
    json_t *body = NULL;
    char *text = NULL;
    int rc = store_run(j, w->run, &p, e);
    bool own = p.chain == OWN_CHAIN;
    if (!rc && !own && !record_is_finding(w->kind))
        rc = err_set(e, HONE_EINPUT, "%s: run %lld was imported: it takes no more samples", j->path, (long long)w->run);
    if (!rc && w->body && !own) { /* a remark on somebody else's run names it by its hash */
        body = json_copy(w->body);
        if (!body || json_object_set_new(body, "of", json_string(p.hash)))
            rc = err_set(e, HONE_ERESOURCE, "no memory for a record");
    }
    if (!rc && w->body && !(text = body_text(body ? body : w->body)))
        rc = err_set(e, HONE_EINPUT, "%s: a %s that cannot be written as a JSON object", j->path, w->kind);
    struct record r = {.kind = w->kind,
                       .run = own ? p.number : 0,
                       .name = w->series,
                       .has_value = w->series != NULL,
                       .value = w->value,
                       .body = text ? text : "{}"};
    if (!rc)
        rc = append(j, &r, w->id, e);
    free(text);
    json_decref(body);
    return rc;
}

int journal_sample(struct journal *j, int64_t run, const char *series, double value, json_t *more, struct hone_error *e)
{
    struct add_work w = {.run = run, .kind = "sample", .series = series, .value = value, .body = more};
    if (j && !isfinite(value))
        return err_set(e, HONE_EINPUT, "%s: a sample of %s that is no number", j->path, series);
    return j ? store_transaction(j, add_work, &w, e) : 0;
}

int journal_record(struct journal *j, int64_t run, const char *kind, json_t *body, int64_t *id, struct hone_error *e)
{
    struct add_work w = {.run = run, .kind = kind, .body = body, .id = id};
    if (id)
        *id = 0;
    INVARIANT(record_is_finding(kind));
    return j ? store_transaction(j, add_work, &w, e) : 0;
}

int journal_run_end(struct journal *j, int64_t run, json_t *outcome, struct hone_error *e)
{
    struct add_work w = {.run = run, .kind = "end", .body = outcome};
    return j ? store_transaction(j, add_work, &w, e) : 0;
}

int journal_supersede(struct journal *j, int64_t by, int64_t old, const char *why, struct hone_error *e)
{
    struct record_place p;
    if (!j)
        return 0;
    if (store_run(j, old, &p, e))
        return e->code;
    if (by == old)
        return err_set(e, HONE_EUSAGE, "run %lld cannot supersede itself", (long long)by);
    json_t *body = json_pack("{s:s, s:s, s:s}", "decision", "superseded", "supersedes", p.hash, "why", why ? why : "");
    int rc = body ? journal_record(j, by, "decision", body, NULL, e) : err_set(e, HONE_EINPUT, "the reason is no UTF-8");
    json_decref(body);
    return rc;
}
