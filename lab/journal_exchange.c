/* journal_exchange.c: checking the chain, and carrying records from one journal to another.
 *
 * A journal is several chains: its own, and those that were imported. A record keeps the chain, number and hash that it was
 * born with, wherever it goes; so an import can be repeated without harm, a record that was edited on the way contradicts its
 * own hash or its neighbours', and an export of what was imported gives the same bytes again. Numbering imported records anew
 * in the own chain was the alternative: then neither a second import nor an edit could be seen.
 *
 * A chain proves that nothing was changed since its head was last seen, no more: who rewrites all of a journal rewrites its
 * hashes. That is why `hone journal verify` prints the head, and takes one. */
#include "lab/journal_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- verify */

static int check_pages(struct journal *j, struct hone_error *e)
{
    sqlite3_stmt *s = NULL;
    const char *said = "";
    int rc = store_prepare(j, &s, "PRAGMA integrity_check(1)", e);
    if (!rc && store_step(j, s, e))
        rc = column_text(j, s, 0, false, &said, e);
    else if (!rc)
        rc = e->code ? e->code : err_set(e, HONE_EFAULT, "%s: SQLite does not say whether the file is sound", j->path);
    if (!rc && strcmp(said, "ok") != 0)
        rc = err_set(e, HONE_ECHECK, "%s: the file is damaged: %s", j->path, said);
    sqlite3_finalize(s);
    return rc;
}

/* The state of the walk along one chain. */
struct link {
    int64_t chain, number;
    char hash[65];
};

/* A record is what its hash says, and follows the one before. */
static int check_record(struct journal *j, const struct record *r, int64_t id, int64_t chain, const char *stored,
                        struct link *l, struct hone_error *e)
{
    struct sha256 hash, body;
    int rc = record_line(&j->line, r, &hash, e);
    bool next = chain == l->chain && r->number == l->number + 1, first = chain != l->chain;
    if (rc)
        return rc;
    if (strcmp(hash.hex, stored) != 0)
        return err_set(e, HONE_ECHECK, "%s: record %lld (%s): its content does not have its hash: it was edited", j->path,
                       (long long)id, r->kind);
    if (next && strcmp(r->previous, l->hash) != 0)
        return err_set(e, HONE_ECHECK,
                       "%s: record %lld (%s): it does not carry the hash of the one before, which was edited or replaced",
                       j->path, (long long)id, r->kind);
    if (chain == OWN_CHAIN && r->number != (first ? 1 : l->number + 1))
        return err_set(e, HONE_ECHECK, "%s: record %lld (%s): number %lld follows number %lld: records were taken out", j->path,
                       (long long)id, r->kind, (long long)r->number, (long long)(first ? 0 : l->number));
    if (record_is_identity(r->kind)) {
        if ((rc = hash_sha256(&body, r->body, strlen(r->body), e)))
            return rc;
        if (strcmp(body.hex, r->name) != 0)
            return err_set(e, HONE_ECHECK, "%s: record %lld (%s): its body does not have the hash that names it", j->path,
                           (long long)id, r->kind);
    }
    *l = (struct link){.chain = chain, .number = r->number};
    memcpy(l->hash, hash.hex, sizeof l->hash);
    return 0;
}

int journal_verify(struct journal *j, struct journal_checked *c, struct hone_error *e)
{
    struct hone_error own = {0};
    sqlite3_stmt *s = NULL;
    struct link l = {0};
    *c = (struct journal_checked){0};
    memcpy(c->head, first_previous, sizeof c->head);
    int rc = check_pages(j, &own);
    rc = rc ? rc
            : store_prepare(j, &s,
                            "SELECT " RECORD_COLUMNS
                            ", r.id, r.chain, r.hash FROM record r JOIN chain c ON c.id = r.chain ORDER BY r.chain, r.number",
                            &own);
    while (!rc && store_step(j, s, &own)) {
        struct record r;
        int64_t id, chain;
        const char *stored;
        rc = column_integer(j, s, 9, INT64_MIN, &id, &own);
        rc = rc ? rc : column_integer(j, s, 10, 1, &chain, &own);
        rc = rc ? rc : column_text(j, s, 11, false, &stored, &own);
        if (!rc && column_record(j, s, 0, &r, &own)) {
            own.code = rc = HONE_ECHECK;
            break;
        }
        c->chains += chain != l.chain;
        rc = rc ? rc : check_record(j, &r, id, chain, stored, &l, &own);
        c->records++;
        if (!rc && chain == OWN_CHAIN)
            memcpy(c->head, l.hash, sizeof c->head);
    }
    rc = rc ? rc : own.code;
    sqlite3_finalize(s);
    if (rc && e)
        *e = own;
    return rc;
}

