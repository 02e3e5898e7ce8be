/* test_bench.c: hone bench without its command line: lists and ranges, the order of tests, rows and their formats, a sweep in which
 * tests fail. Nothing here depends on how fast anything was. */
#include "tests/tiny_model.h"

#include "lab/bench.h"
#include "lab/bench_format.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists */

static char *joined(const struct bench_list *l, char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t n = strlen(text);
        snprintf(text + n, size - n, "%s%s", i ? " " : "", l->values[i].text);
    }
    return text;
}

struct list_case {
    enum bench_param p;
    const char *text, *values; /* NULL: refused */
    const char *message;       /* a part of it */
};

static const struct list_case list_cases[] = {
    {BENCH_N_PROMPT, "512", "512", NULL},
    {BENCH_N_PROMPT, "128,256,", "128 256", NULL}, /* a last comma is forgiven, as in llama-bench */
    {BENCH_N_PROMPT, "1-4", "1 2 3 4", NULL},
    {BENCH_N_PROMPT, "0-1024+512,7", "0 512 1024 7", NULL},
    {BENCH_N_PROMPT, "16-100*2", "16 32 64", NULL},
    {BENCH_N_PROMPT, "5-5", "5", NULL},
    {BENCH_N_PROMPT, "2147483647", "2147483647", NULL},
    {BENCH_N_PROMPT, "2147483646-2147483647", "2147483646 2147483647", NULL}, /* an int that steps over its end never ends */
    {BENCH_N_PROMPT, "1000000000-2147483647*2", "1000000000 2000000000", NULL},
    {BENCH_N_PROMPT, "2147483648", NULL, "0 to 2147483647 are possible"},
    {BENCH_N_PROMPT, "99999999999999999999999999999999", NULL, "are possible"},
    {BENCH_N_PROMPT, "-1", NULL, "not a number or a range"},
    {BENCH_N_PROMPT, "8-4", NULL, "runs backwards"},
    {BENCH_N_PROMPT, "1-8*1", NULL, "never end"},
    {BENCH_N_PROMPT, "0-8*2", NULL, "never end"},
    {BENCH_N_PROMPT, "1-8+0", NULL, "never end"},
    {BENCH_N_PROMPT, "1-8|2", NULL, "not a number or a range"},
    {BENCH_N_PROMPT, "1-", NULL, "needs an end"},
    {BENCH_N_PROMPT, "1-8+", NULL, "needs a step"},
    {BENCH_N_PROMPT, "1 2", NULL, "not a number or a range"},
    {BENCH_N_PROMPT, "", NULL, "a value is missing"},
    {BENCH_N_PROMPT, ",5", NULL, "a value is missing"},
    {BENCH_N_PROMPT, "5,,6", NULL, "a value is missing"},
    {BENCH_N_PROMPT, "1-100000000", NULL, "more than 4096 values"},
    {BENCH_N_BATCH, "0", NULL, "1 to 2147483647 are possible"},
    {BENCH_N_UBATCH, "65537", NULL, "1 to 65536 are possible"},
    {BENCH_N_THREADS, "1-1024*32", "1 32 1024", NULL},
    {BENCH_N_THREADS, "1025", NULL, "0 to 1024 are possible"},
    {BENCH_POLL, "0-100+50", "0 50 100", NULL},
    {BENCH_POLL, "101", NULL, "0 to 100 are possible"},
    {BENCH_N_GPU_LAYERS, "-1,0", "-1 0", NULL},
    {BENCH_N_GPU_LAYERS, "99", NULL, "-ngl 99: there is no GPU here"},
    {BENCH_N_GPU_LAYERS, "-2147483648", NULL, "are possible"},
    {BENCH_MAIN_GPU, "1", NULL, "-dev names the devices"},
    {BENCH_TENSOR_SPLIT, "1,9", "1.00 9.00", NULL}, /* two configurations */
    {BENCH_TENSOR_SPLIT, "1/0", "1.00", NULL},
    {BENCH_TENSOR_SPLIT, "0.5;0", "0.50", NULL},
    {BENCH_TENSOR_SPLIT, "1/9", "1.00/9.00", NULL}, /* one, of two devices */
    {BENCH_TENSOR_SPLIT, "x", NULL, "not shares"},
    {BENCH_TENSOR_SPLIT, "1/", NULL, "not shares"},
    {BENCH_TENSOR_SPLIT, "nan", NULL, "not shares"},
    {BENCH_TENSOR_SPLIT, "1e400", NULL, "not shares"},
    {BENCH_TENSOR_SPLIT, "1/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0", NULL, "more than 16 shares"},
    {BENCH_SPLIT_MODE, "none,layer,tensor", "none layer tensor", NULL},
    {BENCH_DEVICES, "cpu:2/cpu:1,cpu", "cpu:2/cpu:1 cpu", NULL},
    {BENCH_DEVICES, "cpu:2/cuda0", NULL, "no such device"},
    {BENCH_SPLIT_MODE, "row", NULL, "by layers or by tensors"},
    {BENCH_SPLIT_MODE, "rows", NULL, "none layer row tensor are possible"},
    {BENCH_LOAD_MODE, "mmap", "mmap", NULL},
    {BENCH_LOAD_MODE, "dio", NULL, "reads it in no other way"},
    {BENCH_DEVICES, "auto,none,CPU", "auto none cpu", NULL},
    {BENCH_DEVICES, "CUDA0/CUDA1", NULL, "no such device"},
    {BENCH_OVERRIDES, "", "none", NULL},
    {BENCH_OVERRIDES, "blk=CPU", NULL, "all memory here is of one type"},
    {BENCH_TYPE_K, "f16,Q8_0", "f16 Q8_0", NULL},
    {BENCH_TYPE_K, "f99", NULL, "-ctk f99: no such format"},
    {BENCH_FLASH_ATTN, "1,on,true,auto,-1", "on on on auto auto", NULL},
    {BENCH_FLASH_ATTN, "off", NULL, "never stores the matrix of scores"},
    {BENCH_FLASH_ATTN, "maybe", NULL, "on, off or auto"},
    {BENCH_CPU_STRICT, "0,1", "0 1", NULL},
    {BENCH_CPU_STRICT, "2", NULL, "0 or 1 are possible"},
    {BENCH_CPU_MASK, "0x3,F", "0x3 F", NULL},
    {BENCH_CPU_MASK, "0x", NULL, "hexadecimal"},
    {BENCH_CPU_MASK, "3g", NULL, "hexadecimal"},
    {BENCH_REPACK, "0", NULL, "--set kernel.mul_mat"},
    {BENCH_EMBEDDINGS, "1", NULL, "not embeddings"},
    {BENCH_N_CPU_MOE, "3", NULL, "on the CPU already"},
    {BENCH_FIT_TARGET, "1024", NULL, "no device"},
    {BENCH_N_PG, "512,128", "512,128", NULL}, /* the one comma that parts no configurations */
    {BENCH_N_PG, "512", NULL, "two numbers"},
    {BENCH_N_PG, "1,2,3", NULL, "two numbers"},
    {BENCH_N_PG, "1,2147483648", NULL, "are possible"},
};

