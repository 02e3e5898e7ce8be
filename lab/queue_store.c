/* queue_store.c: the queue's file: its tables, and how it is changed.
 *
 * Every change takes SQLite's write lock before it looks (BEGIN IMMEDIATE), so what it decides by cannot change under it;
 * workers wait for one another for microseconds. synchronous=FULL: what a worker was told it holds, it holds after a power cut
 * too. A worker that is killed within a change leaves nothing of it.
 *
 * It is a file of its own since it is the opposite of a journal: the journal is only ever added to, tasks change their state
 * all the time. Lock files, one a task, were the alternative; they cannot expire without a race, and a dependency is no file.
 */
#include "lab/queue_store.h"

#include "model/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char schema[] =
    "CREATE TABLE task (\n"
    "    id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "    title TEXT NOT NULL,\n"
    "    status TEXT NOT NULL CHECK (status IN ('backlog', 'ready', 'leased', 'done', 'failed', 'blocked')),\n"
    "    reason TEXT,  -- why it is blocked or failed\n"
    "    role TEXT, work TEXT, recipe TEXT, model TEXT, series TEXT, hypothesis TEXT, tier TEXT,\n"
    "    expected_gain REAL,\n"
    "    priority INTEGER NOT NULL,\n"
    "    budget INTEGER NOT NULL,  -- seconds; 0: none\n"
    "    tries INTEGER NOT NULL,\n"
    "    parent INTEGER REFERENCES task,\n"
    "    added INTEGER NOT NULL,  -- milliseconds since 1970, as all times\n"
    "    attempts INTEGER NOT NULL DEFAULT 0,\n"
    "    worker TEXT, token TEXT, taken INTEGER, expires INTEGER,  -- of the lease, or of the last one\n"
    "    result TEXT,  -- JSON\n"
    "    review TEXT CHECK (review IN ('waiting', 'approved', 'rejected')),\n"
    "    CHECK ((status = 'leased') <= (token IS NOT NULL AND expires IS NOT NULL))\n"
    ") STRICT;\n"
    "CREATE TABLE after (task INTEGER NOT NULL REFERENCES task, needs INTEGER NOT NULL REFERENCES task CHECK (needs < task),\n"
    "    PRIMARY KEY (task, needs)) STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE event (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, task INTEGER NOT NULL REFERENCES task, what TEXT NOT "
    "NULL,\n"
    "    who TEXT, detail TEXT) STRICT;\n"
    "CREATE INDEX task_order ON task (status, priority DESC, id);\n"
    "CREATE INDEX task_token ON task (token) WHERE token IS NOT NULL;\n"
    "CREATE INDEX event_task ON event (task);\n";

int64_t queue_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int queue_sql_fail(struct queue *q, struct hone_error *e)
{
    int code = HONE_ERESOURCE;
    switch (sqlite3_extended_errcode(q->db) & 0xff) {
    case SQLITE_NOTADB:
        return err_set(e, HONE_EINPUT, "%s: no queue: the file is not an SQLite database", q->path);
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
    case SQLITE_ERROR:
        code = HONE_EINPUT;
    }
    return err_set(e, code, "%s: %s", q->path, sqlite3_errmsg(q->db));
}

int queue_exec(struct queue *q, const char *sql, struct hone_error *e)
{
    return sqlite3_exec(q->db, sql, NULL, NULL, NULL) ? queue_sql_fail(q, e) : 0;
}

/* A text that is no UTF-8 could be written, but no list that holds it could be read as JSON again. */
static bool is_utf8(const char *text)
{
    for (size_t n = text ? strlen(text) : 0, step; n; text += step, n -= step)
        if (!(step = utf8_sequence(text, n)))
            return false;
    return true;
}

static int bind_all(struct queue *q, sqlite3_stmt *s, const char *format, va_list ap, struct hone_error *e)
{
    int rc = 0;
    for (int i = 1; *format && !rc; i++, format++)
        if (*format == 'i') {
            rc = sqlite3_bind_int64(s, i, va_arg(ap, int64_t));
        } else if (*format == 'd') {
            double x = va_arg(ap, double);
            rc = isfinite(x) ? sqlite3_bind_double(s, i, x) : sqlite3_bind_null(s, i);
        } else {
            const char *text = va_arg(ap, const char *);
            if (!is_utf8(text))
                return err_set(e, HONE_EUSAGE, "'%.40s' is no UTF-8, and a queue holds nothing else", text);
            rc = sqlite3_bind_text(s, i, text, -1, SQLITE_TRANSIENT);
        }
    return rc ? queue_sql_fail(q, e) : 0;
}

int queue_prepare(struct queue *q, sqlite3_stmt **s, struct hone_error *e, const char *sql, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    *s = NULL;
    int rc = sqlite3_prepare_v2(q->db, sql, -1, s, NULL) ? queue_sql_fail(q, e) : bind_all(q, *s, format, ap, e);
    va_end(ap);
    return rc;
}