int journal_has(struct journal *j, const char *hash, bool *has, struct hone_error *e)
{
    struct hone_error own = {0};
    sqlite3_stmt *s = NULL;
    *has = false;
    if (!store_prepare(j, &s, "SELECT 1 FROM record WHERE hash = ?1 LIMIT 1", &own)) {
        sqlite3_bind_text(s, 1, hash, -1, SQLITE_STATIC);
        *has = store_step(j, s, &own);
    }
    sqlite3_finalize(s);
    if (own.code && e)
        *e = own;
    return own.code;
}

/* ---- export */

/* The run's body, in which the hashes of all who took part stand; malloc'd. */
static int run_text(struct journal *j, int64_t id, char **text, struct hone_error *e)
{
    sqlite3_stmt *s = NULL;
    const char *body;
    *text = NULL;
    int rc = store_prepare(j, &s, "SELECT body FROM record WHERE id = ?1", e);
    if (!rc) {
        sqlite3_bind_int64(s, 1, id);
        if (store_step(j, s, e))
            rc = column_text(j, s, 0, false, &body, e);
        rc = rc ? rc : e->code;
        if (!rc && !(*text = strdup(body)))
            rc = err_set(e, HONE_ERESOURCE, "%s: no memory", j->path);
    }
    sqlite3_finalize(s);
    return rc;
}

/* The line at hand, unless it is an identity that the run's text does not name. */
static int export_row(struct journal *j, sqlite3_stmt *s, const char *text, FILE *to, int64_t *n, struct hone_error *e)
{
    struct record r;
    struct sha256 hash;
    json_t *body = NULL;
    const char *stored;
    int rc = column_record(j, s, 0, &r, e);
    if (!rc && text && record_is_identity(r.kind) && !strstr(text, r.name))
        return 0;
    rc = rc ? rc : column_text(j, s, 9, false, &stored, e);
    rc = rc ? rc : column_body(j, s, 7, &body, e);
    rc = rc ? rc : record_line(&j->line, &r, &hash, e);
    json_decref(body);
    if (!rc && strcmp(hash.hex, stored) != 0)
        rc = err_set(e, HONE_EINPUT, "%s: record %lld of chain %s does not have its hash: it was edited, and is not exported",
                     j->path, (long long)r.number, r.chain);
    if (!rc && fprintf(to, "%.*s,\"hash\":\"%s\"}\n", (int)(j->line.n - 1), j->line.data, stored) < 0)
        rc = err_set(e, HONE_ERESOURCE, "cannot write the export: %s", strerror(errno));
    *n += !rc;
    return rc;
}

int journal_export(struct journal *j, int64_t run, FILE *to, int64_t *n, struct hone_error *e)
{
    struct hone_error own = {0};
    struct record_place p = {0};
    sqlite3_stmt *s = NULL;
    char *text = NULL;
    *n = 0;
    int rc = run ? store_run(j, run, &p, &own) : 0;
    if (!rc && run)
        rc = run_text(j, run, &text, &own);
    rc = rc ? rc
            : store_prepare(
                  j, &s,
                  run ? "SELECT " RECORD_COLUMNS
                        ", r.hash FROM record r JOIN chain c ON c.id = r.chain WHERE r.chain = ?1 AND (r.number = ?2 OR "
                        "r.run = ?2 OR r.kind IN ('build', 'machine', 'model', 'recipe')) ORDER BY r.number"
                      : "SELECT " RECORD_COLUMNS
                        ", r.hash FROM record r JOIN chain c ON c.id = r.chain ORDER BY c.name, r.number",
                  &own);
    if (!rc && run) {
        sqlite3_bind_int64(s, 1, p.chain);
        sqlite3_bind_int64(s, 2, p.number);
    }
    while (!rc && store_step(j, s, &own))
        rc = export_row(j, s, text, to, n, &own);
    rc = rc ? rc : own.code;
    if (!rc && (fprintf(to, "{\"records\":%lld}\n", (long long)*n) < 0 || fflush(to)))
        rc = err_set(&own, HONE_ERESOURCE, "cannot write the export: %s", strerror(errno));
    sqlite3_finalize(s);
    free(text);
    if (rc && e)
        *e = own;
    return rc;
}

/* ---- import */