static void test_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof list_cases / sizeof *list_cases; i++) {
        const struct list_case *c = &list_cases[i];
        struct bench_sweep s = {0};
        struct hone_error e = {0};
        char text[500];
        int rc = bench_sweep_add(&s, c->p, c->text, &e);
        if (c->values && rc)
            fail_msg("'%s' is refused: %s", c->text, e.message);
        if (c->values)
            assert_string_equal(joined(&s.lists[c->p], text, sizeof text), c->values);
        else if (rc != HONE_EUSAGE || !strstr(e.message, c->message))
            fail_msg("'%s': code %d, '%s' lacks '%s'", c->text, rc, e.message, c->message);
        bench_sweep_free(&s);
    }
}

static void add(struct bench_sweep *s, enum bench_param p, const char *text)
{
    struct hone_error e = {0};
    if (bench_sweep_add(s, p, text, &e))
        fail_msg("%s", e.message);
}

static void finish(struct bench_sweep *s)
{
    struct hone_error e = {0};
    if (bench_sweep_finish(s, &e))
        fail_msg("%s", e.message);
}

/* llama-bench's order: threads outside of depth outside of poll; of each, first pp, then tg, then pg. */
static void test_order(void **state)
{
    (void)state;
    struct bench_sweep s = {0};
    char got[1000] = "";
    add(&s, BENCH_MODEL, "a.gguf");
    add(&s, BENCH_N_PROMPT, "0,8");
    add(&s, BENCH_N_GEN, "2");
    add(&s, BENCH_N_GEN, "3"); /* again: one more */
    add(&s, BENCH_N_PG, "4,1");
    add(&s, BENCH_N_PG, "0,0"); /* no test */
    add(&s, BENCH_N_DEPTH, "0,16");
    add(&s, BENCH_N_THREADS, "1,2");
    finish(&s);
    assert_int_equal(s.n_tests, 16);
    for (size_t i = 0; i < s.n_tests; i++) {
        struct bench_config c;
        char name[64];
        bench_sweep_get(&s, i, &c);
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s:%s ", c.values[BENCH_N_THREADS]->text,
                 bench_test_name(c.n_prompt, c.n_gen, (int32_t)c.values[BENCH_N_DEPTH]->number, name, sizeof name));
    }
    assert_string_equal(got, "1:pp8 1:tg2 1:tg3 1:pp4+tg1 1:pp8 @ d16 1:tg2 @ d16 1:tg3 @ d16 1:pp4+tg1 @ d16 "
                             "2:pp8 2:tg2 2:tg3 2:pp4+tg1 2:pp8 @ d16 2:tg2 @ d16 2:tg3 @ d16 2:pp4+tg1 @ d16 ");
    assert_true(bench_sweep_varied(&s, BENCH_N_THREADS));
    assert_false(bench_sweep_varied(&s, BENCH_TYPE_K));
    bench_sweep_free(&s);
}

