/* queue.c: what may become of a task, and when.
 *
 * Each change is one transaction that looks first and then writes. Nobody sweeps up: a lease that has run out is found by the
 * next who takes, so a queue needs no server and no clock of its own. Until then its holder may still renew or hand in, which
 * is right: nobody else has the task.
 *
 * A hand-in is tied to the token of the lease, not to the worker's name, for a worker that was slow, and whose task went to
 * another, has the same name still. The token of the last lease stays with the task, so that a repeated hand-in is known as
 * one, and a corrected one as its author's. What a supervisor does is in queue_supervise.c. */
#include "lab/queue_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void copy(char *to, size_t size, sqlite3_stmt *s, int i)
{
    const unsigned char *text = sqlite3_column_text(s, i);
    snprintf(to, size, "%s", text ? (const char *)text : "");
}

int queue_look(struct queue *q, int64_t id, struct queue_standing *t, struct hone_error *e)
{
    sqlite3_stmt *s;
    int rc = queue_prepare(q, &s, e,
                           "SELECT status, token, worker, review, taken, expires, budget, tries, attempts, tier IS NOT NULL "
                           "FROM task WHERE id = ?",
                           "i", id);
    int found = rc ? 0 : sqlite3_step(s);
    if (!rc && found != SQLITE_ROW)
        rc = found == SQLITE_DONE ? err_set(e, HONE_EINPUT, "%s: there is no task %lld", q->path, (long long)id)
                                  : queue_sql_fail(q, e);
    if (!rc) {
        copy(t->status, sizeof t->status, s, 0);
        copy(t->token, sizeof t->token, s, 1);
        copy(t->worker, sizeof t->worker, s, 2);
        copy(t->review, sizeof t->review, s, 3);
        t->taken = sqlite3_column_int64(s, 4);
        t->expires = sqlite3_column_int64(s, 5);
        t->budget = sqlite3_column_int64(s, 6);
        t->tries = sqlite3_column_int64(s, 7);
        t->attempts = sqlite3_column_int64(s, 8);
        t->has_tier = sqlite3_column_int(s, 9);
        t->spent = !strcmp(t->status, "leased") && t->expires <= queue_now() && t->tries && t->attempts >= t->tries;
    }
    sqlite3_finalize(s);
    return rc;
}

int queue_refuse(struct hone_error *e, int64_t id, const struct queue_standing *t, const char *what)
{
    return err_set(e, HONE_ECHECK, "task %lld: %s: it is %s%s%s", (long long)id, what, t->status,
                   t->worker[0] ? ", last with " : "", t->worker);
}

int queue_holds(const struct queue_standing *t, int64_t id, const char *token, struct hone_error *e)
{
    if (!token || !*token)
        return err_set(e, HONE_EUSAGE, "task %lld: which lease? give the token that `queue take` said", (long long)id);
    if (strcmp(t->status, "leased") != 0 || strcmp(t->token, token) != 0)
        return queue_refuse(e, id, t,
                            strcmp(t->token, token) ? "this token holds no lease of it" : "the lease of this token has ended");
    return 0;
}

/* ---- adding */

bool queue_too_long(const char *text, size_t limit)
{
    return text && strlen(text) > limit;
}

static int check(const struct queue_task *t, struct hone_error *e)
{
    const char *const texts[] = {t->role, t->recipe, t->model, t->series, t->tier};
    if (!t->title || !*t->title || queue_too_long(t->title, 400) || strpbrk(t->title, "\n\r"))
        return err_set(e, HONE_EUSAGE, "a task has a title: one line of at most 400 characters");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (queue_too_long(texts[i], 4000))
            return err_set(e, HONE_EUSAGE, "task '%.60s': a text of more than 4000 characters", t->title);
    if (queue_too_long(t->work, QUEUE_TEXT) || queue_too_long(t->hypothesis, QUEUE_TEXT))
        return err_set(e, HONE_EUSAGE, "task '%.60s': a text of more than a MiB", t->title);
    if (t->budget_s < 0 || t->budget_s > 31536000 || t->tries < 0)
        return err_set(e, HONE_EUSAGE, "task '%.60s': a budget is 0 to 31536000 seconds, tries are 0 or more", t->title);
    return 0;
}

