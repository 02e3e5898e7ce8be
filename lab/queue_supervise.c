/* queue_supervise.c: what is done to a task from above: blocked, made ready, judged, and, against mistakes, released, cancelled
 * and edited.
 *
 * These need no token, so each is an event with the name of who did it and why; of an edit, with what stood there before: a
 * task whose tier was changed after work on it began must show that. Whoever may do so is cmd/'s question.
 *
 * A lease is never shortened behind its holder's back: a release ends it at once and takes its token's power away, so a worker
 * that still works finds out with its next renewal. To let it run out sooner was the alternative; then both would hand in, and
 * who came first would count. A task that somebody has is not edited for the same reason: what was measured would be an answer
 * to another question. */
#include "lab/queue_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON = 4000 };

struct order {
    int64_t id;
    const char *token, *who, *why;
    bool approved;
    const struct queue_edit *edit;
};

static int check_reason(int64_t id, const char *why, struct hone_error *e)
{
    return queue_too_long(why, REASON)
               ? err_set(e, HONE_EUSAGE, "task %lld: a reason of more than %d characters", (long long)id, REASON)
               : 0;
}

/* ---- block and ready */

static int block(struct queue *q, void *user, struct hone_error *e)
{
    struct order *o = user;
    struct queue_standing t;
    int rc = queue_look(q, o->id, &t, e);
    if (!rc && !strcmp(t.status, "leased") && !t.spent)
        rc = queue_holds(&t, o->id, o->token, e);
    if (!rc && (!strcmp(t.status, "done") || !strcmp(t.status, "failed")))
        rc = queue_refuse(e, o->id, &t, "it cannot be blocked");
    rc = rc ? rc : queue_run(q, NULL, e, "UPDATE task SET status = 'blocked', reason = ? WHERE id = ?", "si", o->why, o->id);
    return rc ? rc : queue_event(q, o->id, "blocked", NULL, o->why, e);
}

int queue_block(struct queue *q, int64_t id, const char *token, const char *why, struct hone_error *e)
{
    struct order o = {.id = id, .token = token, .why = why};
    int rc = check_reason(id, why, e);
    return rc ? rc : queue_transaction(q, block, &o, e);
}

static int make_ready(struct queue *q, void *user, struct hone_error *e)
{
    struct order *o = user;
    struct queue_standing t;
    int rc = queue_look(q, o->id, &t, e);
    bool leased = !rc && !strcmp(t.status, "leased") && !t.spent;
    if (!rc && (!strcmp(t.status, "ready") || (leased && t.expires <= queue_now()))) /* it is so already */
        return 0;
    if (!rc && (leased || (!strcmp(t.status, "done") && strcmp(t.review, "rejected") != 0)))
        rc = queue_refuse(e, o->id, &t, "it cannot be made ready");
    rc = rc ? rc
            : queue_run(
                  q, NULL, e,
                  "UPDATE task SET status = 'ready', reason = NULL, review = NULL, token = NULL, attempts = 0 WHERE id = ?",
                  "i", o->id);
    return rc ? rc : queue_event(q, o->id, "ready", o->who, NULL, e);
}

int queue_ready(struct queue *q, int64_t id, const char *who, struct hone_error *e)
{
    struct order o = {.id = id, .who = who};
    return queue_transaction(q, make_ready, &o, e);
}

/* ---- the word on what was handed in */

static int review(struct queue *q, void *user, struct hone_error *e)
{
    struct order *o = user;
    struct queue_standing t;
    const char *word = o->approved ? "approved" : "rejected";
    int rc = queue_look(q, o->id, &t, e);
    if (!rc && !strcmp(t.review, word))
        return 0;
    if (!rc && (strcmp(t.status, "done") != 0 || strcmp(t.review, "waiting") != 0))
        rc =
            queue_refuse(e, o->id, &t, t.has_tier ? "nothing of it waits for a word" : "it has no tier, so nothing to approve");
    if (!rc && !strcmp(t.worker, o->who))
        rc = err_set(e, HONE_ECHECK, "task %lld: %s handed it in, and cannot judge it too", (long long)o->id, o->who);
    rc = rc ? rc : queue_run(q, NULL, e, "UPDATE task SET review = ?, reason = ? WHERE id = ?", "ssi", word, o->why, o->id);
    return rc ? rc : queue_event(q, o->id, word, o->who, o->why, e);
}