struct importing {
    FILE *from;
    const char *label;
    int64_t line_number, since; /* lines so far; records since the file's beginning or the last closing line */
    bool closed;
    int64_t added, known;
    struct line line;
    sqlite3_stmt *chain, *new_chain, *at, *identity;
};

enum { LINE_LIMIT = BODY_LIMIT + 65536 };

/* The next line, without its end. False at the end of the file, or with e->code set. */
static bool next_line(struct importing *m, struct hone_error *e)
{
    int c;
    m->line.n = 0;
    m->line_number++;
    while ((c = getc_unlocked(m->from)) != EOF && c != '\n') {
        char ch = (char)c;
        line_add(&m->line, &ch, 1);
        if (m->line.n > LINE_LIMIT || m->line.failed) {
            err_set(e, HONE_EINPUT, "the line is longer than any record");
            return false;
        }
    }
    if (ferror(m->from))
        err_set(e, HONE_EINPUT, "cannot be read: %s", strerror(errno));
    else if (c == EOF && m->line.n)
        err_set(e, HONE_EINPUT, "the file ends within a line");
    return !e->code && c != EOF;
}

/* The number of this file of a chain's name, which is added if need be. */
static int chain_id(struct journal *j, struct importing *m, const char *name, int64_t *id, struct hone_error *e)
{
    int rc = 0;
    sqlite3_bind_text(m->chain, 1, name, -1, SQLITE_STATIC);
    bool there = store_step(j, m->chain, e);
    if (there)
        *id = sqlite3_column_int64(m->chain, 0);
    sqlite3_reset(m->chain);
    if (there || e->code)
        return e->code;
    sqlite3_bind_text(m->new_chain, 1, name, -1, SQLITE_STATIC);
    if (sqlite3_step(m->new_chain) != SQLITE_DONE)
        rc = store_fail(j, e);
    *id = sqlite3_last_insert_rowid(j->db);
    sqlite3_reset(m->new_chain);
    return rc;
}

/* What is at a number of a chain: its hash ("" when there is nothing), the hash before, its kind. */
struct neighbour {
    char hash[65], previous[65], kind[16];
};

static int look_at(struct journal *j, struct importing *m, int64_t chain, int64_t number, struct neighbour *n,
                   struct hone_error *e)
{
    const char *hash, *previous, *kind;
    *n = (struct neighbour){0};
    sqlite3_bind_int64(m->at, 1, chain);
    sqlite3_bind_int64(m->at, 2, number);
    if (store_step(j, m->at, e) && !column_text(j, m->at, 0, false, &hash, e) &&
        !column_text(j, m->at, 1, false, &previous, e) && !column_text(j, m->at, 2, false, &kind, e)) {
        snprintf(n->hash, sizeof n->hash, "%s", hash);
        snprintf(n->previous, sizeof n->previous, "%s", previous);
        snprintf(n->kind, sizeof n->kind, "%s", kind);
    }
    sqlite3_reset(m->at);
    return e->code;
}

/* What a run refers to is there. */
static int check_parts(struct journal *j, struct importing *m, const json_t *body, struct hone_error *e)
{
    static const char *const kinds[] = {"build", "machine", "model", "recipe"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *hash = json_object_get(body, kinds[i]);
        if (!hash)
            continue;
        bool there = false;
        if (json_is_string(hash)) {
            sqlite3_bind_text(m->identity, 1, json_string_value(hash), -1, SQLITE_STATIC);
            sqlite3_bind_text(m->identity, 2, kinds[i], -1, SQLITE_STATIC);
            there = store_step(j, m->identity, e);
            sqlite3_reset(m->identity);
        }
        if (!there)
            return e->code ? e->code : err_set(e, HONE_EINPUT, "the run's %s is not there", kinds[i]);
    }
    return 0;
}

/* A record that is well formed may come in: it contradicts nothing that is there. */
static int check_place(struct journal *j, struct importing *m, const struct record *r, int64_t chain, const char *hash,
                       bool *known, struct hone_error *e)
{
    struct neighbour here, before, after;
    if (look_at(j, m, chain, r->number, &here, e) || look_at(j, m, chain, r->number - 1, &before, e) ||
        look_at(j, m, chain, r->number + 1, &after, e))
        return e->code;
    *known = here.hash[0] != 0;
    if (*known && strcmp(here.hash, hash) != 0)
        return err_set(
            e, HONE_EINPUT,
            "record %lld of chain %s is another one here: one of them was edited, or two journals went on from one copy",
            (long long)r->number, r->chain);
    if (*known)
        return 0;
    if (before.hash[0] && strcmp(before.hash, r->previous) != 0)
        return err_set(e, HONE_EINPUT, "record %lld of chain %s does not follow the one before it", (long long)r->number,
                       r->chain);
    if (after.hash[0] && strcmp(after.previous, hash) != 0)
        return err_set(e, HONE_EINPUT, "record %lld of chain %s does not come before the one after it", (long long)r->number,
                       r->chain);
    if (chain == OWN_CHAIN && r->number > 1 && !before.hash[0])
        return err_set(e, HONE_EINPUT, "record %lld of this journal's own chain: those before it are missing",
                       (long long)r->number);
    if (r->run && (look_at(j, m, chain, r->run, &here, e) || strcmp(here.kind, "run") != 0))
        return e->code
                   ? e->code
                   : err_set(e, HONE_EINPUT, "record %lld: its run %lld is not there", (long long)r->number, (long long)r->run);
    return 0;
}

