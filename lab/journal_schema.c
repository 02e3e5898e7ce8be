/* journal_schema.c: the tables, what keeps them append-only, and how a file of an older version becomes one of this.
 *
 * The file's application_id says that it is a journal, its user_version which. Version n + 1 is made from version n by the n-th
 * script; a new file goes through all of them, so old and new files cannot differ. Scripts are only ever added. A file whose
 * tables, triggers or indices are not those that the scripts make is refused: someone took the triggers away, or it is not
 * ours.
 *
 * Append-only is kept by triggers: UPDATE and DELETE are refused, and an INSERT of a number that is there, since INSERT OR
 * REPLACE deletes without a word to the delete trigger. Someone who drops the triggers, edits and puts them back meets the
 * chain. */
#include "lab/journal_store.h"

#include <stdlib.h>
#include <string.h>

/* `at` is in milliseconds: nothing here is ordered by it, and people read it. */
static const char version_1[] =
    "CREATE TABLE chain (\n"
    "    id   INTEGER PRIMARY KEY,  -- 1: what was recorded here; others came by import\n"
    "    name TEXT NOT NULL UNIQUE CHECK (length(name) = 32)\n"
    ") STRICT;\n"
    "CREATE TABLE record (\n"
    "    id       INTEGER PRIMARY KEY,  -- within this file\n"
    "    chain    INTEGER NOT NULL REFERENCES chain,\n"
    "    number   INTEGER NOT NULL CHECK (number > 0),  -- within its chain\n"
    "    at       INTEGER NOT NULL,  -- milliseconds since 1970\n"
    "    kind     TEXT NOT NULL CHECK (kind IN ('build', 'machine', 'model', 'recipe', 'run', 'sample', 'check', 'verdict', "
    "'decision',\n"
    "                                           'note', 'outcome', 'end')),\n"
    "    run      INTEGER CHECK (run > 0),  -- the number of the run that it belongs to\n"
    "    name     TEXT,  -- the series of a sample, the kind of a run, the hash of a build, machine, model or recipe\n"
    "    value    REAL,  -- of a sample\n"
    "    body     TEXT NOT NULL,  -- a JSON object\n"
    "    previous TEXT NOT NULL CHECK (length(previous) = 64),  -- the hash of the record before in its chain\n"
    "    hash     TEXT NOT NULL CHECK (length(hash) = 64)\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX record_number ON record (chain, number);\n"
    "CREATE INDEX record_hash ON record (hash) WHERE kind = 'run';\n"
    "CREATE INDEX record_kind ON record (kind, at) WHERE kind <> 'sample';\n"
    "CREATE INDEX record_run ON record (chain, run, kind) WHERE run IS NOT NULL;\n"
    "CREATE INDEX record_series ON record (name, chain, run, value) WHERE kind = 'sample';\n"
    "CREATE UNIQUE INDEX record_identity ON record (name, kind, chain) WHERE kind IN ('build', 'machine', 'model', 'recipe');\n"
    "CREATE TRIGGER record_no_update BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;\n"
    "CREATE TRIGGER record_no_delete BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;\n"
    "CREATE TRIGGER record_no_replace BEFORE INSERT ON record WHEN EXISTS (SELECT 1 FROM record WHERE id = NEW.id)\n"
    "    OR EXISTS (SELECT 1 FROM record WHERE chain = NEW.chain AND number = NEW.number)\n"
    "    OR EXISTS (SELECT 1 FROM record WHERE name = NEW.name AND kind = NEW.kind AND chain = NEW.chain AND\n"
    "        kind IN ('build', 'machine', 'model', 'recipe'))\n"
    "    BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;\n"
    "CREATE TRIGGER chain_no_update BEFORE UPDATE ON chain BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;\n"
    "CREATE TRIGGER chain_no_delete BEFORE DELETE ON chain BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;\n"
    "CREATE TRIGGER chain_no_replace BEFORE INSERT ON chain WHEN EXISTS (SELECT 1 FROM chain WHERE id = NEW.id OR name = "
    "NEW.name)\n"
    "    BEGIN SELECT RAISE(ABORT, 'a journal is only added to'); END;\n"
    "INSERT INTO chain VALUES (1, lower(hex(randomblob(16))));\n";

