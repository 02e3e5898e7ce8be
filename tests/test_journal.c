/* test_journal.c: the journal as a store: what goes in comes out; nothing is edited; an edit shows; what is no journal is
 * refused by name; an export comes back as it was; a hostile file or line is an error. Crashes, full disks and size:
 * test_journal_crash.c. */
#include "tests/journal_fixture.h"

#include <sys/stat.h>

/* ---- writing and reading */

static void test_round(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t first = begin_ok(j, "bench", "aaa", "tiny", "fuse=off"), second;
    json_t *more = json_pack("{s:s, s:f}", "arm", "a", "exact", 0.1);
    assert_int_equal(journal_sample(j, first, "tg4 t/s", 101.25, more, &e), 0);
    json_decref(more);
    sample_ok(j, first, "ttft ms", 1e-300);
    sample_ok(j, first, "tg4 t/s", 0.1);
    record_ok(j, first, "verdict", "verdict", "right");
    end_ok(j, first);
    record_ok(j, first, "outcome", "outcome", "kept");
    second = begin_ok(j, "ab", "bbb", "tiny", "fuse=off");
    journal_close(j);

    j = open_ok(db, JOURNAL_READ);
    json_t *runs, *run, *records;
    struct journal_filter f = {0};
    assert_int_equal(journal_list(j, &f, &runs, &e), 0);
    assert_int_equal(json_array_size(runs), 2);
    run = json_array_get(runs, 1);
    assert_int_equal(json_integer_value(json_object_get(run, "id")), first);
    assert_int_equal(json_integer_value(json_object_get(run, "samples")), 3);
    assert_string_equal(json_string_value(json_object_get(run, "status")), "done");
    assert_string_equal(json_string_value(json_object_get(json_object_get(run, "outcome"), "outcome")), "kept");
    assert_string_equal(json_string_value(json_object_get(json_object_get(run, "build"), "commit")), "aaa");
    assert_string_equal(json_string_value(json_object_get(run, "hypothesis")), "fewer bytes");
    assert_true(json_real_value(json_object_get(run, "expected_gain")) == 0.02);
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "status")), "unfinished");
    json_decref(runs);
    assert_int_equal(journal_records(j, first, NULL, &records, &e), 0);
    assert_int_equal(json_array_size(records), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(records, 1), "kind")), "end"); /* in their order */
    json_decref(records);

    struct journal_series_list l;
    assert_int_equal(journal_series(j, first, &l, &e), 0);
    assert_int_equal(l.n, 2);
    assert_true(journal_series_find(&l, "tg4 t/s")->values[1] == 0.1 &&
                journal_series_find(&l, "ttft ms")->values[0] == 1e-300);
    assert_null(journal_series_find(&l, "tg"));
    journal_series_free(&l);
    assert_int_equal(journal_get(j, second + 1, &run, &e), HONE_EINPUT);
    journal_close(j);
}

static void test_identities_are_stored_once(void **state)
{
    (void)state;
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    for (int i = 0; i < 5; i++)
        end_ok(j, begin_ok(j, "bench", i < 3 ? "aaa" : "bbb", "tiny", ""));
    assert_int_equal(verify_ok(j).records, 5 * 2 + 5); /* run and end; two builds, a machine, a model, a recipe */
    journal_close(j);
}

