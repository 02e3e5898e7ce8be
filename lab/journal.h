/* journal.h: the lab's memory: what was measured, on what, by whom, what was expected of it and what came of it.
 *
 * A journal is one SQLite file of records that are only ever added. Kinds of records:
 *
 *   build machine model recipe   who took part; stored once each, named by the SHA-256 of their body, referred to by that hash
 *   run       one use of the lab: what was asked, of whom, with which hypothesis; it comes before its samples
 *   sample    one measured value of one series of a run
 *   check verdict decision note outcome   what was found, concluded, done, remarked, and what became of it
 *   end       the run ended by itself, with its outcome; a run without one was killed, or still goes on
 *
 * Each record carries the SHA-256 of the one before it (docs/journal.md), so an edit shows. Nothing is edited: a later record
 * supersedes an earlier one.
 *
 * A series holds samples that may be compared with one another, so its name says all that tells them apart, and ends in a space and the
 * unit: "tg128 t/s", "rung mul_mat decode t/s", "ttft ms". A unit that ends in "/s" is better when larger, any other when
 * smaller.
 *
 * All functions return 0 or a code and fill *e. With journal NULL those that write do nothing and return 0: that is --no-journal.
 * A journal belongs to one thread; any number of processes may write to one file. JSON given in is borrowed. */
#ifndef LAB_JOURNAL_H
#define LAB_JOURNAL_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct journal;

enum journal_mode { JOURNAL_READ, JOURNAL_WRITE };

/* WRITE makes the file where there is none, and brings an older one to this version; READ wants one that is there. */
int journal_open(struct journal **out, const char *path, enum journal_mode mode, struct hone_error *e);
void journal_close(struct journal *j); /* NULL is allowed */
const char *journal_path(const struct journal *j);

/* ---- writing */

struct journal_run {
    const char *kind;     /* "bench", "ab", "verify", "check", "ladder", "trace", "tune", "perplexity" */
    const char *command;  /* the command line; may be NULL */
    json_t *build, *machine, *model, *recipe; /* objects (lab/identity.h); NULL: had no part in it */
    json_t *config;       /* object: what was asked for; runs with another config are not one history. May be NULL */
    json_t *state;        /* object: of the machine at the start: load, steal, governor. May be NULL */
    const char *hypothesis; /* why this should help; may be NULL */
    double expected_gain; /* 0.03: 3 % better; NAN: none was stated */
};

/* *run is the id by which all else names the run. It is in the file when this returns. */
int journal_run_begin(struct journal *j, const struct journal_run *r, int64_t *run, struct hone_error *e);
/* One value (finite) of a series; more: an object with what else belongs to it, or NULL. In the file when this returns,
 * outside of a batch. */
int journal_sample(struct journal *j, int64_t run, const char *series, double value, json_t *more, struct hone_error *e);
/* kind: check, verdict, decision, note or outcome. body: an object. id: may be NULL. */
int journal_record(struct journal *j, int64_t run, const char *kind, json_t *body, int64_t *id, struct hone_error *e);
/* outcome: an object with at least "status": "done", "failed" or "interrupted". */
int journal_run_end(struct journal *j, int64_t run, json_t *outcome, struct hone_error *e);
/* Stores a build, machine, model or recipe (unless it is known) and gives the hash that names it: for the arms of a comparison, whose
 * config then holds the hashes. */
int journal_identity(struct journal *j, const char *kind, json_t *body, char hash[65], struct hone_error *e);
/* Says that run `by` stands in the place of run `old`, which lists and histories then leave out. */
int journal_supersede(struct journal *j, int64_t by, int64_t old, const char *why, struct hone_error *e);

/* Records between these two share one transaction: far faster, and durable only when journal_batch_end has returned 0; after a failure
 * within, all of the batch is gone and batch_end returns the first error. */
int journal_batch_begin(struct journal *j, struct hone_error *e);
int journal_batch_end(struct journal *j, struct hone_error *e);