int queue_review(struct queue *q, int64_t id, bool approved, const char *who, const char *why, struct hone_error *e)
{
    struct order o = {.id = id, .approved = approved, .who = who, .why = why};
    return queue_transaction(q, review, &o, e);
}

/* ---- against mistakes */

static int release(struct queue *q, void *user, struct hone_error *e)
{
    struct order *o = user;
    struct queue_standing t;
    char text[REASON + 300];
    int rc = queue_look(q, o->id, &t, e);
    if (!rc && strcmp(t.status, "leased") != 0)
        rc = queue_refuse(e, o->id, &t, "nobody has it");
    snprintf(text, sizeof text, "released by %.200s: %s", o->who, o->why);
    rc = rc ? rc
            : queue_run(q, NULL, e, "UPDATE task SET status = 'ready', reason = ?, token = NULL WHERE id = ?", "si", text,
                        o->id);
    snprintf(text, sizeof text, "%.200s had it: %s", t.worker, o->why);
    return rc ? rc : queue_event(q, o->id, "released", o->who, text, e);
}

int queue_release(struct queue *q, int64_t id, const char *who, const char *why, struct hone_error *e)
{
    struct order o = {.id = id, .who = who, .why = why};
    int rc = check_reason(id, why, e);
    return rc ? rc : queue_transaction(q, release, &o, e);
}

static int cancel(struct queue *q, void *user, struct hone_error *e)
{
    struct order *o = user;
    struct queue_standing t;
    char text[REASON + 300];
    int rc = queue_look(q, o->id, &t, e);
    if (!rc && (!strcmp(t.status, "done") || !strcmp(t.status, "failed")))
        rc = queue_refuse(e, o->id, &t, "it has come to its end");
    snprintf(text, sizeof text, "cancelled by %.200s: %s", o->who, o->why);
    rc = rc ? rc
            : queue_run(q, NULL, e, "UPDATE task SET status = 'failed', reason = ?, token = NULL WHERE id = ?", "si", text,
                        o->id);
    return rc ? rc : queue_event(q, o->id, "cancelled", o->who, o->why, e);
}

int queue_cancel(struct queue *q, int64_t id, const char *who, const char *why, struct hone_error *e)
{
    struct order o = {.id = id, .who = who, .why = why};
    int rc = check_reason(id, why, e);
    return rc ? rc : queue_transaction(q, cancel, &o, e);
}

/* ---- edit */

static const struct field {
    const char *name;
    char kind; /* s text, i whole number, d number; as queue_run's formats */
    size_t limit;
} fields[] = {{"title", 's', 400},       {"role", 's', 4000},  {"recipe", 's', 4000},  {"model", 's', 4000},
              {"series", 's', 4000},     {"tier", 's', 4000},  {"work", 's', 1 << 20}, {"hypothesis", 's', 1 << 20},
              {"expected_gain", 'd', 0}, {"priority", 'i', 0}, {"budget", 'i', 0},     {"tries", 'i', 0}};

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(fields[i].name, name))
            return &fields[i];
    return NULL;
}

static int check_value(int64_t id, const struct queue_value *v, struct hone_error *e)
{
    const struct field *f = find_field(v->field);
    bool title = f && !strcmp(f->name, "title");
    if (!f)
        return err_set(e, HONE_EUSAGE, "task %lld: a task has no field %.40s", (long long)id, v->field);
    if (title && (!v->text || !*v->text || strpbrk(v->text, "\n\r")))
        return err_set(e, HONE_EUSAGE, "task %lld: a title is one line", (long long)id);
    if (f->kind == 's' && queue_too_long(v->text, f->limit))
        return err_set(e, HONE_EUSAGE, "task %lld: %s: more than %zu characters", (long long)id, f->name, f->limit);
    if (f->kind == 'i' && !(fabs(v->number) <= 31536000))
        return err_set(e, HONE_EUSAGE, "task %lld: %s: -31536000 to 31536000 are possible", (long long)id, f->name);
    return 0;
}

