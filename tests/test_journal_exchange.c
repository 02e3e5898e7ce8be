/* test_journal_exchange.c: what comes into a journal from outside: exports that come back as they were, and files and lines
 * that are wrong in every way: an error, no crash, and the journal as it was. */
#include "tests/journal_fixture.h"

#include "base/rng.h"
#include "lab/identity.h"
#include "model/model.h"
#include "model/synth.h"

static void fill(const char *path, int runs)
{
    struct journal *j = open_ok(path, JOURNAL_WRITE);
    for (int i = 0; i < runs; i++) {
        int64_t run = begin_ok(j, i % 2 ? "ladder" : "bench", i < 2 ? "aaa" : "b\"\\\xc3\xa9", "tiny", "fuse=off");
        for (int k = 0; k < 3; k++)
            sample_ok(j, run, "tg4 t/s", 100.1 + i + k / 3.0);
        record_ok(j, run, "note", "text", "said \"so\"\n\xe2\x82\xac");
        end_ok(j, run);
    }
    journal_close(j);
}

static char *export_text(const char *path, int64_t run)
{
    struct hone_error e = {0};
    char *text;
    size_t size;
    int64_t n;
    FILE *to = open_memstream(&text, &size);
    struct journal *j = open_ok(path, JOURNAL_READ);
    if (journal_export(j, run, to, &n, &e))
        fail_msg("%s", e.message);
    journal_close(j);
    fclose(to);
    return text;
}

static int import_text(const char *path, const char *text, size_t n, int64_t *added, int64_t *known, struct hone_error *e)
{
    FILE *from = n ? fmemopen((void *)text, n, "r") : fopen("/dev/null", "r");
    struct journal *j = open_ok(path, JOURNAL_WRITE);
    int rc = journal_import(j, from, "in.jsonl", added, known, e);
    journal_close(j);
    fclose(from);
    return rc;
}

static void import_ok(const char *path, const char *text, int64_t want_added, int64_t want_known)
{
    struct hone_error e = {0};
    int64_t added, known;
    if (import_text(path, text, strlen(text), &added, &known, &e))
        fail_msg("%s", e.message);
    assert_int_equal(added, want_added);
    assert_int_equal(known, want_known);
}

static void import_bad(const char *path, const char *text, const char *words)
{
    struct hone_error e = {0};
    int64_t added, known;
    int rc = import_text(path, text, strlen(text), &added, &known, &e);
    if (rc != HONE_EINPUT || !strstr(e.message, words) || added)
        fail_msg("code %d, '%s' lacks '%s'", rc, e.message, words);
}

static void test_round_trip(void **state)
{
    (void)state;
    char other[160];
    snprintf(other, sizeof other, "%s.other", db);
    fill(db, 4);
    char *first = export_text(db, 0);
    import_ok(other, first, 29, 0);
    import_ok(other, first, 0, 29);
    char *second = export_text(other, 0);
    assert_string_equal(first, second);
    free(second);
    /* The journal goes on, and its new records follow; the other has records of its own, which stay apart. */
    fill(other, 1);
    fill(db, 1);
    char *third = export_text(db, 0);
    import_ok(other, third, 6, 29);
    struct journal *j = open_ok(other, JOURNAL_READ);
    struct journal_checked c = verify_ok(j);
    assert_int_equal(c.chains, 2);
    assert_int_equal(c.records, 35 + 10);
    journal_close(j);
    assert_int_equal(read_everything(other), 0);
    /* Both chains into a third journal and out again: the same bytes, whichever came first. */
    char *both = export_text(other, 0), third_path[160];
    snprintf(third_path, sizeof third_path, "%s.third", db);
    import_ok(third_path, third, 35, 0);
    import_ok(third_path, both, 10, 35);
    char *again = export_text(third_path, 0);
    assert_string_equal(both, again);
    free(first);
    free(third);
    free(both);
    free(again);
}

