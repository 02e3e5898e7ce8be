/* journal_fixture.h: what the journal's tests share: a folder of their own, calls that must succeed, a raw connection behind
 * the journal's back. */
#ifndef TESTS_JOURNAL_FIXTURE_H
#define TESTS_JOURNAL_FIXTURE_H

#include "tests/test.h"

#include "lab/journal_judge.h"
#include "lab/journal_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static char db[128]; /* the journal of the test at hand */

static inline int fresh(void **state)
{
    static int n;
    (void)state;
    if (!folder[0]) {
        /* In memory where possible: what a crash of the machine leaves is SQLite's to prove, and thousands of syncs take
         * minutes. */
        const char *place = getenv("HONE_TEST_FOLDER");
        place = place ? place : access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
        snprintf(folder, sizeof folder, "%.32s/hone-journal-XXXXXX", place);
        if (!mkdtemp(folder))
            return -1;
    }
    snprintf(db, sizeof db, "%s/%d.db", folder, n++);
    return 0;
}

static inline int clean(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return folder[0] ? system(command) : 0;
}

static inline struct journal *open_ok(const char *path, enum journal_mode mode)
{
    struct hone_error e = {0};
    struct journal *j = NULL;
    if (journal_open(&j, path, mode, &e))
        fail_msg("%s", e.message);
    return j;
}

/* Opening must fail with this code and words. */
static inline void open_bad(const char *path, enum journal_mode mode, int code, const char *words)
{
    struct hone_error e = {0};
    struct journal *j;
    int rc = journal_open(&j, path, mode, &e);
    if (rc != code || !strstr(e.message, words) || j)
        fail_msg("%s: code %d, not %d; '%s' lacks '%s'", path, rc, code, e.message, words);
}

static inline int64_t begin_ok(struct journal *j, const char *kind, const char *commit, const char *model, const char *gates)
{
    struct hone_error e = {0};
    int64_t run;
    json_t *build = json_pack("{s:s}", "commit", commit), *m = json_pack("{s:s, s:s}", "name", model, "sha256", "feed");
    json_t *machine = json_pack("{s:s}", "cpu", "abacus"), *recipe = json_pack("{s:[s]}", "gates", gates),
           *config = json_pack("{s:i}", "threads", 2);
    struct journal_run r = {.kind = kind,
                            .command = "hone bench -m x",
                            .build = build,
                            .machine = machine,
                            .model = m,
                            .recipe = recipe,
                            .config = config,
                            .hypothesis = "fewer bytes",
                            .expected_gain = 0.02};
    if (journal_run_begin(j, &r, &run, &e))
        fail_msg("%s", e.message);
    json_decref(build);
    json_decref(m);
    json_decref(machine);
    json_decref(recipe);
    json_decref(config);
    return run;
}

static inline void sample_ok(struct journal *j, int64_t run, const char *series, double value)
{
    struct hone_error e = {0};
    if (journal_sample(j, run, series, value, NULL, &e))
        fail_msg("%s", e.message);
}

static inline void record_ok(struct journal *j, int64_t run, const char *kind, const char *key, const char *value)
{
    struct hone_error e = {0};
    json_t *body = json_pack("{s:s}", key, value);
    if (journal_record(j, run, kind, body, NULL, &e))
        fail_msg("%s", e.message);
    json_decref(body);
}

static inline void end_ok(struct journal *j, int64_t run)
{
    struct hone_error e = {0};
    json_t *outcome = json_pack("{s:s}", "status", "done");
    if (journal_run_end(j, run, outcome, &e))
        fail_msg("%s", e.message);
    json_decref(outcome);
}

static inline struct journal_checked verify_ok(struct journal *j)
{
    struct hone_error e = {0};
    struct journal_checked c;
    if (journal_verify(j, &c, &e))
        fail_msg("%s", e.message);
    return c;
}

/* SQL behind the journal's back, as someone with sqlite3 would do it. */
static inline int raw(const char *path, const char *sql)
{
    sqlite3 *s;
    char *why = NULL;
    int rc = sqlite3_open(path, &s);
    sqlite3_db_config(s, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    if (!rc)
        rc = sqlite3_exec(s, sql, NULL, NULL, &why);
    if (why && getenv("HONE_TEST_VERBOSE"))
        print_message("%s: %s\n", sql, why);
    sqlite3_free(why);
    sqlite3_close(s);
    return rc;
}

static inline void raw_ok(const char *path, const char *sql)
{
    assert_int_equal(raw(path, sql), 0);
}

/* The triggers away, sql, and the triggers as they were: what an editor who knows the file would do. */
static inline void edit(const char *path, const char *sql)
{
    raw_ok(path, "CREATE TABLE kept AS SELECT sql FROM sqlite_schema WHERE type = 'trigger'; DROP TRIGGER record_no_update; "
                 "DROP TRIGGER "
                 "record_no_delete; DROP TRIGGER record_no_replace");
    raw_ok(path, sql);
    sqlite3 *s;
    sqlite3_stmt *q;
    assert_int_equal(sqlite3_open(path, &s), 0);
    assert_int_equal(sqlite3_prepare_v2(s, "SELECT sql FROM kept", -1, &q, NULL), 0);
    while (sqlite3_step(q) == SQLITE_ROW) {
        char *text = strdup((const char *)sqlite3_column_text(q, 0));
        if (strstr(text, "ON record") && !strstr(text, "chain_no"))
            assert_int_equal(sqlite3_exec(s, text, NULL, NULL, NULL), 0);
        free(text);
    }
    sqlite3_finalize(q);
    assert_int_equal(sqlite3_exec(s, "DROP TABLE kept", NULL, NULL, NULL), 0);
    sqlite3_close(s);
}

/* Every reader once: what a hostile file meets. Returns how many of them failed. */
static inline int read_everything(const char *path)
{
    struct hone_error e = {0};
    struct journal *j;
    struct journal_filter f = {.superseded = true};
    struct journal_histories h;
    struct journal_trend *trends;
    struct journal_checked c;
    json_t *runs, *run;
    size_t i;
    int64_t n;
    int failed = 0;
    if (journal_open(&j, path, JOURNAL_READ, &e))
        return 1;
    failed += journal_list(j, &f, &runs, &e) != 0;
    json_array_foreach(runs, i, run)
    {
        int64_t id = json_integer_value(json_object_get(run, "id"));
        struct journal_contrast *list;
        json_t *one, *records, *verdict;
        size_t n_list;
        bool agrees;
        e.code = 0;
        failed += journal_get(j, id, &one, &e) != 0;
        if (one)
            failed += journal_rederive(j, one, &verdict, &agrees, &e) != 0;
        if (one)
            json_decref(verdict);
        json_decref(one);
        failed += journal_records(j, id, NULL, &records, &e) != 0;
        json_decref(records);
        failed += journal_compare(j, id, id, 0.9, &list, &n_list, &e) != 0;
        journal_contrasts_free(list, n_list);
    }
    json_decref(runs);
    e.code = 0;
    f.series = "*";
    if (journal_history(j, &f, &h, &e) == 0) {
        if (journal_regress(&h, 0.01, 0, &trends, &e) == 0)
            journal_trends_free(trends, h.n);
        else
            failed++;
        journal_history_free(&h);
    } else {
        failed++;
    }
    e.code = 0;
    failed += journal_verify(j, &c, &e) != 0;
    e.code = 0;
    FILE *out = fopen("/dev/null", "w");
    failed += journal_export(j, 0, out, &n, &e) != 0;
    fclose(out);
    journal_close(j);
    return failed;
}

#endif
