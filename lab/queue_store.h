/* queue_store.h: what the parts of the queue share, and nobody else sees. */
#ifndef LAB_QUEUE_STORE_H
#define LAB_QUEUE_STORE_H

#include "lab/queue.h"

#include <sqlite3.h>

enum { QUEUE_VERSION = 1, QUEUE_APPLICATION = 0x686f7175 /* "hoqu" */, QUEUE_BUSY_MS = 60000, QUEUE_TEXT = 1 << 20 };

struct queue {
    sqlite3 *db;
    char *path;
};

/* In SQL, of a task that another comes after: it is not done yet or, where a tier decides, not approved. */
#define QUEUE_WAITED_FOR "(needed.status <> 'done' OR coalesce(needed.review, 'approved') <> 'approved')"
#define QUEUE_SPENT      "its lease ran out in every try"

/* What is looked at before any change of a task. */
struct queue_standing {
    char status[16], token[QUEUE_TOKEN + 1], worker[200], review[16];
    int64_t taken, expires, budget, tries, attempts;
    bool has_tier;
    bool spent; /* its lease ran out in its last try: it has failed, though nobody has written so yet */
};
int queue_look(struct queue *q, int64_t id, struct queue_standing *t, struct hone_error *e);
/* HONE_ECHECK: what its state does not allow. */
int queue_refuse(struct hone_error *e, int64_t id, const struct queue_standing *t, const char *what);
/* 0: the token is that of its lease. */
int queue_holds(const struct queue_standing *t, int64_t id, const char *token, struct hone_error *e);
/* Whether a text is longer than that; NULL is not. */
bool queue_too_long(const char *text, size_t limit);

int64_t queue_now(void); /* milliseconds since 1970 */
int queue_sql_fail(struct queue *q, struct hone_error *e);
int queue_exec(struct queue *q, const char *sql, struct hone_error *e);
/* A statement with its parameters by a format: i int64_t, d double (NAN: NULL), s text (NULL: NULL). */
int queue_prepare(struct queue *q, sqlite3_stmt **s, struct hone_error *e, const char *sql, const char *format, ...);
/* The same, run to its end. *changed: rows; may be NULL. */
int queue_run(struct queue *q, int *changed, struct hone_error *e, const char *sql, const char *format, ...);
/* Runs work(user) with the write lock; all or nothing. */
int queue_transaction(struct queue *q, int (*work)(struct queue *q, void *user, struct hone_error *e), void *user,
                      struct hone_error *e);
/* Within a transaction: what happened to a task. */
int queue_event(struct queue *q, int64_t id, const char *what, const char *who, const char *detail, struct hone_error *e);

#endif