static void test_one_run(void **state)
{
    (void)state;
    struct hone_error e = {0};
    char other[160];
    snprintf(other, sizeof other, "%s.other", db);
    fill(db, 3); /* runs 5, 11 and, with a build of its own, 18 */
    char *one = export_text(db, 18);
    assert_null(strstr(one, "\"commit\":\"aaa\"")); /* the other's build is left out */
    import_ok(other, one, 4 + 1 + 5, 0);
    char *again = export_text(other, 0);
    assert_string_equal(one, again);
    free(again);
    /* Two exports behind one another are one; what is between comes later and must fit. */
    char *all = export_text(db, 0), *two = NULL;
    assert_true(asprintf(&two, "%s%s", one, all) > 0);
    import_ok(other, two, 23 - 10, 10 + 10);
    assert_int_equal(read_everything(other), 0);
    again = export_text(other, 0);
    assert_string_equal(all, again);
    /* A remark here on a run from there. */
    struct journal *j = open_ok(other, JOURNAL_WRITE);
    json_t *runs, *run, *records;
    struct journal_filter f = {.limit = 1};
    assert_int_equal(journal_list(j, &f, &runs, &e), 0);
    int64_t id = json_integer_value(json_object_get(json_array_get(runs, 0), "id"));
    json_decref(runs);
    record_ok(j, id, "outcome", "outcome", "kept");
    assert_int_equal(journal_sample(j, id, "tg4 t/s", 1, NULL, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(journal_get(j, id, &run, &e), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(run, "outcome"), "outcome")), "kept");
    assert_int_equal(journal_records(j, id, NULL, &records, &e), 0);
    assert_int_equal(json_array_size(records), 3);
    json_decref(run);
    json_decref(records);
    journal_close(j);
    free(one);
    free(all);
    free(two);
    free(again);
}

/* Any byte of an export changed, or its end cut off: refused, and nothing of it kept. */
static void test_every_byte_counts(void **state)
{
    (void)state;
    char other[160];
    snprintf(other, sizeof other, "%s.other", db);
    fill(db, 1);
    char *text = export_text(db, 0);
    size_t n = strlen(text);
    struct rng r = rng_seed(1);
    struct journal *j = open_ok(other, JOURNAL_WRITE);
    for (size_t i = 0; i < 2 * n; i += i < n ? 1 : 13) {
        struct hone_error e = {0};
        int64_t added, known;
        char *copy = strdup(text);
        size_t size = n;
        if (i < n) {
            char old = copy[i];
            do
                copy[i] = (char)rng_u64(&r);
            while (copy[i] == old);
        } else {
            size = i - n;
        }
        FILE *from = size ? fmemopen(copy, size, "r") : fopen("/dev/null", "r");
        int rc = journal_import(j, from, "in.jsonl", &added, &known, &e);
        fclose(from);
        free(copy);
        if (rc != HONE_EINPUT || added)
            fail_msg("%s at %zu: code %d, %lld added", i < n ? "changed" : "cut", i % n, rc, (long long)added);
    }
    assert_int_equal(verify_ok(j).records, 0);
    journal_close(j);
    import_ok(other, text, 10, 0);
    free(text);
}

static void test_wrong_lines(void **state)
{
    (void)state;
    char other[160];
    snprintf(other, sizeof other, "%s.other", db);
    fill(db, 1);
    char *text = export_text(db, 0), *end;
    import_bad(other, "", "closes an export is missing");
    import_bad(other, "\n", "line 1: no JSON");
    import_bad(other, "[]\n", "line 1: no record");
    import_bad(other, "{\"chain\":7,\"number\":{},\"at\":null,\"kind\":[],\"body\":0,\"previous\":1,\"hash\":2}\n",
               "no record");
    import_bad(other, "{\"records\":1}\n", "lines are missing");
    import_bad(other, "{\"records\":99999999999999999999}\n", "lines are missing");
    char *deep = calloc(1, 200001);
    memset(deep, '[', 200000);
    import_bad(other, deep, "ends within a line");
    deep[199999] = '\n';
    import_bad(other, deep, "no JSON");
    free(deep);
    /* A line left out; two lines in the wrong order. */
    end = strchr(text, '\n') + 1;
    import_bad(other, end, "is not there");
    /* Records of ours that say something else than what is here: a journal that went on from a copy. */
    char *copied = NULL, command[500];
    snprintf(command, sizeof command, "cp '%s' '%s.copy'", db, db);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s.copy", db);
    fill(db, 1);
    fill(command, 2);
    copied = export_text(command, 0);
    import_bad(db, copied, "is another one here");
    free(copied);
    free(text);
}

static char content[1 << 20];

static size_t get(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n = fread(content, 1, sizeof content, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof content);
    return n;
}