static void test_without_a_journal(void **state)
{
    (void)state;
    int64_t run = 7;
    char hash[65];
    struct journal_run r = {.kind = "bench"};
    assert_int_equal(journal_run_begin(NULL, &r, &run, NULL), 0);
    assert_int_equal(run, 0);
    assert_int_equal(journal_sample(NULL, 0, "x", NAN, NULL, NULL), 0);
    assert_int_equal(journal_record(NULL, 0, "note", NULL, NULL, NULL), 0);
    assert_int_equal(journal_run_end(NULL, 0, NULL, NULL), 0);
    assert_int_equal(journal_identity(NULL, "build", NULL, hash, NULL), 0);
    assert_int_equal(
        journal_batch_begin(NULL, NULL) | journal_batch_end(NULL, NULL) | journal_supersede(NULL, 1, 2, NULL, NULL), 0);
    journal_close(NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t run = begin_ok(j, "bench", "a", "tiny", "");
    assert_int_equal(journal_sample(j, run, "x t/s", NAN, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "x t/s", INFINITY, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "a\nb", 1, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "", 1, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "not\xff utf-8", 1, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, run + 1, "x", 1, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, -1, "x", 1, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, 1, "x", 1, NULL, &e), HONE_EINPUT); /* a build, not a run */
    e.code = 0;
    assert_int_equal(journal_supersede(j, run, run, "", &e), HONE_EUSAGE);
    sample_ok(j, run, "x t/s", 1); /* and after all that it still works */
    assert_int_equal(verify_ok(j).records, 6);
    journal_close(j);
    j = open_ok(db, JOURNAL_READ);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "x", 1, NULL, &e), HONE_EFAULT);
    journal_close(j);
}

static void test_batch_is_all_or_nothing(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t run = begin_ok(j, "bench", "a", "tiny", "");
    int64_t before = verify_ok(j).records;
    assert_int_equal(journal_batch_begin(j, &e), 0);
    sample_ok(j, run, "x t/s", 1);
    assert_int_equal(journal_sample(j, run, "x t/s", NAN, NULL, &e), HONE_EINPUT); /* refused before it is tried: no harm */
    sample_ok(j, run, "x t/s", 2);
    assert_int_equal(journal_batch_end(j, &e), 0);
    assert_int_equal(verify_ok(j).records, before + 2);
    e.code = 0;
    assert_int_equal(journal_batch_begin(j, &e), 0);
    sample_ok(j, run, "x t/s", 3);
    assert_int_equal(journal_sample(j, run + 100, "x t/s", 4, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "x t/s", 5, NULL, &e), HONE_EINPUT); /* the batch is lost, and says why */
    e.code = 0;
    assert_int_equal(journal_batch_end(j, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "no record"));
    assert_int_equal(verify_ok(j).records, before + 2);
    sample_ok(j, run, "x t/s", 6);
    journal_close(j);
}

static size_t count(struct journal *j, struct journal_filter f)
{
    struct hone_error e = {0};
    json_t *runs;
    if (journal_list(j, &f, &runs, &e))
        fail_msg("%s", e.message);
    size_t n = json_array_size(runs);
    json_decref(runs);
    return n;
}

static void test_filters(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t a = begin_ok(j, "bench", "a", "SmolLM2 135M", "kernel=ref"), b = begin_ok(j, "bench", "a", "gemma3", "fuse=off");
    begin_ok(j, "ab", "a", "gemma3", "kernel=ref");
    sample_ok(j, b, "tg128 t/s", 5);
    assert_int_equal(count(j, (struct journal_filter){0}), 3);
    assert_int_equal(count(j, (struct journal_filter){.kind = "bench"}), 2);
    assert_int_equal(count(j, (struct journal_filter){.model = "smollm"}), 1);
    assert_int_equal(count(j, (struct journal_filter){.model = "gemma", .kind = "ab"}), 1);
    assert_int_equal(count(j, (struct journal_filter){.model = "feed"}), 3);
    assert_int_equal(count(j, (struct journal_filter){.recipe = "kernel=ref"}), 2);
    assert_int_equal(count(j, (struct journal_filter){.machine = "ABACUS"}), 3);
    assert_int_equal(count(j, (struct journal_filter){.machine = "cray"}), 0);
    assert_int_equal(count(j, (struct journal_filter){.series = "tg*"}), 1);
    assert_int_equal(count(j, (struct journal_filter){.series = "pp*"}), 0);
    assert_int_equal(count(j, (struct journal_filter){.limit = 2}), 2);
    assert_int_equal(count(j, (struct journal_filter){.since = 4102444800000}), 0);
    assert_int_equal(journal_supersede(j, b, a, "threads were wrong", &e), 0);
    assert_int_equal(count(j, (struct journal_filter){0}), 2);
    assert_int_equal(count(j, (struct journal_filter){.superseded = true}), 3);
    journal_close(j);
}