struct adding {
    const struct queue_task *t;
    int64_t id;
};

static int add(struct queue *q, void *user, struct hone_error *e)
{
    struct adding *a = user;
    const struct queue_task *t = a->t;
    struct queue_standing other;
    int rc = t->parent ? queue_look(q, t->parent, &other, e) : 0;
    for (int i = 0; i < t->n_after && !rc; i++)
        rc = queue_look(q, t->after[i], &other, e);
    rc = rc ? rc
            : queue_run(q, NULL, e,
                        "INSERT INTO task (title, status, role, work, recipe, model, series, hypothesis, tier, expected_gain, "
                        "priority, budget, tries, "
                        "parent, added) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0), ?)",
                        "sssssssssdiiiii", t->title, t->backlog ? "backlog" : "ready", t->role, t->work, t->recipe, t->model,
                        t->series, t->hypothesis, t->tier, t->expected_gain, t->priority, t->budget_s, (int64_t)t->tries,
                        t->parent, queue_now());
    a->id = sqlite3_last_insert_rowid(q->db);
    for (int i = 0; i < t->n_after && !rc; i++)
        rc = queue_run(q, NULL, e, "INSERT OR IGNORE INTO after VALUES (?, ?)", "ii", a->id, t->after[i]);
    return rc ? rc : queue_event(q, a->id, "added", NULL, NULL, e);
}

int queue_add(struct queue *q, const struct queue_task *t, int64_t *id, struct hone_error *e)
{
    struct adding a = {.t = t};
    int rc = check(t, e);
    rc = rc ? rc : queue_transaction(q, add, &a, e);
    *id = rc ? 0 : a.id;
    return rc;
}

/* ---- taking */

struct taking {
    const char *worker, *role, *token;
    int64_t wanted, lease_s, found;
};

/* The first task that may be taken now. */
static int find(struct queue *q, struct taking *t, int64_t now, struct hone_error *e)
{
    sqlite3_stmt *s;
    int rc = queue_prepare(
        q, &s, e,
        "SELECT id FROM task WHERE (status = 'ready' OR (status = 'leased' AND expires <= ?1)) AND (?2 = 0 OR id = ?2) AND\n"
        "    (?3 IS NULL OR role IS NULL OR role = ?3) AND NOT EXISTS (SELECT 1 FROM after JOIN task needed ON needed.id = "
        "needs\n"
        "    WHERE after.task = task.id AND " QUEUE_WAITED_FOR ") ORDER BY priority DESC, id LIMIT 1",
        "iis", now, t->wanted, t->role);
    int row = rc ? 0 : sqlite3_step(s);
    if (!rc && row != SQLITE_ROW && row != SQLITE_DONE)
        rc = queue_sql_fail(q, e);
    t->found = row == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return rc;
}

/* The task that this token holds already. */
static int find_held(struct queue *q, struct taking *t, struct hone_error *e)
{
    sqlite3_stmt *s;
    int rc = queue_prepare(q, &s, e, "SELECT id FROM task WHERE status = 'leased' AND token = ? AND expires > ?", "si",
                           t->token, queue_now());
    if (!rc && sqlite3_step(s) == SQLITE_ROW)
        t->found = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc;
}

/* Until when a lease of lease_s from now on goes. */
static int64_t lease_end(int64_t now, int64_t taken, int64_t lease_s, int64_t budget_s)
{
    int64_t end = now + 1000 * lease_s, last = taken + 1000 * budget_s;
    return budget_s && end > last ? last : end;
}