static void test_presets(void **state)
{
    (void)state;
    struct bench_sweep s = {0};
    struct bench_config c;
    struct hone_error e = {0};
    assert_int_equal(bench_sweep_finish(&s, &e), HONE_EUSAGE); /* no model */
    add(&s, BENCH_MODEL, "a.gguf,b.gguf");
    finish(&s);
    assert_int_equal(s.n_tests, 4); /* pp512 and tg128 of each */
    bench_sweep_get(&s, 3, &c);
    assert_string_equal(c.values[BENCH_MODEL]->text, "b.gguf");
    assert_int_equal(c.n_prompt, 0);
    assert_int_equal(c.n_gen, 128);
    assert_int_equal(c.values[BENCH_N_BATCH]->number, 2048);
    assert_int_equal(c.values[BENCH_N_UBATCH]->number, 512);
    assert_int_equal(c.values[BENCH_FLASH_ATTN]->number, -1);
    assert_string_equal(c.values[BENCH_TENSOR_SPLIT]->text, "0.00");
    for (int p = 0; p < N_BENCH_PARAMS; p++)
        if (p != BENCH_MODEL)
            assert_false(bench_sweep_varied(&s, (enum bench_param)p));
    bench_sweep_free(&s);
}

static void test_too_many(void **state)
{
    (void)state;
    struct bench_sweep s = {0};
    struct hone_error e = {0};
    add(&s, BENCH_MODEL, "a.gguf");
    add(&s, BENCH_N_PROMPT, "0");
    add(&s, BENCH_N_GEN, "0");
    assert_int_equal(bench_sweep_finish(&s, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "no tests"));
    for (int i = 0; i < 6; i++) /* 1000^6 overflows what counts them */
        add(&s,
            (enum bench_param[]){BENCH_N_BATCH, BENCH_N_UBATCH, BENCH_N_DEPTH, BENCH_N_THREADS, BENCH_N_PROMPT, BENCH_N_GEN}[i],
            "1-1000");
    e = (struct hone_error){0};
    assert_int_equal(bench_sweep_finish(&s, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "more than 100000 tests"));
    bench_sweep_free(&s);
}

/* ---- rows, formats, sweeps */