static void test_history_and_regress(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    assert_int_equal(journal_batch_begin(j, &e), 0);
    int64_t first_slow = 0;
    for (int i = 0; i < 30; i++) {
        int64_t run = begin_ok(j, "bench", i < 20 ? "old" : "new", "tiny", "");
        if (i == 20)
            first_slow = run;
        for (int k = 0; k < 5; k++) {
            sample_ok(j, run, "tg4 t/s", (i < 20 ? 100 : 97) + 0.1 * ((i * 7 + k * 3) % 5));
            sample_ok(j, run, "ttft ms", 5 + 0.01 * ((i * 5 + k) % 7));
        }
    }
    begin_ok(j, "bench", "new", "other", ""); /* another history: no samples */
    assert_int_equal(journal_batch_end(j, &e), 0);
    struct journal_histories h;
    struct journal_filter f = {0};
    assert_int_equal(journal_history(j, &f, &h, &e), 0);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.list[0].n, 30);
    assert_int_equal(h.list[0].points[29].n, 5);
    struct journal_trend *t;
    assert_int_equal(journal_regress(&h, 0.01, 0.005, &t, &e), 0);
    assert_string_equal(t[0].history->name, "tg4 t/s");
    assert_int_equal(t[0].n, 1);
    assert_int_equal(h.list[0].points[t[0].changes[0].at].run, first_slow);
    assert_true(t[0].worse && !t[1].worse && t[1].n == 0);
    journal_trends_free(t, h.n);
    assert_int_equal(journal_regress(&h, 0.01, 0.05, &t, &e), 0);
    assert_false(t[0].worse); /* 3 % is within a margin of 5 % */
    journal_trends_free(t, h.n);
    journal_history_free(&h);
    journal_close(j);
}

static void test_directions(void **state)
{
    (void)state;
    assert_true(journal_larger_better("tg128 t/s") && journal_larger_better("mul_mat GB/s"));
    assert_false(journal_larger_better("ttft ms") || journal_larger_better("perplexity nats") || journal_larger_better("x") ||
                 journal_larger_better("/s"));
}

static void test_compare(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t a = begin_ok(j, "bench", "old", "tiny", "fuse=off"), b = begin_ok(j, "bench", "new", "tiny", "fuse=on");
    for (int i = 0; i < 8; i++) {
        sample_ok(j, a, "tg4 t/s", 100 + i % 3);
        sample_ok(j, b, "tg4 t/s", 110 + i % 3);
        sample_ok(j, a, "ttft ms", 10 + i % 3);
        sample_ok(j, b, "ttft ms", 12 + i % 3);
        sample_ok(j, b, "kl nats", 0);
    }
    sample_ok(j, a, "one t/s", 5);
    sample_ok(j, b, "one t/s", 6);
    struct journal_contrast *list;
    size_t n;
    assert_int_equal(journal_compare(j, a, b, 0.99, &list, &n, &e), 0);
    assert_int_equal(n, 4);
    assert_true(list[0].word == JUDGED_BETTER && fabs(list[0].ratio - 1.1) < 0.01 && list[0].lo > 1.05);
    assert_true(list[1].word == JUDGED_WORSE && list[1].ratio > 1.1);
    assert_true(list[2].has_ratio && isinf(list[2].hi) && list[2].word == JUDGED_UNCLEAR);
    assert_true(list[3].n_a == 0 && !list[3].has_ratio);
    journal_contrasts_free(list, n);
    json_t *x, *y;
    assert_int_equal(journal_get(j, a, &x, &e) | journal_get(j, b, &y, &e), 0);
    json_t *d = journal_differences(x, y);
    assert_int_equal(json_array_size(d), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(d, 0), "what")), "build.commit");
    assert_string_equal(json_string_value(json_object_get(json_array_get(d, 1), "what")), "recipe.gates");
    json_decref(d);
    json_decref(x);
    json_decref(y);
    journal_close(j);
}