/* One field; what it was and what it is goes to `changes`, unless it was so already. */
static int set_value(struct queue *q, int64_t id, const json_t *task, const struct queue_value *v, json_t *changes,
                     struct hone_error *e)
{
    const struct field *f = find_field(v->field);
    const char *text = v->text && *v->text ? v->text : NULL;
    char sql[80], format[3] = {f->kind, 'i', 0};
    json_t *was = json_object_get(task, f->name), *is;
    is = f->kind == 's'        ? (text ? json_string(text) : json_null())
         : f->kind == 'i'      ? json_integer((json_int_t)v->number)
         : isfinite(v->number) ? json_real(v->number)
                               : json_null();
    int rc = is ? 0 : err_set(e, HONE_EUSAGE, "task %lld: %s is no UTF-8", (long long)id, f->name);
    was = was ? was : json_null();
    snprintf(sql, sizeof sql, "UPDATE task SET %s = ? WHERE id = ?", f->name);
    if (!rc && !json_equal(was, is)) {
        rc = f->kind == 's'   ? queue_run(q, NULL, e, sql, format, text, id)
             : f->kind == 'i' ? queue_run(q, NULL, e, sql, format, (int64_t)v->number, id)
                              : queue_run(q, NULL, e, sql, format, v->number, id);
        json_object_set_new(changes, f->name, json_pack("{s:O, s:O}", "was", was, "is", is));
    }
    json_decref(is);
    return rc;
}

static int set_after(struct queue *q, int64_t id, const json_t *task, const struct queue_edit *d, json_t *changes,
                     struct hone_error *e)
{
    json_t *is = json_array();
    struct queue_standing other;
    int rc = queue_run(q, NULL, e, "DELETE FROM after WHERE task = ?", "i", id);
    for (int i = 0; i < d->n_after && !rc; i++) {
        rc = d->after[i] < id ? queue_look(q, d->after[i], &other, e)
                              : err_set(e, HONE_EUSAGE, "task %lld: it comes after older ones, and %lld is none", (long long)id,
                                        (long long)d->after[i]);
        rc = rc ? rc : queue_run(q, NULL, e, "INSERT OR IGNORE INTO after VALUES (?, ?)", "ii", id, d->after[i]);
        json_array_append_new(is, json_integer((json_int_t)d->after[i]));
    }
    if (!rc && !json_equal(json_object_get(task, "after"), is))
        json_object_set_new(changes, "after", json_pack("{s:O, s:O}", "was", json_object_get(task, "after"), "is", is));
    json_decref(is);
    return rc;
}

static int edit(struct queue *q, void *user, struct hone_error *e)
{
    struct order *o = user;
    const struct queue_edit *d = o->edit;
    struct queue_standing t;
    json_t *task = NULL, *changes = json_object();
    int rc = queue_look(q, o->id, &t, e);
    if (!rc && !strcmp(t.status, "leased") && !t.spent)
        rc = queue_refuse(e, o->id, &t, "somebody has it: release it first");
    if (!rc && !strcmp(t.status, "done") && strcmp(t.review, "rejected") != 0)
        rc = queue_refuse(e, o->id, &t, "it cannot be edited");
    rc = rc ? rc : queue_get(q, o->id, &task, e);
    for (int i = 0; i < d->n_values && !rc; i++)
        rc = set_value(q, o->id, task, &d->values[i], changes, e);
    if (!rc && d->n_after >= 0)
        rc = set_after(q, o->id, task, d, changes, e);
    char *text = rc || !json_object_size(changes) ? NULL : json_dumps(changes, JSON_COMPACT);
    if (text)
        rc = queue_event(q, o->id, "edited", o->who, text, e);
    free(text);
    json_decref(changes);
    json_decref(task);
    return rc;
}

int queue_edit(struct queue *q, int64_t id, const struct queue_edit *d, const char *who, struct hone_error *e)
{
    struct order o = {.id = id, .who = who, .edit = d};
    int rc = 0;
    for (int i = 0; i < d->n_values && !rc; i++)
        rc = check_value(id, &d->values[i], e);
    return rc ? rc : queue_transaction(q, edit, &o, e);
}