static int grant(struct queue *q, struct taking *t, const struct queue_standing *was, int64_t now, struct hone_error *e)
{
    int rc = queue_run(
        q, NULL, e,
        "UPDATE task SET status = 'leased', worker = ?, token = CASE WHEN ? = '' THEN lower(hex(randomblob(16))) ELSE ? END, "
        "taken = ?, expires = ?, attempts = attempts + 1, reason = NULL WHERE id = ?",
        "sssiii", t->worker, t->token, t->token, now, lease_end(now, now, t->lease_s, was->budget), t->found);
    return rc ? rc : queue_event(q, t->found, "taken", t->worker, NULL, e);
}

static int take(struct queue *q, void *user, struct hone_error *e)
{
    struct taking *t = user;
    int rc = *t->token ? find_held(q, t, e) : 0;
    if (rc || t->found)
        return rc;
    for (;;) {
        struct queue_standing was;
        int64_t now = queue_now();
        rc = find(q, t, now, e);
        if (rc || !t->found || (rc = queue_look(q, t->found, &was, e)))
            return rc;
        bool expired = !strcmp(was.status, "leased");
        if (expired && (rc = queue_event(q, t->found, "expired", was.worker, NULL, e)))
            return rc;
        if (!expired || !was.tries || was.attempts < was.tries)
            return grant(q, t, &was, now, e);
        rc = queue_run(q, NULL, e, "UPDATE task SET status = 'failed', token = NULL, reason = ? WHERE id = ?", "si",
                       QUEUE_SPENT, t->found);
        rc = rc ? rc : queue_event(q, t->found, "failed", NULL, QUEUE_SPENT, e);
        if (rc)
            return rc;
    }
}

/* A task that is asked for by number and cannot be had is an answer of its own. */
static int why_not(struct queue *q, int64_t id, struct hone_error *e)
{
    json_t *task;
    int rc = queue_get(q, id, &task, e);
    if (rc)
        return rc;
    const char *reason = json_string_value(json_object_get(task, "reason"));
    rc = err_set(e, HONE_ECHECK, "task %lld cannot be taken: it is %s%s%s", (long long)id,
                 json_string_value(json_object_get(task, "status")), reason ? ": " : "", reason ? reason : "");
    json_decref(task);
    return rc;
}

int queue_take(struct queue *q, const char *worker, const char *role, int64_t id, int64_t lease_s, const char *token,
               json_t **task, struct hone_error *e)
{
    struct taking t = {.worker = worker, .role = role, .token = token ? token : "", .wanted = id, .lease_s = lease_s};
    *task = NULL;
    if (!worker || !*worker || strlen(worker) > 190)
        return err_set(e, HONE_EUSAGE, "a worker has a name of at most 190 characters");
    if (lease_s < 1 || lease_s > 31536000)
        return err_set(e, HONE_EUSAGE, "a lease of %lld seconds; 1 to 31536000 are possible", (long long)lease_s);
    if (strlen(t.token) > QUEUE_TOKEN || (*t.token && strlen(t.token) < 8))
        return err_set(e, HONE_EUSAGE, "a token has 8 to %d characters", QUEUE_TOKEN);
    int rc = queue_transaction(q, take, &t, e);
    if (rc || !t.found)
        return rc ? rc : id ? why_not(q, id, e) : 0;
    rc = queue_get(q, t.found, task, e);
    struct queue_standing now;
    rc = rc ? rc : queue_look(q, t.found, &now, e);
    if (!rc)
        json_object_set_new(*task, "token", json_string(now.token));
    return rc;
}

/* ---- holding and handing in */

struct change {
    int64_t id, lease_s;
    const char *token, *why, *to;
    char *result;
    bool again;
};

static int renew(struct queue *q, void *user, struct hone_error *e)
{
    struct change *c = user;
    struct queue_standing t;
    int64_t now = queue_now();
    int rc = queue_look(q, c->id, &t, e);
    rc = rc ? rc : queue_holds(&t, c->id, c->token, e);
    if (rc)
        return rc;
    int64_t end = lease_end(now, t.taken, c->lease_s, t.budget);
    if (end <= now)
        return err_set(e, HONE_ECHECK, "task %lld: its budget of %lld s is spent: hand in what there is, or fail it",
                       (long long)c->id, (long long)t.budget);
    return queue_run(q, NULL, e, "UPDATE task SET expires = ? WHERE id = ?", "ii", end, c->id);
}