/* llama-bench's fields in its order (test::get_fields of llama.cpp b6000 and later). */
static const char *const llama_fields[] = {"build_commit",   "build_number",
                                           "cpu_info",       "gpu_info",
                                           "backends",       "model_filename",
                                           "model_type",     "model_size",
                                           "model_n_params", "n_batch",
                                           "n_ubatch",       "n_threads",
                                           "cpu_mask",       "cpu_strict",
                                           "poll",           "type_k",
                                           "type_v",         "n_gpu_layers",
                                           "n_cpu_moe",      "split_mode",
                                           "main_gpu",       "no_kv_offload",
                                           "flash_attn",     "devices",
                                           "tensor_split",   "tensor_buft_overrides",
                                           "load_mode",      "lazy_mode",
                                           "embeddings",     "no_op_offload",
                                           "no_host",        "repack",
                                           "fit_target",     "fit_min_ctx",
                                           "n_prompt",       "n_gen",
                                           "n_depth",        "test_time",
                                           "avg_ns",         "stddev_ns",
                                           "avg_ts",         "stddev_ts",
                                           "samples_ns",     "samples_ts",
                                           "schema_version"};

static void test_fields(void **state)
{
    (void)state;
    int n;
    const struct bench_field *fields = bench_fields(&n);
    for (size_t i = 0; i < sizeof llama_fields / sizeof *llama_fields; i++) {
        assert_string_equal(fields[i].name, llama_fields[i]);
        assert_int_equal(fields[i].own, !strcmp(fields[i].name, "schema_version"));
    }
    assert_true(fields[n - 1].own);
}

struct caught {
    json_t *rows;
    int begun, samples, told, stop_after; /* stop_after rows; 0: never */
};

static int caught_begin(void *user, const struct hone_model *m, const struct bench_config *c, struct hone_error *e)
{
    struct caught *k = user;
    (void)c;
    (void)e;
    assert_non_null(m);
    k->begun++;
    return 0;
}

static int caught_sample(void *user, const struct bench_config *c, const struct measure_sample *s, struct hone_error *e)
{
    struct caught *k = user;
    (void)c;
    (void)e;
    assert_true(s->ns > 0);
    k->samples++;
    return 0;
}

static int caught_row(void *user, const json_t *row, bool begun, struct hone_error *e)
{
    struct caught *k = user;
    (void)e;
    assert_int_equal(begun, !json_is_string(json_object_get(row, "error")));
    json_array_append_new(k->rows, json_deep_copy(row));
    return 0;
}

static void caught_tell(void *user, size_t test, size_t n_tests, const char *what)
{
    struct caught *k = user;
    assert_true(test >= 1 && test <= n_tests && what[0]);
    k->told++;
}

static bool caught_stopped(void *user)
{
    struct caught *k = user;
    return k->stop_after && (int)json_array_size(k->rows) >= k->stop_after;
}

static int sweep(const struct bench_sweep *s, struct caught *k, struct bench_tally *tally, bool warmup)
{
    struct bench_options o = {.repeats = 3, .warmup = warmup, .verify = true, .warm = warm_defaults()};
    struct bench_hooks h = {k, caught_begin, caught_sample, caught_row, caught_tell, NULL, caught_stopped};
    struct hone_error e = {0};
    k->rows = json_array();
    int rc = bench_run(s, &o, &h, tally, &e);
    if (rc && rc != HONE_ECANCELED)
        fail_msg("%s", e.message);
    return rc;
}

static const char *text_of(json_t *rows, size_t i, const char *field)
{
    return json_string_value(json_object_get(json_array_get(rows, i), field));
}

/* Every field in order; figures that follow from the samples. */
static void check_row(const json_t *row)
{
    int n, i = 0;
    const struct bench_field *fields = bench_fields(&n);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)row, key, v)
    {
        assert_true(i < n);
        assert_string_equal(key, fields[i].name);
        i++;
    }
    assert_int_equal(i, n);
    if (json_is_string(json_object_get(row, "error")))
        return;
    double sum = 0, rates = 0,
           tokens = json_number_value(json_object_get(row, "n_prompt")) + json_number_value(json_object_get(row, "n_gen"));
    size_t k;
    json_array_foreach(json_object_get(row, "samples_ns"), k, v) sum += json_number_value(v);
    json_array_foreach(json_object_get(row, "samples_ts"), k, v) rates += json_number_value(v);
    assert_int_equal(k, 3);
    assert_float_equal(json_number_value(json_object_get(row, "avg_ts")) / (rates / 3), 1, 1e-6);
    assert_float_equal(json_number_value(json_object_get(row, "total_ts")) / (3 * tokens * 1e9 / sum), 1, 1e-6);
    assert_true(json_number_value(json_object_get(row, "bytes_per_token")) > 0);
    assert_string_equal(json_string_value(json_object_get(row, "status")), "done");
    assert_int_equal(strlen(json_string_value(json_object_get(row, "output_hash"))), 64);
    assert_int_equal(strlen(json_string_value(json_object_get(row, "recipe_hash"))), 64);
}