/* A verdict comes from the checks, whatever was recorded as one. */
static void test_rederive(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t run = begin_ok(j, "check", "a", "tiny", "");
    json_t *kernel = json_pack("{s:s, s:i, s:i}", "kernel", "cpu_add_ref", "faults", 0, "not_run", 0);
    assert_int_equal(journal_record(j, run, "check", kernel, NULL, &e), 0);
    json_object_set_new(kernel, "faults", json_integer(2));
    assert_int_equal(journal_record(j, run, "check", kernel, NULL, &e), 0);
    json_decref(kernel);
    for (int wrong = 0; wrong < 2; wrong++) {
        json_t *one, *verdict;
        bool agrees;
        record_ok(j, run, "verdict", "verdict", wrong ? "right" : "faults");
        assert_int_equal(journal_get(j, run, &one, &e), 0);
        assert_int_equal(journal_rederive(j, one, &verdict, &agrees, &e), 0);
        assert_string_equal(json_string_value(json_object_get(verdict, "verdict")), "faults");
        assert_int_equal(json_integer_value(json_object_get(verdict, "kernels")), 2);
        assert_int_equal(agrees, !wrong);
        json_decref(one);
        json_decref(verdict);
    }
    journal_close(j);
}

/* ---- append-only, and the chain */

static void small_journal(void)
{
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t run = begin_ok(j, "bench", "aaa", "tiny", "fuse=off");
    sample_ok(j, run, "tg4 t/s", 100.5);
    sample_ok(j, run, "tg4 t/s", 101.5);
    record_ok(j, run, "verdict", "verdict", "right");
    end_ok(j, run);
    journal_close(j);
}

static void test_nothing_is_edited(void **state)
{
    (void)state;
    small_journal();
    static const char *const attempts[] = {
        "UPDATE record SET value = 1",
        "DELETE FROM record WHERE id = 7",
        "UPDATE record SET value = value WHERE id = 6",
        "INSERT OR REPLACE INTO record SELECT * FROM record WHERE id = 7",
        "REPLACE INTO record (id, chain, number, at, kind, body, previous, hash) "
        "SELECT 99, chain, number, at, kind, body, previous, hash FROM record WHERE id = 7",
        "INSERT INTO record SELECT * FROM record WHERE id = 7 ON CONFLICT DO UPDATE SET value = 9",
        "UPDATE chain SET name = 'x'",
        "DELETE FROM chain",
        "REPLACE INTO chain VALUES (1, '00000000000000000000000000000000')",
        "INSERT INTO record (chain, number, at, kind, body, previous, hash) VALUES (1, 99, 0, 'rumour', '{}', printf('%064d', "
        "0), printf('%064d', 0))"};
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        if (raw(db, attempts[i]) == 0)
            fail_msg("went through: %s", attempts[i]);
    struct journal *j = open_ok(db, JOURNAL_READ);
    assert_int_equal(verify_ok(j).records, 9);
    journal_close(j);
}

static void verify_bad(const char *words)
{
    struct hone_error e = {0};
    struct journal_checked c;
    struct journal *j = open_ok(db, JOURNAL_READ);
    int rc = journal_verify(j, &c, &e);
    if (rc != HONE_ECHECK || !strstr(e.message, words))
        fail_msg("code %d, '%s' lacks '%s'", rc, e.message, words);
    journal_close(j);
}

