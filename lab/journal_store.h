/* journal_store.h: what the parts of the journal share, and nobody else sees: the open database, a record and its line.
 *
 * All records lie in one table. A table a kind would need a sequence of its own for the chain, two triggers each, and a union
 * to export; the views of the schema give the kinds back to people. */
#ifndef LAB_JOURNAL_STORE_H
#define LAB_JOURNAL_STORE_H

#include "lab/journal.h"

#include "base/hash.h"

#include <sqlite3.h>

enum { JOURNAL_VERSION = 2, JOURNAL_APPLICATION = 0x686f6e65 /* "hone" */, OWN_CHAIN = 1 };
enum { BODY_LIMIT = 16 << 20, NAME_LIMIT = 512, CHAIN_NAME = 32, BUSY_MS = 60000 };

/* A text that grows. */
struct line {
    char *data;
    size_t n, cap;
    bool failed; /* out of memory: sticks */
};
void line_add(struct line *t, const char *data, size_t n);
void line_free(struct line *t);

struct journal {
    sqlite3 *db;
    char *path;
    bool writes;
    bool batch;               /* a transaction is open until journal_batch_end */
    struct hone_error broken; /* the first failure within the batch */
    char chain[33];           /* the name of the own chain */
    sqlite3_stmt *last, *insert, *where;
    struct line line; /* reused */
};

/* The names of kinds, by which records are told apart. */
#define RECORD_IDENTITIES(X) X(build) X(machine) X(model) X(recipe)
#define RECORD_FINDINGS(X)   X(check) X(verdict) X(decision) X(note) X(outcome)
#define RECORD_KINDS(X)      RECORD_IDENTITIES(X) X(run) X(sample) RECORD_FINDINGS(X) X(end)
bool record_is_identity(const char *kind);
bool record_is_finding(const char *kind);
bool record_is_kind(const char *kind);

struct record {
    int64_t number; /* 1, 2, 3 within its chain */
    int64_t at;     /* milliseconds since 1970 */
    int64_t run;    /* number of the run in the same chain; 0: none */
    const char *chain, *kind;
    const char *name; /* of a sample: series; of a run: its kind; of an identity: its hash; NULL: none */
    bool has_value;
    double value;
    const char *body;     /* a JSON object, compact */
    const char *previous; /* the hash of the record before, of number - 1 in this chain */
};

/* The record's line without its hash: {"chain":...,"previous":"..."}, and that line's SHA-256. */
int record_line(struct line *line, const struct record *r, struct sha256 *hash, struct hone_error *e);
/* Reads a line of an export. The record points into *hold, which is to be released with json_decref, and *body, to be freed. A
 * line that record_line would not write in just these bytes is HONE_EINPUT. */
int record_read(struct record *r, json_t **hold, char **body, const char *line, size_t n, struct hone_error *e);
/* What a record must be whoever wrote it: known kind, sane numbers, a name where one belongs. */
int record_check(const struct record *r, struct hone_error *e);
extern const char first_previous[]; /* of number 1: 64 zeros */

/* A JSON object as a body: compact, exact. malloc'd; NULL: no memory, or not an object. */
char *body_text(const json_t *body);

/* SQLite's own failure as ours, with the file's name. */
int store_fail(struct journal *j, struct hone_error *e);
int store_prepare(struct journal *j, sqlite3_stmt **s, const char *sql, struct hone_error *e);
int store_exec(struct journal *j, const char *sql, struct hone_error *e);
/* One row or none: true when there is one; false with e->code 0 at the end. */
bool store_step(struct journal *j, sqlite3_stmt *s, struct hone_error *e);
/* A column as what it must be; another type (a damaged or hostile file) is HONE_EINPUT. */
int column_text(struct journal *j, sqlite3_stmt *s, int i, bool may_be_null, const char **out, struct hone_error *e);
int column_integer(struct journal *j, sqlite3_stmt *s, int i, int64_t least, int64_t *out, struct hone_error *e);
/* A body, parsed. */
int column_body(struct journal *j, sqlite3_stmt *s, int i, json_t **out, struct hone_error *e);
/* The columns chain.name, number, at, kind, run, name, value, body, previous of the record at hand, from column `first` on. */
#define RECORD_COLUMNS "c.name, r.number, r.at, r.kind, r.run, r.name, r.value, r.body, r.previous"
int column_record(struct journal *j, sqlite3_stmt *s, int first, struct record *r, struct hone_error *e);

/* journal_schema.c: makes, migrates, checks. *older: a file that is only read is of an older version, and untouched. */
int schema_open(struct journal *j, bool *older, struct hone_error *e);

/* Puts a record, whose hash is known, into a chain. Within a transaction. */
int store_insert(struct journal *j, int64_t chain, const struct record *r, const struct sha256 *hash, int64_t *id,
                 struct hone_error *e);
/* Where record `id` stands. HONE_EINPUT when there is none. hash: 65 bytes, or NULL. */
struct record_place {
    int64_t chain, number;
    char kind[16], hash[65];
};
int store_place(struct journal *j, int64_t id, struct record_place *p, struct hone_error *e);
int store_run(struct journal *j, int64_t id, struct record_place *p, struct hone_error *e); /* and it is a run */
/* Runs work(user) in a transaction of its own, or in the batch that is open. */
int store_transaction(struct journal *j, int (*work)(struct journal *j, void *user, struct hone_error *e), void *user,
                      struct hone_error *e);

/* ---- journal_read.c: runs, for the other readers */
struct run_row {
    int64_t id, chain, number, at;
    const char *kind;
    json_t *body;          /* of the run's record */
    const char *hash;      /* of it */
    json_t *identities[4]; /* build machine model recipe, as stored; borrowed; NULL: none */
};
/* Calls each for every run that the filter lets through, newest first; a non-zero return ends it and is
 * returned. */
int store_each_run(struct journal *j, const struct journal_filter *f,
                   int (*each)(void *user, const struct run_row *r, struct hone_error *e), void *user, struct hone_error *e);

#endif
