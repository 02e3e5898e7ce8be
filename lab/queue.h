/* queue.h: tasks for a supervisor and any number of workers, in a file beside the journal.
 *
 * A task is backlog (put aside), ready, leased, done, failed or blocked. A worker takes one: a lease, with a token that says
 * whose it is and a time by which it runs out unless renewed. Handing in ends it. What a dead worker had is taken again once
 * its lease has run out, and its token then opens nothing: no task is done twice, none is lost, none waits longer than its
 * lease.
 *
 * The token makes calls repeatable: who does not know whether the answer got lost asks again with the same token, and gets the
 * same answer.
 *
 * All functions return 0 or a code and fill *e: HONE_EINPUT for a task that is not there, HONE_ECHECK for what its state does
 * not allow. Many processes may use one file; a struct queue belongs to one thread. Strings and JSON given in are borrowed. */
#ifndef LAB_QUEUE_H
#define LAB_QUEUE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct queue;
enum { QUEUE_TOKEN = 64 }; /* characters at most */

/* Makes the file where there is none. */
int queue_open(struct queue **q, const char *path, struct hone_error *e);
void queue_close(struct queue *q); /* NULL is allowed */

struct queue_task {
    const char *title;
    const char *role;   /* who may take it: a worker that names a role takes tasks of that role and of none; NULL: anyone */
    const char *work;   /* what to do: a patch, a recipe, a command, a text; NULL */
    const char *recipe; /* where it starts from; NULL */
    const char *model, *series; /* what it is about, by which earlier runs are found in the journal; NULL */
    const char *hypothesis;     /* NULL */
    const char *tier;           /* that decides: what is handed in waits for a supervisor's word; NULL: none */
    double expected_gain;       /* 0.03: 3 %; NAN: none stated */
    int64_t priority;           /* larger first; then the older */
    int64_t budget_s;           /* a lease never goes beyond it; 0: no limit */
    int tries;                  /* leases that may run out before it counts as failed; 0: any number */
    int64_t parent;             /* 0: none */
    const int64_t *after;       /* tasks that must be done before */
    int n_after;
    bool backlog;
};
int queue_add(struct queue *q, const struct queue_task *t, int64_t *id, struct hone_error *e);

/* The next task that is ready, or task `id` (0: any), for lease_s seconds. token: the worker's own, at most QUEUE_TOKEN
 * characters, or "" for a new one. *task: as queue_get, with "token"; NULL where none is ready. A token that holds a lease
 * already gets that task again. */
int queue_take(struct queue *q, const char *worker, const char *role, int64_t id, int64_t lease_s, const char *token,
               json_t **task, struct hone_error *e);
/* Until lease_s from now, never beyond the budget. */
int queue_renew(struct queue *q, int64_t id, const char *token, int64_t lease_s, struct hone_error *e);
/* result: an object. *again: the same was handed in with this token before; nothing changed. Another result takes its place, as
 * long as nobody has given his word on it. So with queue_fail and its reason. */
int queue_done(struct queue *q, int64_t id, const char *token, json_t *result, bool *again, struct hone_error *e);
/* retry: ready again, else failed. */
int queue_fail(struct queue *q, int64_t id, const char *token, const char *why, bool retry, bool *again, struct hone_error *e);
/* Kept from being taken; a leased task needs its token. */
int queue_block(struct queue *q, int64_t id, const char *token, const char *why, struct hone_error *e);
/* backlog, blocked, failed or rejected: ready again. */
int queue_ready(struct queue *q, int64_t id, const char *who, struct hone_error *e);
/* The supervisor's word on a task that is done and has a tier. Who handed it in cannot give it. */
int queue_review(struct queue *q, int64_t id, bool approved, const char *who, const char *why, struct hone_error *e);

/* Takes it from whoever has it, whose token opens nothing from then on: ready for the next. */
int queue_release(struct queue *q, int64_t id, const char *who, const char *why, struct hone_error *e);
/* Given up, whether somebody has it or not: failed, with the reason. queue_ready takes that back. */
int queue_cancel(struct queue *q, int64_t id, const char *who, const char *why, struct hone_error *e);
/* Other values for what a task that nobody has was added with. The event holds what was and what is. */
struct queue_value {
    const char *field; /* title, role, work, recipe, model, series, hypothesis, tier; expected_gain, priority, budget, tries */
    const char *text;  /* of the first eight; "" or NULL: none from now on */
    double number;     /* of the others; expected_gain NAN: none */
};
struct queue_edit {
    const struct queue_value *values;
    int n_values;
    const int64_t *after;
    int n_after; /* -1: as it was */
};
int queue_edit(struct queue *q, int64_t id, const struct queue_edit *d, const char *who, struct hone_error *e);

/* An object: id, title, status, reason (why it is blocked or failed), role, priority, and all else that it was added with;
 * attempts, worker, expires, result, review ("waiting", "approved", "rejected"), after. A ready task that waits for others, to
 * be done and, where a tier decides, approved, shows as blocked; one whose lease ran out as ready, or in its last try as
 * failed. */
int queue_get(struct queue *q, int64_t id, json_t **task, struct hone_error *e);
/* By status (NULL: all), in the order in which they would be taken. */
int queue_list(struct queue *q, const char *status, json_t **tasks, struct hone_error *e);
/* What happened to a task, oldest first: objects at, what, who, detail. */
int queue_events(struct queue *q, int64_t id, json_t **events, struct hone_error *e);
bool queue_is_status(const char *word);

#endif