/* ---- reading */

struct journal_filter {
    const char *kind;    /* of runs; NULL: any, also below */
    const char *model;   /* a part of the model's name or file, or the start of its hash */
    const char *recipe;  /* a part of the recipe's text, or the start of its hash */
    const char *machine; /* a part of its description, or the start of its hash */
    const char *series;  /* a glob over names of series: runs that have one, and only those series */
    int64_t since;       /* milliseconds since 1970 */
    int limit;           /* the newest ones; 0: all */
    bool superseded;     /* those too */
};

/* A new array of runs, newest first. Each is an object: id, at (ISO 8601, UTC), kind, command, hypothesis, expected_gain, build,
 * machine, model, recipe (objects with their "hash"), config, state, samples (how many), status, outcome. */
int journal_list(struct journal *j, const struct journal_filter *f, json_t **runs, struct hone_error *e);
/* One such object. HONE_EINPUT when id is no run. */
int journal_get(struct journal *j, int64_t id, json_t **run, struct hone_error *e);
/* The run's records of a kind (NULL: all but run and sample), oldest first: objects id, at, kind, body. */
int journal_records(struct journal *j, int64_t run, const char *kind, json_t **records, struct hone_error *e);

/* Milliseconds since 1970 as "2026-11-30T12:00:00.123Z". */
void journal_time(int64_t at, char text[32]);

struct journal_sample {
    int64_t id, at;
    const char *series;
    double value;
    json_t *more; /* borrowed; an object, maybe empty */
};
/* All samples of a run in the order in which they were taken. A non-zero return of each ends it and is returned. */
int journal_each_sample(struct journal *j, int64_t run, int (*each)(void *user, const struct journal_sample *s), void *user,
                        struct hone_error *e);

/* The values of one series of one run, in order. */
struct journal_series {
    char *name;
    double *values;
    size_t n, cap;
};
struct journal_series_list {
    struct journal_series *list;
    size_t n, cap;
};
int journal_series(struct journal *j, int64_t run, struct journal_series_list *out, struct hone_error *e);
void journal_series_free(struct journal_series_list *l);
const struct journal_series *journal_series_find(const struct journal_series_list *l, const char *name); /* or NULL */
/* By the unit behind the last space. */
bool journal_larger_better(const char *series);

/* One series over time: the medians of runs alike in kind, machine, model and config, oldest first. */
struct journal_point {
    int64_t run, at;
    double median;
    size_t n;
    json_t *build, *recipe; /* owned; NULL: none */
};
struct journal_history {
    char *name; /* of the series */
    json_t *of; /* kind, machine, model, config */
    struct journal_point *points;
    size_t n, cap;
};
struct journal_histories {
    struct journal_history *list;
    size_t n, cap;
};
int journal_history(struct journal *j, const struct journal_filter *f, struct journal_histories *out, struct hone_error *e);
void journal_history_free(struct journal_histories *h);

/* ---- the chain, and files of it */

struct journal_checked {
    int64_t records, chains;
    char head[65]; /* of the own chain: whoever keeps it elsewhere can later see that nothing before it was changed */
};
/* Looks at every page and every record. HONE_ECHECK names the first record that is not what its hash says. */
int journal_verify(struct journal *j, struct journal_checked *c, struct hone_error *e);
/* Whether a record of this hash is in the journal. */
int journal_has(struct journal *j, const char *hash, bool *has, struct hone_error *e);

/* One line of JSON a record, then one that closes. run 0: all; else only that run, and what it refers to. */
int journal_export(struct journal *j, int64_t run, FILE *to, int64_t *n, struct hone_error *e);
/* Adds what is not yet there, all or nothing. A line that was edited, or that contradicts a record which is there, is HONE_EINPUT
 * with its number. label: the file's name for messages. */
int journal_import(struct journal *j, FILE *from, const char *label, int64_t *added, int64_t *known, struct hone_error *e);

#endif
