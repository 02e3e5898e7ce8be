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