/* The kinds as tables, for people with sqlite3. */
static const char version_2[] =
    "CREATE VIEW runs AS SELECT r.id, datetime(r.at / 1000, 'unixepoch') AS at, r.name AS kind, json_extract(r.body, "
    "'$.command') AS command,\n"
    "    json_extract(r.body, '$.hypothesis') AS hypothesis, json_extract(r.body, '$.expected_gain') AS expected_gain,\n"
    "    json_extract(r.body, '$.build') AS build, json_extract(r.body, '$.machine') AS machine, json_extract(r.body, "
    "'$.model') AS model,\n"
    "    json_extract(r.body, '$.recipe') AS recipe, r.chain, r.number FROM record r WHERE r.kind = 'run';\n"
    "CREATE VIEW samples AS SELECT r.id, o.id AS run, datetime(r.at / 1000, 'unixepoch') AS at, r.name AS series, r.value, "
    "r.body AS more\n"
    "    FROM record r JOIN record o ON o.chain = r.chain AND o.number = r.run WHERE r.kind = 'sample';\n"
    "CREATE VIEW findings AS SELECT r.id, o.id AS run, datetime(r.at / 1000, 'unixepoch') AS at, r.kind, r.body\n"
    "    FROM record r LEFT JOIN record o ON o.chain = r.chain AND o.number = r.run\n"
    "    WHERE r.kind IN ('check', 'verdict', 'decision', 'note', 'outcome', 'end');\n"
    "CREATE VIEW identities AS SELECT r.id, r.kind, r.name AS hash, r.body FROM record r\n"
    "    WHERE r.kind IN ('build', 'machine', 'model', 'recipe');\n";

static const char *const scripts[JOURNAL_VERSION] = {version_1, version_2};

static bool pragma_integer(struct journal *j, const char *sql, int64_t *out, struct hone_error *e)
{
    sqlite3_stmt *s = NULL;
    bool ok = !store_prepare(j, &s, sql, e) && store_step(j, s, e);
    if (ok)
        *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return ok;
}

/* Brings the file from `version` to ours, within a transaction that is open. */
static int migrate(struct journal *j, int64_t version, struct hone_error *e)
{
    char pragma[96];
    for (int64_t v = version; v < JOURNAL_VERSION; v++)
        if (store_exec(j, scripts[v], e))
            return e->code;
    snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d; PRAGMA user_version = %d", JOURNAL_APPLICATION,
             JOURNAL_VERSION);
    return store_exec(j, pragma, e);
}

/* Whose file this is. *version -1: an empty file that may become a journal. */
static int recognise(struct journal *j, int64_t *version, struct hone_error *e)
{
    int64_t application, objects;
    if (!pragma_integer(j, "PRAGMA application_id", &application, e) || !pragma_integer(j, "PRAGMA user_version", version, e) ||
        !pragma_integer(j, "SELECT count(*) FROM sqlite_schema", &objects, e))
        return e->code ? e->code : err_set(e, HONE_EINPUT, "%s: no journal", j->path);
    if (application != JOURNAL_APPLICATION) {
        if (application || *version || objects)
            return err_set(e, HONE_EINPUT, "%s: an SQLite database, but no journal of hone", j->path);
        *version = -1;
        return 0;
    }
    if (*version > JOURNAL_VERSION)
        return err_set(e, HONE_EINPUT, "%s: a journal of version %lld, made by a newer hone; this one knows versions up to %d",
                       j->path, (long long)*version, JOURNAL_VERSION);
    return *version < 0 ? err_set(e, HONE_EINPUT, "%s: a journal of version %lld is none", j->path, (long long)*version) : 0;
}