int queue_run(struct queue *q, int *changed, struct hone_error *e, const char *sql, const char *format, ...)
{
    va_list ap;
    sqlite3_stmt *s = NULL;
    va_start(ap, format);
    int rc = sqlite3_prepare_v2(q->db, sql, -1, &s, NULL) ? queue_sql_fail(q, e) : bind_all(q, s, format, ap, e);
    va_end(ap);
    if (!rc && sqlite3_step(s) != SQLITE_DONE)
        rc = queue_sql_fail(q, e);
    if (changed)
        *changed = rc ? 0 : sqlite3_changes(q->db);
    sqlite3_finalize(s);
    return rc;
}

int queue_transaction(struct queue *q, int (*work)(struct queue *q, void *user, struct hone_error *e), void *user,
                      struct hone_error *e)
{
    struct hone_error own = {0};
    int rc = queue_exec(q, "BEGIN IMMEDIATE", &own);
    if (!rc) {
        rc = work(q, user, &own);
        if (!rc)
            rc = queue_exec(q, "COMMIT", &own);
        if (rc)
            sqlite3_exec(q->db, "ROLLBACK", NULL, NULL, NULL);
    }
    if (rc && e)
        *e = own;
    return rc;
}

int queue_event(struct queue *q, int64_t id, const char *what, const char *who, const char *detail, struct hone_error *e)
{
    return queue_run(q, NULL, e, "INSERT INTO event (at, task, what, who, detail) VALUES (?, ?, ?, ?, ?)", "iisss", queue_now(),
                     id, what, who, detail);
}

/* ---- opening */

static int pragma(struct queue *q, const char *sql, int64_t *out, struct hone_error *e)
{
    sqlite3_stmt *s;
    int rc = queue_prepare(q, &s, e, sql, "");
    if (!rc && sqlite3_step(s) != SQLITE_ROW)
        rc = queue_sql_fail(q, e);
    if (!rc)
        *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc;
}

/* Whose file this is; a new one is made. Within a transaction, so that two who open it first make one. */
static int recognise(struct queue *q, void *user, struct hone_error *e)
{
    int64_t application = 0, version = 0, objects = 0;
    char text[96];
    (void)user;
    int rc = pragma(q, "PRAGMA application_id", &application, e);
    rc = rc ? rc : pragma(q, "PRAGMA user_version", &version, e);
    rc = rc ? rc : pragma(q, "SELECT count(*) FROM sqlite_schema", &objects, e);
    if (rc)
        return rc;
    if (application == QUEUE_APPLICATION)
        return version == QUEUE_VERSION ? 0
                                        : err_set(e, HONE_EINPUT, "%s: a queue of version %lld; this hone knows version %d",
                                                  q->path, (long long)version, QUEUE_VERSION);
    if (application || version || objects)
        return err_set(e, HONE_EINPUT, "%s: an SQLite database, but no queue of hone", q->path);
    snprintf(text, sizeof text, "PRAGMA application_id = %d; PRAGMA user_version = %d", QUEUE_APPLICATION, QUEUE_VERSION);
    rc = queue_exec(q, schema, e);
    return rc ? rc : queue_exec(q, text, e);
}

static int open_file(struct queue *q, struct hone_error *e)
{
    struct stat st;
    char *path = NULL;
    if (stat(q->path, &st) == 0 ? !S_ISREG(st.st_mode) : errno != ENOENT)
        return err_set(e, HONE_EINPUT, "%s: no regular file that can be looked at", q->path);
    if (asprintf(&path, "%s%s", q->path[0] == '/' ? "" : "./", q->path) < 0)
        return err_set(e, HONE_ERESOURCE, "no memory for a path");
    int rc = sqlite3_open_v2(path, &q->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    free(path);
    if (!q->db)
        return err_set(e, HONE_ERESOURCE, "%s: no memory to open it", q->path);
    if (rc)
        return queue_sql_fail(q, e);
    sqlite3_busy_timeout(q->db, QUEUE_BUSY_MS);
    sqlite3_limit(q->db, SQLITE_LIMIT_LENGTH, 2 * QUEUE_TEXT);
    sqlite3_db_config(q->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(q->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return queue_exec(
        q, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON", e);
}

int queue_open(struct queue **out, const char *path, struct hone_error *e)
{
    struct hone_error own = {0};
    struct queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q || !(q->path = strdup(path))) {
        free(q);
        return err_set(e, HONE_ERESOURCE, "no memory for a queue");
    }
    int rc = open_file(q, &own);
    rc = rc ? rc : queue_transaction(q, recognise, NULL, &own);
    if (rc) {
        queue_close(q);
        if (e)
            *e = own;
        return rc;
    }
    *out = q;
    return 0;
}

void queue_close(struct queue *q)
{
    if (!q)
        return;
    if (sqlite3_close(q->db))
        sqlite3_close_v2(q->db);
    free(q->path);
    free(q);
}