static void put(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* A journal and its companions. */
static void erase(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

/* Every column of every record, replaced by what does not belong there, with the schema as it should be. */
static void test_hostile_columns(void **state)
{
    (void)state;
    static const char *const columns[] = {"id",   "chain", "number", "at",       "kind", "run",
                                          "name", "value", "body",   "previous", "hash"};
    static const char *const values[] = {"NULL",
                                         "-1",
                                         "0",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "1e308",
                                         "9e999",
                                         "''",
                                         "'x'",
                                         "x'00ff00ff'",
                                         "x'7b7d00'",
                                         "'{'",
                                         "'[]'",
                                         "'{\"a\":1,\"a\":2}'",
                                         "'{\"status\":7,\"supersedes\":[],\"command\":{}}'",
                                         "CAST(x'c328ff' AS TEXT)",
                                         "CAST(x'7b7d00' AS TEXT)",
                                         "'{\"build\":\"nobody\"}'",
                                         "printf('%.300000c', '[')",
                                         "'{\"config\":'||printf('%.3000c','[')||printf('%.3000c',']')||'}'"};
    int refused = 0, tried = 0;
    fill(db, 2);
    char *text = export_text(db, 0); /* also: the log is empty now */
    free(text);
    char copy[160], sql[1000];
    size_t n = get(db);
    snprintf(copy, sizeof copy, "%s.copy", db);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (int id = 5; id <= 9; id += 2) { /* run, sample, note */
                put(copy, content, n);
                /* STRICT and the checks are taken out of the schema, and put back when the harm is done. */
                raw(copy, "DROP TRIGGER record_no_update; PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = "
                          "replace(sql, ') STRICT', ')') "
                          "WHERE name = 'record'");
                snprintf(sql, sizeof sql, "PRAGMA ignore_check_constraints = ON; UPDATE record SET %s = %s WHERE id = %d",
                         columns[c], values[v], id);
                if (raw(copy, sql) == 0) {
                    raw(copy,
                        "CREATE TRIGGER record_no_update BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'a journal is only "
                        "added to'); END; "
                        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'record'");
                    tried++;
                    refused += read_everything(copy) > 0;
                }
                erase(copy);
            }
    print_message("%d hostile columns, %d noticed\n", tried, refused);
    assert_true(tried > 200 && refused > tried * 95 / 100); /* what is not noticed is a value that was there */
}

static void test_flipped_bytes(void **state)
{
    (void)state;
    fill(db, 6);
    free(export_text(db, 0));
    static char damaged[sizeof content];
    size_t n = get(db);
    struct rng r = rng_seed(4);
    int noticed = 0, trials = getenv("HONE_SOAK") ? 3000 : 200;
    for (int t = 0; t < trials; t++) {
        char path[160];
        snprintf(path, sizeof path, "%s.flip", db);
        memcpy(damaged, content, n);
        int flips = 1 + (int)rng_below(&r, 8);
        for (int i = 0; i < flips; i++)
            damaged[t % 2 ? rng_below(&r, n) : rng_below(&r, 4096)] = (char)rng_u64(&r);
        put(path, damaged, t % 5 ? n : 1 + rng_below(&r, n - 1));
        noticed += read_everything(path) > 0;
        struct hone_error e = {0};
        struct journal *j;
        if (journal_open(&j, path, JOURNAL_WRITE, &e) == 0) {
            journal_sample(j, 5, "x t/s", 1, NULL, &e);
            journal_close(j);
        }
        erase(path);
    }
    print_message("%d damaged files, %d noticed (the rest: bytes that nothing uses)\n", trials, noticed);
    assert_true(noticed > trials / 3);
}

/* ---- identities */

static void test_recipe_identity(void **state)
{
    (void)state;
    struct hone_error e = {0};
    char path[160], a[65], b[65], c[65];
    snprintf(path, sizeof path, "%s.recipe", db);
    FILE *f = fopen(path, "w");
    fputs("# slow\nkernel=ref\n", f);
    fclose(f);
    json_t *file = identity_recipe(path, "fuse=off", NULL, NULL, NULL, &e),
           *set = identity_recipe(NULL, "kernel=ref; fuse=off", NULL, NULL, NULL, &e);
    json_t *other = identity_recipe(NULL, "fuse=off;kernel=ref", NULL, NULL, NULL, &e),
           *typed = identity_recipe(NULL, NULL, "q8_0", NULL, NULL, &e);
    assert_non_null(file);
    assert_non_null(typed);
    assert_int_equal(identity_hash(file, a, &e) | identity_hash(set, b, &e) | identity_hash(other, c, &e), 0);
    assert_string_equal(a, b);     /* wherever the gates came from */
    assert_string_not_equal(a, c); /* but the later one wins, so order counts */
    assert_string_equal(json_string_value(json_object_get(typed, "type_k")), "q8_0");
    assert_null(identity_recipe("/nowhere/x.recipe", NULL, NULL, NULL, NULL, &e));
    e.code = 0;
    assert_null(identity_recipe(NULL, "no gate", NULL, NULL, NULL, &e));
    json_decref(file);
    json_decref(set);
    json_decref(other);
    json_decref(typed);
}

static void test_model_identity(void **state)
{
    (void)state;
    struct hone_error e = {0};
    char path[160], cache[160], command[400];
    struct sha256 sum;
    struct model *m = NULL;
    snprintf(path, sizeof path, "%s.gguf", db);
    snprintf(cache, sizeof cache, "%s.cache", db);
    snprintf(command, sizeof command, "mkdir '%s'", cache);
    assert_int_equal(system(command), 0);
    struct synth_params p = {.shape = "llama3.1-8b", .type = "Q4_0", .layers = 1, .width = 256, .vocab = 400, .seed = 3};
    if (model_synth(path, &p, NULL, NULL, &e) || hash_sha256_file(&sum, path, NULL, NULL, &e) || model_open(&m, path, &e))
        fail_msg("%s", e.message);
    json_t *id = identity_model(m, cache, NULL, NULL, &e), *again;
    assert_non_null(id);
    assert_string_equal(json_string_value(json_object_get(id, "sha256")), sum.hex);
    assert_true(json_integer_value(json_object_get(json_object_get(id, "bytes"), "Q4_0")) > 0);
    assert_true(json_integer_value(json_object_get(id, "parameters")) > 100000);
    /* Too fresh to be remembered; with older times it is, and a remembered hash is used as long as the file is the same. */
    snprintf(command, sizeof command, "test -z \"$(ls '%s')\"", cache);
    assert_int_equal(system(command), 0);
    sleep(4);
    again = identity_model(m, cache, NULL, NULL, &e);
    assert_true(json_equal(id, again));
    json_decref(again);
    snprintf(command, sizeof command, "f=$(ls '%s'/sha256-*) && printf %%064d 7 > $f", cache);
    assert_int_equal(system(command), 0);
    again = identity_model(m, cache, NULL, NULL, &e);
    assert_false(json_equal(id, again)); /* so it was read from there */
    json_decref(again);
    snprintf(command, sizeof command, "touch -d '2001-01-01' '%s'", path);
    assert_int_equal(system(command), 0);
    again = identity_model(m, cache, NULL, NULL, &e);
    assert_true(json_equal(id, again)); /* but not once the file was touched */
    json_decref(again);
    json_decref(id);
    model_close(m);
}

static void test_build_identity(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct sha256 sum;
    json_t *b = identity_build(NULL, &e);
    assert_non_null(b);
    assert_int_equal(hash_sha256_file(&sum, "/proc/self/exe", NULL, NULL, &e), 0);
    assert_string_equal(json_string_value(json_object_get(b, "binary")), sum.hex);
    assert_true(json_object_size(json_object_get(b, "libraries")) > 3);
    assert_true(strlen(json_string_value(json_object_get(b, "compiler"))) > 3 && json_object_get(b, "flags"));
    json_decref(b);
    char *command = identity_command();
    assert_non_null(strstr(command, "test_journal_exchange"));
    free(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_round_trip, fresh),        cmocka_unit_test_setup(test_one_run, fresh),
        cmocka_unit_test_setup(test_every_byte_counts, fresh), cmocka_unit_test_setup(test_wrong_lines, fresh),
        cmocka_unit_test_setup(test_hostile_columns, fresh),   cmocka_unit_test_setup(test_flipped_bytes, fresh),
        cmocka_unit_test_setup(test_recipe_identity, fresh),   cmocka_unit_test_setup(test_model_identity, fresh),
        cmocka_unit_test_setup(test_build_identity, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