/* A sweep over depths that cannot all be had, and a model that is not there: rows all the same, and the sweep goes on. */
static void test_failures_are_rows(void **state)
{
    (void)state;
    struct bench_sweep s = {0};
    struct caught k = {0};
    struct bench_tally tally;
    char models[600];
    snprintf(models, sizeof models, "%s/missing.gguf,%s", folder, model_path);
    add(&s, BENCH_MODEL, models);
    add(&s, BENCH_N_PROMPT, "4");
    add(&s, BENCH_N_GEN, "2");
    add(&s, BENCH_N_DEPTH, "0,2000000000,8");
    finish(&s);
    assert_int_equal(sweep(&s, &k, &tally, true), 0);
    assert_int_equal(json_array_size(k.rows), 12);
    assert_int_equal(tally.rows, 12);
    assert_int_equal(tally.failed, 8);
    assert_int_equal(tally.wrong, 0);
    assert_int_equal(k.begun, 4);
    assert_int_equal(k.samples, 12);
    assert_true(k.told > 0);
    for (size_t i = 0; i < 12; i++) {
        check_row(json_array_get(k.rows, i));
        bool failed = i < 6 || i == 8 || i == 9;
        assert_int_equal(json_is_string(json_object_get(json_array_get(k.rows, i), "error")), failed);
        if (failed) {
            assert_true(json_is_null(json_object_get(json_array_get(k.rows, i), "avg_ts")));
            assert_non_null(strstr(text_of(k.rows, i, "backends"), "failed"));
        } else {
            assert_string_equal(text_of(k.rows, i, "backends"), "CPU");
            assert_string_not_equal(text_of(k.rows, i, "verdict"), "different");
            assert_string_not_equal(text_of(k.rows, i, "verdict"), "unverified");
        }
    }
    assert_non_null(strstr(text_of(k.rows, 0, "error"), "missing.gguf"));
    assert_non_null(strstr(text_of(k.rows, 8, "error"), "KV cache"));
    assert_string_equal(text_of(k.rows, 11, "test"), "tg2 @ d8");
    json_decref(k.rows);
    bench_sweep_free(&s);
}

static void test_stop(void **state)
{
    (void)state;
    struct bench_sweep s = {0};
    struct caught k = {.stop_after = 2};
    struct bench_tally tally;
    add(&s, BENCH_MODEL, model_path);
    add(&s, BENCH_N_PROMPT, "1-9");
    add(&s, BENCH_N_GEN, "0");
    finish(&s);
    assert_int_equal(sweep(&s, &k, &tally, false), HONE_ECANCELED);
    assert_int_equal(json_array_size(k.rows), 2);
    assert_true(json_is_null(json_object_get(json_array_get(k.rows, 0), "warmup")));
    assert_true(json_is_null(json_object_get(json_array_get(k.rows, 0), "deterministic")));
    json_decref(k.rows);
    bench_sweep_free(&s);
}

static char *written(enum bench_format f, const struct bench_sweep *s, json_t *rows)
{
    static char *text; /* the stream writes to it until it is closed */
    static size_t size;
    size_t i;
    json_t *row;
    struct bench_writer w = {open_memstream(&text, &size), f, s, 0};
    bench_write_begin(&w);
    json_array_foreach(rows, i, row) bench_write_row(&w, row);
    bench_write_end(&w, "abc", 7);
    fclose(w.to);
    return text;
}

static int column_count(const char *line)
{
    int n = 0;
    for (char before = 0; *line && *line != '\n'; before = *line++)
        n += *line == '|' && before != '\\';
    return n;
}