static void test_edits_show(void **state)
{
    (void)state;
    static const struct {
        const char *sql, *words;
    } edits[] = {
        {"UPDATE record SET value = 100.6 WHERE id = 6", "record 6 (sample): its content does not have its hash"},
        {"UPDATE record SET at = at + 1 WHERE id = 5", "record 5 (run): its content"},
        {"UPDATE record SET body = '{}' WHERE id = 8", "record 8 (verdict): its content"},
        {"UPDATE record SET name = 'tg8 t/s' WHERE id = 7", "record 7 (sample): its content"},
        {"UPDATE record SET kind = 'note' WHERE id = 8", "record 8 (note): its content"},
        {"UPDATE record SET hash = printf('%064d', 1) WHERE id = 6", "record 6 (sample): its content"},
        {"UPDATE record SET previous = printf('%064d', 1) WHERE id = 6", "record 6 (sample): its content"},
        {"DELETE FROM record WHERE id = 6", "record 7 (sample): number 7 follows number 5: records were taken out"},
        {"DELETE FROM record WHERE id = 1", "number 2 follows number 0"},
        {"DELETE FROM record WHERE id = 7; UPDATE record SET number = number - 1, id = id - 1 WHERE id > 7",
         "record 7 (verdict): its content"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        fresh(NULL);
        small_journal();
        edit(db, edits[i].sql);
        verify_bad(edits[i].words);
    }
}

/* One who hashes the edited record anew, but not all behind it, is found one record later. */
static void test_a_new_hash_is_not_enough(void **state)
{
    (void)state;
    small_journal();
    struct journal *j = open_ok(db, JOURNAL_READ);
    sqlite3_stmt *s;
    struct record r;
    struct line line = {0};
    struct sha256 hash;
    char sql[300];
    assert_int_equal(
        store_prepare(j, &s, "SELECT " RECORD_COLUMNS " FROM record r JOIN chain c ON c.id = r.chain WHERE r.id = 6", NULL), 0);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(column_record(j, s, 0, &r, NULL), 0);
    r.value = 200;
    assert_int_equal(record_line(&line, &r, &hash, NULL), 0);
    sqlite3_finalize(s);
    journal_close(j);
    line_free(&line);
    snprintf(sql, sizeof sql, "UPDATE record SET value = 200, hash = '%s' WHERE id = 6", hash.hex);
    edit(db, sql);
    verify_bad("record 7 (sample): it does not carry the hash of the one before");
}

/* ---- versions, and what is no journal */

static void test_version_1(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/journal_v1.sql", "r");
    assert_non_null(f);
    static char sql[20000];
    sql[fread(sql, 1, sizeof sql - 1, f)] = 0;
    fclose(f);
    raw_ok(db, sql);
    struct journal *j = open_ok(db, JOURNAL_READ); /* becomes one of this version, and is then read */
    struct journal_checked c = verify_ok(j);
    assert_int_equal(c.records, 4); /* also: Python's hashes are ours */
    assert_string_equal(c.head, "2ed45332e6c34e6cbae64baa2c23b6036795e9837373c6c3c06aa43d21217c50");
    assert_int_equal(count(j, (struct journal_filter){.model = "tiny"}), 1);
    journal_close(j);
    raw_ok(db, "SELECT * FROM runs; SELECT * FROM samples; SELECT * FROM findings; SELECT * FROM identities");
    j = open_ok(db, JOURNAL_WRITE);
    sample_ok(j, 2, "tg1 t/s", 3);
    assert_int_equal(verify_ok(j).records, 5);
    journal_close(j);
}

/* A migration that fails half way leaves the old file. */
static void test_migration_is_one_transaction(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/journal_v1.sql", "r");
    static char sql[20000];
    sql[fread(sql, 1, sizeof sql - 1, f)] = 0;
    fclose(f);
    raw_ok(db, sql);
    raw_ok(db, "CREATE VIEW identities AS SELECT 1"); /* the last thing that version 2 adds is there already */
    struct journal *j;
    struct hone_error e = {0};
    assert_int_not_equal(journal_open(&j, db, JOURNAL_WRITE, &e), 0);
    assert_int_not_equal(raw(db, "SELECT * FROM runs"), 0); /* and the first is not */
    raw_ok(db, "DROP VIEW identities");
    j = open_ok(db, JOURNAL_WRITE);
    assert_int_equal(verify_ok(j).records, 4);
    journal_close(j);
}

static void put_file(const char *path, const char *content, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, n, f), n);
    fclose(f);
}