static int import_record(struct journal *j, struct importing *m, struct hone_error *e)
{
    struct record r;
    struct sha256 hash, sum;
    json_t *hold = NULL;
    char *body = NULL;
    int64_t chain = 0;
    bool known = false;
    int rc = record_read(&r, &hold, &body, m->line.data, m->line.n, e);
    if (!rc)
        memcpy(hash.hex, json_string_value(json_object_get(hold, "hash")), sizeof hash.hex);
    rc = rc ? rc : chain_id(j, m, r.chain, &chain, e);
    rc = rc ? rc : check_place(j, m, &r, chain, hash.hex, &known, e);
    if (!rc && !known && record_is_identity(r.kind)) {
        rc = hash_sha256(&sum, r.body, strlen(r.body), e);
        if (!rc && strcmp(sum.hex, r.name) != 0)
            rc = err_set(e, HONE_EINPUT, "record %lld: its body does not have the hash that names it", (long long)r.number);
    }
    if (!rc && !known && !strcmp(r.kind, "run"))
        rc = check_parts(j, m, json_object_get(hold, "body"), e);
    if (!rc && !known)
        rc = store_insert(j, chain, &r, &hash, NULL, e);
    m->known += known;
    m->added += !known;
    m->since++;
    free(body);
    json_decref(hold);
    return rc;
}

/* {"records":N}: true when the line is one, right or not. */
static bool is_closing(struct importing *m, struct hone_error *e)
{
    static const char start[] = "{\"records\":";
    if (m->line.n < sizeof start || strncmp(m->line.data, start, sizeof start - 1) != 0)
        return false;
    char want[48];
    snprintf(want, sizeof want, "%s%lld}", start, (long long)m->since);
    if (m->line.n != strlen(want) || strcmp(m->line.data, want) != 0)
        err_set(e, HONE_EINPUT, "%lld records came before a line that says %.40s: lines are missing", (long long)m->since,
                m->line.data);
    return true;
}

static int import_work(struct journal *j, void *user, struct hone_error *e)
{
    struct importing *m = user;
    int rc = store_prepare(j, &m->chain, "SELECT id FROM chain WHERE name = ?1", e);
    rc = rc ? rc : store_prepare(j, &m->new_chain, "INSERT INTO chain (name) VALUES (?1)", e);
    rc = rc ? rc : store_prepare(j, &m->at, "SELECT hash, previous, kind FROM record WHERE chain = ?1 AND number = ?2", e);
    rc = rc ? rc
            : store_prepare(
                  j, &m->identity,
                  "SELECT 1 FROM record WHERE name = ?1 AND kind = ?2 AND kind IN ('build', 'machine', 'model', 'recipe')", e);
    if (rc)
        return rc;
    while (next_line(m, e)) {
        m->closed = is_closing(m, e);
        if (m->closed)
            m->since = 0;
        else
            import_record(j, m, e);
        if (e->code)
            break;
    }
    if (e->code)
        return err_prefix(e, "%s, line %lld", m->label, (long long)m->line_number);
    return m->closed ? 0 : err_set(e, HONE_EINPUT, "%s: the line that closes an export is missing: the file was cut", m->label);
}

int journal_import(struct journal *j, FILE *from, const char *label, int64_t *added, int64_t *known, struct hone_error *e)
{
    struct importing m = {.from = from, .label = label};
    int rc = store_transaction(j, import_work, &m, e);
    sqlite3_finalize(m.chain);
    sqlite3_finalize(m.new_chain);
    sqlite3_finalize(m.at);
    sqlite3_finalize(m.identity);
    line_free(&m.line);
    *added = rc ? 0 : m.added;
    *known = rc ? 0 : m.known;
    return rc;
}