/* The tables are those that the scripts make, and nobody else's trigger listens. */
static int compare_schema(struct journal *j, struct hone_error *e)
{
    sqlite3 *model = NULL;
    sqlite3_stmt *want = NULL, *have = NULL;
    int rc = sqlite3_open_v2(":memory:", &model, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) ? HONE_ERESOURCE : 0;
    for (int v = 0; v < JOURNAL_VERSION && !rc; v++)
        rc = sqlite3_exec(model, scripts[v], NULL, NULL, NULL) ? HONE_EFAULT : 0;
    if (!rc)
        rc = sqlite3_prepare_v2(model, "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL", -1, &want,
                                NULL)
                 ? HONE_EFAULT
                 : 0;
    if (rc)
        rc = err_set(e, rc, "%s: the tables of a journal cannot be made: %s", j->path, sqlite3_errmsg(model));
    if (!rc)
        rc = store_prepare(j, &have, "SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2 AND tbl_name = ?3 AND sql = ?4",
                           e);
    int triggers = 0;
    while (!rc && sqlite3_step(want) == SQLITE_ROW) {
        triggers += !strcmp((const char *)sqlite3_column_text(want, 0), "trigger");
        for (int i = 0; i < 4; i++)
            sqlite3_bind_value(have, i + 1, sqlite3_column_value(want, i));
        if (!store_step(j, have, e))
            rc = e->code
                     ? e->code
                     : err_set(e, HONE_EINPUT, "%s: the %s %s is not as hone made it: someone has altered the journal", j->path,
                               (const char *)sqlite3_column_text(want, 0), (const char *)sqlite3_column_text(want, 1));
        sqlite3_reset(have);
    }
    int64_t n = triggers;
    if (!rc && !pragma_integer(j, "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'", &n, e))
        rc = e->code;
    if (!rc && n != triggers)
        rc = err_set(e, HONE_EINPUT, "%s: has triggers that are not hone's: someone has altered the journal", j->path);
    sqlite3_finalize(want);
    sqlite3_finalize(have);
    sqlite3_close(model);
    return rc;
}

/* The write-ahead log: one writer among many readers. Changing to it needs the file for a moment, and SQLite does not wait for
 * that. */
static int use_log(struct journal *j, struct hone_error *e)
{
    for (int tries = 0;; tries++) {
        sqlite3_stmt *s = NULL;
        int rc = sqlite3_prepare_v2(j->db, "PRAGMA journal_mode = WAL", -1, &s, NULL);
        if (!rc)
            rc = sqlite3_step(s);
        bool on = rc == SQLITE_ROW && sqlite3_column_text(s, 0) && !strcmp((const char *)sqlite3_column_text(s, 0), "wal");
        sqlite3_finalize(s);
        if (on)
            return 0;
        if ((rc & 0xff) != SQLITE_BUSY && (rc & 0xff) != SQLITE_LOCKED)
            return rc == SQLITE_ROW ? err_set(e, HONE_ERESOURCE,
                                              "%s: this place cannot hold a write-ahead log (a network file system?)", j->path)
                                    : store_fail(j, e);
        if (tries == BUSY_MS / 10)
            return store_fail(j, e);
        sqlite3_sleep(10);
    }
}

int schema_open(struct journal *j, bool *older, struct hone_error *e)
{
    int64_t version;
    *older = false;
    int rc = recognise(j, &version, e);
    if (!rc && j->writes)
        rc = use_log(j, e);
    if (!rc && !j->writes && version < 0)
        rc = err_set(e, HONE_EINPUT, "%s: an empty file, no journal yet", j->path);
    if (!rc && version < JOURNAL_VERSION) {
        if (!j->writes) {
            *older = true;
            return 0;
        }
        rc = store_exec(j, "BEGIN IMMEDIATE", e);
        if (!rc) { /* another process may have been faster */
            rc = recognise(j, &version, e);
            if (!rc && version < JOURNAL_VERSION)
                rc = migrate(j, version < 0 ? 0 : version, e);
            if (!rc)
                rc = store_exec(j, "COMMIT", e);
            if (rc)
                sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL);
        }
    }
    return rc ? rc : compare_schema(j, e);
}