int queue_renew(struct queue *q, int64_t id, const char *token, int64_t lease_s, struct hone_error *e)
{
    struct change c = {.id = id, .token = token, .lease_s = lease_s};
    if (lease_s < 1 || lease_s > 31536000)
        return err_set(e, HONE_EUSAGE, "a lease of %lld seconds; 1 to 31536000 are possible", (long long)lease_s);
    return queue_transaction(q, renew, &c, e);
}

/* Handed in before with this token. The same again changes nothing; something else takes its place, since whoever corrects a
 * mistake should not be told that all is well; but not once a supervisor has given his word on it. */
static int hand_in_again(struct queue *q, struct change *c, const struct queue_standing *t, struct hone_error *e)
{
    sqlite3_stmt *s;
    bool done = !strcmp(c->to, "done");
    int rc = queue_prepare(q, &s, e, "SELECT CASE WHEN ? THEN result IS ? ELSE reason IS ? END FROM task WHERE id = ?", "issi",
                           (int64_t)done, c->result, c->why, c->id);
    if (!rc && sqlite3_step(s) != SQLITE_ROW)
        rc = queue_sql_fail(q, e);
    c->again = !rc && sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    if (rc || c->again)
        return rc;
    if (!strcmp(t->review, "approved") || !strcmp(t->review, "rejected"))
        return err_set(e, HONE_ECHECK, "task %lld: what was handed in with this token was something else, and was %s",
                       (long long)c->id, t->review);
    rc = done ? queue_run(q, NULL, e, "UPDATE task SET result = ? WHERE id = ?", "si", c->result, c->id)
              : queue_run(q, NULL, e, "UPDATE task SET reason = ? WHERE id = ?", "si", c->why, c->id);
    return rc ? rc : queue_event(q, c->id, "corrected", t->worker, done ? c->result : c->why, e);
}

static int end_lease(struct queue *q, void *user, struct hone_error *e)
{
    struct change *c = user;
    struct queue_standing t = {0};
    bool done = !strcmp(c->to, "done");
    int rc = queue_look(q, c->id, &t, e);
    if (!rc && c->token && *c->token && !strcmp(t.token, c->token) && !strcmp(t.status, c->to))
        return hand_in_again(q, c, &t, e);
    rc = rc ? rc : queue_holds(&t, c->id, c->token, e);
    rc = rc ? rc
            : queue_run(q, NULL, e, "UPDATE task SET status = ?, reason = ?, result = ?, review = ? WHERE id = ?", "ssssi",
                        c->to, c->why, c->result, done && t.has_tier ? "waiting" : NULL, c->id);
    return rc ? rc : queue_event(q, c->id, done ? "done" : "failed", t.worker, done ? c->result : c->why, e);
}

int queue_done(struct queue *q, int64_t id, const char *token, json_t *result, bool *again, struct hone_error *e)
{
    struct change c = {.id = id, .token = token, .to = "done", .result = json_dumps(result, JSON_COMPACT)};
    int rc = c.result ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a result");
    if (!rc && strlen(c.result) > QUEUE_TEXT)
        rc = err_set(e, HONE_EUSAGE, "task %lld: a result of more than a MiB", (long long)id);
    rc = rc ? rc : queue_transaction(q, end_lease, &c, e);
    *again = c.again;
    free(c.result);
    return rc;
}

int queue_fail(struct queue *q, int64_t id, const char *token, const char *why, bool retry, bool *again, struct hone_error *e)
{
    struct change c = {.id = id, .token = token, .why = why, .to = retry ? "ready" : "failed"};
    int rc = queue_too_long(why, 4000)
                 ? err_set(e, HONE_EUSAGE, "task %lld: a reason of more than 4000 characters", (long long)id)
                 : queue_transaction(q, end_lease, &c, e);
    *again = c.again;
    return rc;
}
