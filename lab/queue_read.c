/* queue_read.c: what a queue says of its tasks. What a task waits for, and whether its lease has run out, is computed when it
 * is asked for: stored, it would be one more thing to keep true. */
#include "lab/queue_store.h"

#include "lab/journal.h"

#include <stdio.h>
#include <string.h>

#define SPENT "status = 'leased' AND expires <= ?1 AND tries > 0 AND attempts >= tries"
static const char columns[] =
    "SELECT id, title, CASE WHEN " SPENT " THEN 'failed' WHEN status = 'leased' AND expires <= ?1 THEN 'ready'\n"
    "    WHEN status = 'ready' AND waits THEN 'blocked' ELSE status END AS status,\n"
    "    CASE WHEN " SPENT " THEN '" QUEUE_SPENT "' WHEN status = 'ready' AND waits THEN\n"
    "    (SELECT 'waits for ' || group_concat(needs || CASE WHEN needed.status = 'failed' THEN ' (failed)' WHEN needed.review "
    "= "
    "'waiting'\n"
    "    THEN ' (waiting for approval)' WHEN needed.review = 'rejected' THEN ' (rejected)' ELSE '' END, ', ')\n"
    "    FROM after JOIN task needed ON needed.id = needs WHERE after.task = t.id AND " QUEUE_WAITED_FOR ")\n"
    "    ELSE reason END AS reason,\n"
    "    role, work, recipe, model, series, hypothesis, tier, expected_gain, priority, budget, tries, parent, attempts, "
    "worker, added, taken, expires,\n"
    "    result, review\n"
    "FROM (SELECT *, EXISTS (SELECT 1 FROM after JOIN task needed ON needed.id = needs WHERE after.task = task.id AND\n"
    "    " QUEUE_WAITED_FOR ") AS waits FROM task) t ";

bool queue_is_status(const char *word)
{
    static const char *const words[] = {"backlog", "ready", "leased", "done", "failed", "blocked"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

static bool is_time(const char *name)
{
    return !strcmp(name, "added") || !strcmp(name, "taken") || !strcmp(name, "expires");
}

/* The row at hand; columns that are NULL are left out. NULL: no memory, or text that is none. */
static json_t *row_json(sqlite3_stmt *s)
{
    json_t *o = json_object();
    for (int i = 0; i < sqlite3_column_count(s) && o; i++) {
        const char *name = sqlite3_column_name(s, i), *text;
        char at[32];
        json_t *value = NULL;
        switch (sqlite3_column_type(s, i)) {
        case SQLITE_NULL:
            continue;
        case SQLITE_INTEGER:
            if (is_time(name))
                journal_time(sqlite3_column_int64(s, i), at);
            value = is_time(name) ? json_string(at) : json_integer(sqlite3_column_int64(s, i));
            break;
        case SQLITE_FLOAT:
            value = json_real(sqlite3_column_double(s, i));
            break;
        default:
            text = (const char *)sqlite3_column_text(s, i);
            value = !text ? NULL : !strcmp(name, "result") ? json_loads(text, 0, NULL) : json_string(text);
        }
        if (json_object_set_new(o, name, value)) {
            json_decref(o);
            o = NULL;
        }
    }
    return o;
}

/* Every row of a statement, which is finalised. */
static int rows(struct queue *q, sqlite3_stmt *s, json_t **list, struct hone_error *e)
{
    int step, rc = 0;
    *list = json_array();
    while ((step = sqlite3_step(s)) == SQLITE_ROW && !rc) {
        json_t *one = row_json(s);
        if (!one || json_array_append_new(*list, one))
            rc = err_set(e, HONE_EINPUT, "%s: a task that cannot be read: the file is damaged, or memory is out", q->path);
    }
    if (!rc && step != SQLITE_DONE)
        rc = queue_sql_fail(q, e);
    sqlite3_finalize(s);
    if (rc) {
        json_decref(*list);
        *list = NULL;
    }
    return rc;
}

static int needs(struct queue *q, int64_t id, json_t *task, struct hone_error *e)
{
    sqlite3_stmt *s;
    int rc = queue_prepare(q, &s, e, "SELECT needs FROM after WHERE task = ? ORDER BY needs", "i", id);
    json_t *list = json_array();
    while (!rc && sqlite3_step(s) == SQLITE_ROW)
        json_array_append_new(list, json_integer(sqlite3_column_int64(s, 0)));
    sqlite3_finalize(s);
    json_object_set_new(task, "after", list);
    return rc;
}

int queue_get(struct queue *q, int64_t id, json_t **task, struct hone_error *e)
{
    sqlite3_stmt *s;
    char sql[sizeof columns + 64];
    json_t *list = NULL;
    *task = NULL;
    snprintf(sql, sizeof sql, "%s WHERE id = ?2", columns);
    int rc = queue_prepare(q, &s, e, sql, "ii", queue_now(), id);
    rc = rc ? rc : rows(q, s, &list, e);
    if (!rc && !json_array_size(list))
        rc = err_set(e, HONE_EINPUT, "%s: there is no task %lld", q->path, (long long)id);
    if (!rc) {
        *task = json_incref(json_array_get(list, 0));
        rc = needs(q, id, *task, e);
    }
    json_decref(list);
    return rc;
}

int queue_list(struct queue *q, const char *status, json_t **tasks, struct hone_error *e)
{
    sqlite3_stmt *s;
    char sql[sizeof columns + 160];
    *tasks = NULL;
    snprintf(sql, sizeof sql, "SELECT * FROM (%s) WHERE ?2 IS NULL OR status = ?2 ORDER BY priority DESC, id", columns);
    int rc = queue_prepare(q, &s, e, sql, "is", queue_now(), status);
    return rc ? rc : rows(q, s, tasks, e);
}

int queue_events(struct queue *q, int64_t id, json_t **events, struct hone_error *e)
{
    sqlite3_stmt *s;
    *events = NULL;
    int rc = queue_prepare(q, &s, e, "SELECT at AS added, what, who, detail FROM event WHERE task = ? ORDER BY id", "i", id);
    rc = rc ? rc : rows(q, s, events, e);
    json_t *one;
    size_t i;
    json_array_foreach(*events, i, one)
    {
        json_object_set(one, "at", json_object_get(one, "added"));
        json_object_del(one, "added");
    }
    return rc;
}