/* A row with every character that some format gives a meaning to. */
static json_t *hostile_row(const json_t *row)
{
    json_t *r = json_deep_copy(row);
    json_object_set_new(r, "model_filename", json_string("a'b\"c|d,e\nf;--"));
    json_object_set_new(r, "model_type", json_string("x|y\nz"));
    return r;
}

static int sql_text(void *user, int n, char **values, char **names)
{
    (void)names;
    for (int i = 0; i < n; i++)
        snprintf((char *)user + strlen(user), 1000 - strlen(user), "%s|", values[i] ? values[i] : "NULL");
    return 0;
}

static void check_sql(const struct bench_sweep *s, json_t *rows)
{
    sqlite3 *db;
    char *text = written(BENCH_SQL, s, rows), *message = NULL, got[1000] = "";
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &message))
        fail_msg("%s", message);
    sqlite3_exec(db,
                 "SELECT model_filename, typeof(n_prompt), typeof(avg_ts), schema_version, typeof(error), "
                 "json_array_length(samples_ns) FROM llama_bench",
                 sql_text, got, NULL);
    assert_string_equal(got, "a'b\"c|d,e\nf;--|integer|real|1|null|3|");
    sqlite3_close(db);
    free(text);
}

static void check_csv(const struct bench_sweep *s, json_t *rows)
{
    int n, fields = 1, quotes = 0;
    bench_fields(&n);
    char *text = written(BENCH_CSV, s, rows);
    assert_memory_equal(text, "build_commit,build_number,", 26);
    const char *line = strchr(text, '\n') + 1;
    for (const char *p = line; *p; p++) { /* an even number of quotes before a comma: it parts fields */
        quotes += *p == '"';
        fields += *p == ',' && quotes % 2 == 0;
    }
    assert_int_equal(quotes % 2, 0);
    assert_int_equal(fields, n);
    assert_non_null(strstr(line, "\"a'b\"\"c|d,e\nf;--\""));
    free(text);
}

static void test_formats(void **state)
{
    (void)state;
    struct bench_sweep s = {0};
    struct caught k = {0};
    struct bench_tally tally;
    add(&s, BENCH_MODEL, model_path);
    add(&s, BENCH_N_PROMPT, "4");
    add(&s, BENCH_N_GEN, "0");
    add(&s, BENCH_TYPE_K, "f32"); /* not the preset: a column of Markdown */
    finish(&s);
    assert_int_equal(sweep(&s, &k, &tally, true), 0);
    json_t *rows = json_array(), *back;
    json_error_t error;
    json_array_append_new(rows, hostile_row(json_array_get(k.rows, 0)));

    char *text = written(BENCH_JSON, &s, rows);
    back = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!back)
        fail_msg("%s", error.text);
    check_row(json_array_get(back, 0));
    json_decref(back);
    free(text);
    text = written(BENCH_JSON, &s, json_object_get(rows, "none")); /* no rows: still a document */
    back = json_loads(text, 0, &error);
    assert_int_equal(json_array_size(back), 0);
    assert_true(json_is_array(back));
    json_decref(back);
    free(text);
    text = written(BENCH_JSONL, &s, rows);
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text));
    back = json_loads(text, 0, &error);
    check_row(back);
    json_decref(back);
    free(text);
    check_sql(&s, rows);
    check_csv(&s, rows);
    text = written(BENCH_MD, &s, rows);
    char *ruler = strchr(text, '\n') + 1, *line = strchr(ruler, '\n') + 1;
    assert_int_equal(column_count(text), column_count(ruler));
    assert_int_equal(column_count(text), column_count(line));
    assert_non_null(strstr(text, "| type_k |"));
    assert_null(strstr(text, "type_v"));
    assert_non_null(strstr(line, "x\\|y z"));
    assert_non_null(strstr(line, "\nbuild: abc (7)\n"));
    free(text);
    json_decref(rows);
    json_decref(k.rows);
    bench_sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_order),   cmocka_unit_test(test_presets),
        cmocka_unit_test(test_too_many), cmocka_unit_test(test_fields),  cmocka_unit_test(test_failures_are_rows),
        cmocka_unit_test(test_stop),     cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