static void test_what_is_no_journal(void **state)
{
    (void)state;
    char path[160];
    open_bad(db, JOURNAL_READ, HONE_EINPUT, "no journal");
    open_bad(folder, JOURNAL_WRITE, HONE_EINPUT, "no regular file");
    snprintf(path, sizeof path, "%s/no/where.db", folder);
    open_bad(path, JOURNAL_WRITE, HONE_ERESOURCE, "where.db");
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    open_bad(path, JOURNAL_WRITE, HONE_EINPUT, "no regular file");
    put_file(db, "# a recipe, a very long one, longer than any header of a database\n", 60);
    open_bad(db, JOURNAL_WRITE, HONE_EINPUT, "not an SQLite database");
    put_file(db, "", 0);
    open_bad(db, JOURNAL_READ, HONE_EINPUT, "empty file");
    journal_close(open_ok(db, JOURNAL_WRITE)); /* but it may become one */
    fresh(NULL);
    raw_ok(db, "CREATE TABLE notes (text)");
    open_bad(db, JOURNAL_WRITE, HONE_EINPUT, "no journal of hone");
    fresh(NULL);
    small_journal();
    raw_ok(db, "PRAGMA user_version = 99");
    open_bad(db, JOURNAL_WRITE, HONE_EINPUT, "version 99, made by a newer hone");
    raw_ok(db, "PRAGMA user_version = -3");
    open_bad(db, JOURNAL_READ, HONE_EINPUT, "version -3");
    raw_ok(db, "PRAGMA user_version = 2; DROP TRIGGER record_no_delete");
    open_bad(db, JOURNAL_WRITE, HONE_EINPUT, "record_no_delete is not as hone made it");
    fresh(NULL);
    small_journal();
    raw_ok(db, "CREATE TRIGGER spy AFTER INSERT ON record BEGIN SELECT 1; END");
    open_bad(db, JOURNAL_READ, HONE_EINPUT, "triggers that are not hone's");
}

/* Names that SQLite would take for something else. */
static void test_odd_paths(void **state)
{
    (void)state;
    static const char *const names[] = {":memory:", "file:x.db?mode=memory", "-", "a b'c.db"};
    char cwd[1000];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct journal *j = open_ok(names[i], JOURNAL_WRITE);
        begin_ok(j, "bench", "a", "b", "");
        journal_close(j);
        assert_int_equal(access(names[i], F_OK), 0);
        j = open_ok(names[i], JOURNAL_READ);
        assert_int_equal(verify_ok(j).records, 5);
        journal_close(j);
    }
    open_bad("", JOURNAL_WRITE, HONE_ERESOURCE, "");
    assert_int_equal(chdir(cwd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_round, fresh),
        cmocka_unit_test_setup(test_identities_are_stored_once, fresh),
        cmocka_unit_test(test_without_a_journal),
        cmocka_unit_test_setup(test_refusals, fresh),
        cmocka_unit_test_setup(test_batch_is_all_or_nothing, fresh),
        cmocka_unit_test_setup(test_filters, fresh),
        cmocka_unit_test_setup(test_history_and_regress, fresh),
        cmocka_unit_test(test_directions),
        cmocka_unit_test_setup(test_compare, fresh),
        cmocka_unit_test_setup(test_rederive, fresh),
        cmocka_unit_test_setup(test_nothing_is_edited, fresh),
        cmocka_unit_test_setup(test_edits_show, fresh),
        cmocka_unit_test_setup(test_a_new_hash_is_not_enough, fresh),
        cmocka_unit_test_setup(test_version_1, fresh),
        cmocka_unit_test_setup(test_migration_is_one_transaction, fresh),
        cmocka_unit_test_setup(test_what_is_no_journal, fresh),
        cmocka_unit_test_setup(test_odd_paths, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
