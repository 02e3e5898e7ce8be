/* test_archs.c: whole models on the reference path against the logits of an independent implementation.
 *
 * Every model in HONE_DATA/archs and HONE_DATA/quants has beside it the logits of 24 tokens, computed in f32 from the weights
 * unpacked to f32, and 32 greedy tokens. The reference path must agree to a normalised mean squared error of 1e-9; it must do
 * so however the tokens are cut into steps and whatever other sequence shares the step; and it must give the same bits again
 * after a rewind and on any number of threads.
 *
 * The table names the models that hone must run. A file outside it that the library refuses is counted and printed as "not
 * yet"; one that it opens is held to the same facts, so a new architecture is tested from its first day and becomes mandatory
 * by its row. */
#include "tests/facts.h"

#include "engine/engine.h"
#include "lab/compare.h"
#include "lab/texts.h"

#include "tests/golden/mistral3.h"

#include <dirent.h>
#include <unistd.h>

static const char *const required[] = {
    "archs/gemma3",        "archs/gpt-oss",       "archs/gpt-oss-mxfp4", "archs/granite",       "archs/llama",         "archs/llama-moe", "archs/qwen3moe",       "archs/llama3",     "archs/mistral3",   "archs/olmo2",
    "archs/phi3",          "archs/qwen2",         "archs/qwen3",       "archs/qwen35",     "archs/qwen35moe",    "archs/qwen3next",     "archs/smollm3",    "quants/llama-BF16",   "quants/llama-F16",
    "quants/llama-IQ4_NL", "quants/llama-IQ4_XS", "quants/llama-Q2_K", "quants/llama-Q3_K_M", "quants/llama-Q4_0",
    "quants/llama-Q4_1",   "quants/llama-Q4_K_M", "quants/llama-Q5_0", "quants/llama-Q5_1",   "quants/llama-Q5_K_M",
    "quants/llama-Q6_K",   "quants/llama-Q8_0",
};

static const double bound = 1e-9;

struct subject {
    char name[280];
    struct hone_model *model;
    int32_t n_vocab;
    int32_t *tokens, *greedy;
    size_t n, n_greedy;
    float *expected; /* [n][n_vocab] */
};

static const char *data_folder(void)
{
    const char *data = getenv("HONE_DATA");
    if (!data || access(data, R_OK)) {
        print_message("SKIPPED: HONE_DATA does not name the folder with archs/ and quants/\n");
        skip();
    }
    return data;
}

static void read_logits(struct subject *s, const char *path)
{
    size_t n = s->n * (size_t)s->n_vocab;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    s->expected = malloc(n * sizeof(float));
    assert_non_null(s->expected);
    assert_int_equal(fread(s->expected, sizeof(float), n, f), n);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

/* False, with the reason in *e, when the library refuses the file. */
static bool subject_open(struct subject *s, const char *data, const char *name, struct hone_error *e)
{
    char path[4200];
    *s = (struct subject){0};
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s.gguf", data, name);
    if (hone_model_open(&s->model, path, e))
        return false;
    s->n_vocab = hone_model_n_vocab(s->model);
    snprintf(path, sizeof path, "%s/%s.json", data, name);
    json_t *facts = facts_load(path);
    assert_int_equal(json_integer_value(json_object_get(facts, "n_vocab")), s->n_vocab);
    s->tokens = facts_ids(facts, "tokens", &s->n);
    s->greedy = facts_ids(facts, "greedy", &s->n_greedy);
    json_decref(facts);
    assert_true(s->n == 24 && s->n_greedy == 32);
    snprintf(path, sizeof path, "%s/%s.logits", data, name);
    read_logits(s, path);
    return true;
}

static void subject_close(struct subject *s)
{
    free(s->tokens);
    free(s->greedy);
    free(s->expected);
    hone_model_close(s->model);
}

/* The logits of all n tokens of one sequence, fed in steps of `chunk`; into out [n][n_vocab]. */
static void eval_chunked(const struct subject *u, struct hone_session *s, int32_t seq, const int32_t *tokens, size_t n,
                         size_t chunk, float *out)
{
    size_t row = (size_t)u->n_vocab;
    for (size_t at = 0; at < n; at += chunk) {
        size_t k = n - at < chunk ? n - at : chunk;
        session_feed(s, seq, tokens + at, k, k);
        for (size_t i = 0; i < k; i++) {
            const float *logits = hone_session_logits(s, i);
            assert_non_null(logits);
            memcpy(out + (at + i) * row, logits, row * sizeof(float));
        }
        assert_null(hone_session_logits(s, k));
    }
}

static float *rows_new(const struct subject *u)
{
    float *rows = malloc(u->n * (size_t)u->n_vocab * sizeof(float));
    assert_non_null(rows);
    return rows;
}

static void hold(const struct subject *u, const float *got, const float *expected, const char *how)
{
    double error = nmse(got, expected, u->n * (size_t)u->n_vocab);
    if (!(error <= bound))
        fail_msg("%s, %s: normalised mean squared error %.3g, allowed is %.3g", u->name, how, error, bound);
}

static void same_bits(const struct subject *u, const float *got, const float *expected, size_t rows, const char *how)
{
    for (size_t i = 0; i < rows * (size_t)u->n_vocab; i++)
        if (memcmp(got + i, expected + i, sizeof(float)))
            fail_msg("%s, %s: token %zu, id %zu: %.9g and %.9g", u->name, how, i / (size_t)u->n_vocab, i % (size_t)u->n_vocab,
                     (double)got[i], (double)expected[i]);
}

static void rewind_to(struct hone_session *s, int32_t seq, int32_t length)
{
    struct hone_error e = {0};
    assert_done(hone_session_rewind(s, seq, length, &e), e);
    assert_int_equal(hone_session_length(s, seq), length);
}

/* All at once, the greedy tokens behind that, and in steps of 1 and 7 tokens; a batch limit of 5 cuts by itself. */
static void check_logits(const struct subject *u, double *error)
{
    struct hone_session *s = session_reference(u->model, 64, 1, 64, 2);
    size_t n_vocab = (size_t)u->n_vocab;
    float *rows = rows_new(u);
    eval_chunked(u, s, 0, u->tokens, u->n, u->n, rows);
    hold(u, rows, u->expected, "in one step");
    *error = nmse(rows, u->expected, u->n * n_vocab);
    int32_t id = argmax(rows + (u->n - 1) * n_vocab, u->n_vocab);
    for (size_t i = 0; i < u->n_greedy; i++) {
        if (id != u->greedy[i])
            fail_msg("%s: greedy token %zu is %d, expected %d", u->name, i, id, u->greedy[i]);
        session_feed(s, 0, &id, 1, 1);
        id = argmax(hone_session_logits(s, 0), u->n_vocab);
    }
    assert_int_equal(hone_session_length(s, 0), (int32_t)(u->n + u->n_greedy));
    rewind_to(s, 0, 0);
    eval_chunked(u, s, 0, u->tokens, u->n, 1, rows);
    hold(u, rows, u->expected, "a token a step");
    rewind_to(s, 0, 0);
    eval_chunked(u, s, 0, u->tokens, u->n, 7, rows);
    hold(u, rows, u->expected, "in steps of 7");
    hone_session_free(s);
    s = session_reference(u->model, 64, 1, 5, 2);
    eval_chunked(u, s, 0, u->tokens, u->n, u->n, rows);
    hold(u, rows, u->expected, "cut by a batch limit of 5");
    hone_session_free(s);
    free(rows);
}

/* Two sequences with different tokens share every step; each must see its own past alone. The second one ends as a fork of the
 * first, which must then go on as the first would have. */
static void check_sequences(const struct subject *u)
{
    size_t n_vocab = (size_t)u->n_vocab;
    float *alone = rows_new(u), *a = rows_new(u), *b = rows_new(u);
    int32_t backwards[64];
    struct hone_error e = {0};
    for (size_t i = 0; i < u->n; i++)
        backwards[i] = u->tokens[u->n - 1 - i];
    struct hone_session *s = session_reference(u->model, 64, 2, 64, 2);
    eval_chunked(u, s, 1, backwards, u->n, u->n, alone);
    rewind_to(s, 1, 0);
    for (size_t at = 0; at < u->n; at += 4) {
        struct hone_token step[8];
        for (size_t i = 0; i < 8; i++)
            step[i] = (struct hone_token){
                .id = i % 2 ? backwards[at + i / 2] : u->tokens[at + i / 2], .seq = i % 2, .want_logits = true};
        assert_done(hone_session_eval(s, step, 8, &e), e);
        for (size_t i = 0; i < 8; i++)
            memcpy((i % 2 ? b : a) + (at + i / 2) * n_vocab, hone_session_logits(s, i), n_vocab * sizeof(float));
    }
    hold(u, a, u->expected, "interleaved with another sequence");
    hold(u, b, alone, "the other sequence");
    rewind_to(s, 0, 12);
    assert_done(hone_session_fork(s, 0, 1, &e), e);
    assert_int_equal(hone_session_length(s, 1), 12);
    session_feed(s, 0, backwards, 6, 1); /* must not show in the fork */
    eval_chunked(u, s, 1, u->tokens + 12, u->n - 12, 5, a + 12 * n_vocab);
    hold(u, a, u->expected, "on a fork");
    hone_session_free(s);
    free(alone);
    free(a);
    free(b);
}

/* The same steps after a rewind, and in another session, give the same bits. */
static void check_rewind(const struct subject *u)
{
    size_t n_vocab = (size_t)u->n_vocab;
    float *first = rows_new(u), *again = rows_new(u);
    struct hone_session *s = session_reference(u->model, 64, 1, 64, 2);
    eval_chunked(u, s, 0, u->tokens, 10, 10, first);
    eval_chunked(u, s, 0, u->tokens + 10, u->n - 10, u->n - 10, first + 10 * n_vocab);
    session_feed(s, 0, u->greedy, u->n_greedy, 1);
    rewind_to(s, 0, 10);
    eval_chunked(u, s, 0, u->tokens + 10, u->n - 10, u->n - 10, again + 10 * n_vocab);
    same_bits(u, again + 10 * n_vocab, first + 10 * n_vocab, u->n - 10, "after a rewind to 10");
    rewind_to(s, 0, 0);
    eval_chunked(u, s, 0, u->tokens, 10, 10, again);
    same_bits(u, again, first, 10, "after a rewind to 0");
    hone_session_free(s);
    free(first);
    free(again);
}

/* Saved after 10 tokens and restored in another session, for a second request too: the same bits as without. */
static void check_saved(const struct subject *u)
{
    size_t n_vocab = (size_t)u->n_vocab;
    float *first = rows_new(u), *again = rows_new(u);
    char path[] = "/tmp/hone-archs-XXXXXX";
    struct hone_error e = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct hone_session *s = session_reference(u->model, 64, 1, 64, 2);
    eval_chunked(u, s, 0, u->tokens, 10, 10, first);
    assert_done(hone_session_save(s, path, &e), e);
    eval_chunked(u, s, 0, u->tokens + 10, u->n - 10, 4, first + 10 * n_vocab);
    hone_session_free(s);
    s = session_reference(u->model, 64, 2, 64, 1);
    session_feed(s, 1, u->greedy, 5, 1);
    for (int request = 0; request < 2; request++) {
        assert_done(hone_session_restore(s, path, &e), e);
        eval_chunked(u, s, 0, u->tokens + 10, u->n - 10, 4, again + 10 * n_vocab);
        same_bits(u, again + 10 * n_vocab, first + 10 * n_vocab, u->n - 10, "after save and restore");
    }
    hone_session_free(s);
    unlink(path);
    free(first);
    free(again);
}

static void check_threads(const struct subject *u)
{
#ifdef HONE_SANITIZED /* with four counts this was the longest of the sanitized tests */
    static const int32_t counts[] = {1, 3};
#else
    static const int32_t counts[] = {1, 2, 3, 7};
#endif
    float *one = rows_new(u), *more = rows_new(u);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char how[32];
        snprintf(how, sizeof how, "%d threads and 1", counts[i]);
        struct hone_session *s = session_reference(u->model, 64, 1, 64, counts[i]);
        eval_chunked(u, s, 0, u->tokens, u->n - 3, u->n - 3, i ? more : one);
        eval_chunked(u, s, 0, u->tokens + u->n - 3, 3, 1, (i ? more : one) + (u->n - 3) * (size_t)u->n_vocab);
        if (i)
            same_bits(u, more, one, u->n, how);
        hone_session_free(s);
    }
    free(one);
    free(more);
}

/* Everything local: 8-bit activations, so the bound is that of the lab; no node on a reference; the same bits from 1 and 7 threads. */
static void check_fast(const struct subject *u)
{
    float *rows = rows_new(u), *again = rows_new(u);
    struct hone_session *s = session_fast(u->model, 64, 1);
    eval_chunked(u, s, 0, u->tokens, u->n, 20, rows);
    struct comparison c = {.n_vocab = u->n_vocab};
    struct hone_error e = {0};
    for (size_t i = 0; i < u->n; i++)
        assert_done(comparison_add(&c, u->expected + i * (size_t)u->n_vocab, rows + i * (size_t)u->n_vocab, &e), e);
    comparison_judge_for(&c, u->model, 0.01);
    if (c.verdict == CLASS_DIFFERENT)
        fail_msg("%s, on fast kernels: %s", u->name, c.reason);
    comparison_free(&c);
    const struct plan *plan;
    assert_done(session_plan(s, 1, 1, &plan, &e), e);
    for (int i = 0; i < plan->n_steps && plan->steps[i].backend->features(0); i++)
        if (!strcmp(plan->steps[i].kernel->variant, "ref"))
            fail_msg("%s: %s stays on the reference", u->name, plan->steps[i].node->out->name);
    hone_session_free(s);
    s = session_fast(u->model, 64, 7);
    eval_chunked(u, s, 0, u->tokens, u->n, 20, again);
    same_bits(u, again, rows, u->n, "7 threads and 1 on fast kernels");
    hone_session_free(s);
    free(rows);
    free(again);
}

static bool is_required(const char *name)
{
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!strcmp(required[i], name))
            return true;
    return false;
}

static int is_model(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 5 && n < 256 && !strcmp(d->d_name + n - 5, ".gguf");
}

static void check_folder(const char *data, const char *folder)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", data, folder);
    struct dirent **files;
    int n_files = scandir(path, &files, is_model, alphasort), n_run = 0, n_required = 0, n_not_yet = 0;
    for (int i = 0; i < n_files; i++) {
        char name[280];
        struct subject u;
        struct hone_error e = {0};
        double error;
        snprintf(name, sizeof name, "%s/%.*s", folder, (int)(strlen(files[i]->d_name) - 5), files[i]->d_name);
        free(files[i]);
        if (!subject_open(&u, data, name, &e)) {
            if (is_required(name))
                fail_msg("%s", e.message);
            print_message("%s: not yet\n", name);
            n_not_yet++;
            continue;
        }
        check_logits(&u, &error);
        check_sequences(&u);
        check_rewind(&u);
        check_saved(&u);
        check_threads(&u);
        check_fast(&u);
        print_message("%s: normalised mean squared error %.2g\n", name, error);
        subject_close(&u);
        n_run++;
        n_required += is_required(name);
    }
    if (n_files >= 0)
        free(files);
    print_message("%s: %d models agree, %d not yet\n", folder, n_run, n_not_yet);
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        n_required -= !strncmp(required[i], folder, strlen(folder));
    assert_int_equal(n_required, 0);
}

static void test_archs(void **state)
{
    (void)state;
    check_folder(data_folder(), "archs");
}

static void test_quants(void **state)
{
    (void)state;
    check_folder(data_folder(), "quants");
}

/* The factors go by how long a sequence may grow: up to the original context the short ones, one position more the long ones. */
static void test_long_rope(void **state)
{
    (void)state;
    struct subject u;
    struct hone_error e = {0};
    static const int32_t contexts[] = {64, 1024, 1025, 4096};
    if (!subject_open(&u, data_folder(), "archs/phi3", &e))
        fail_msg("%s", e.message);
    float *rows[4];
    for (int i = 0; i < 4; i++) {
        struct hone_session *s = session_reference(u.model, contexts[i], 1, 64, 2);
        rows[i] = rows_new(&u);
        eval_chunked(&u, s, 0, u.tokens, u.n, u.n, rows[i]);
        hone_session_free(s);
    }
    hold(&u, rows[0], u.expected, "short factors");
    same_bits(&u, rows[1], rows[0], u.n, "contexts 1024 and 64");
    same_bits(&u, rows[3], rows[2], u.n, "contexts 4096 and 1025");
    assert_true(nmse(rows[2], rows[0], u.n * (size_t)u.n_vocab) > 1e-3);
    for (int i = 0; i < 4; i++)
        free(rows[i]);
    subject_close(&u);
}

/* The place of a key's value in a file, and of its name. */
static char *key_value(char *data, size_t size, const char *key, uint32_t type, char **name)
{
    uint64_t n = strlen(key);
    char head[80];
    memcpy(head, &n, sizeof n);
    memcpy(head + sizeof n, key, n);
    char *at = memmem(data, size, head, sizeof n + n);
    assert_non_null(at);
    assert_memory_equal(at + sizeof n + n, &type, sizeof type);
    *name = at + sizeof n;
    return at + sizeof n + n + sizeof type;
}

/* The mistral3 model with an original context of 8, and with a temperature where it named yarn_beta_fast (32, the default), as in
 * golden/mistral3.py. */
static void write_short_mistral3(const char *from, const char *to)
{
    static char data[2 << 20];
    char *name;
    FILE *f = fopen(from, "rb");
    assert_non_null(f);
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    const int32_t original = GOLDEN_ORIGINAL;
    memcpy(key_value(data, size, "mistral3.rope.scaling.original_context_length", 4, &name), &original, sizeof original);
    memcpy(key_value(data, size, "mistral3.rope.scaling.yarn_beta_fast", 6, &name), &golden_temperature, sizeof golden_temperature);
    memcpy(name, "mistral3.attention.temperature_scale", strlen("mistral3.attention.temperature_scale"));
    f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Beyond the original context queries are turned up by position and YaRN turns them: the logits of llama.cpp, in one step and in
 * steps of 7; and within it nothing depends on the temperature. */
static void test_mistral3_beyond(void **state)
{
    (void)state;
    struct subject u;
    struct hone_error e = {0};
    char path[4200], copy[] = "/tmp/hone-mistral3-XXXXXX";
    if (!subject_open(&u, data_folder(), "archs/mistral3", &e))
        fail_msg("%s", e.message);
    snprintf(path, sizeof path, "%s/archs/mistral3.gguf", data_folder());
    int fd = mkstemp(copy);
    assert_true(fd >= 0);
    close(fd);
    write_short_mistral3(path, copy);
    hone_model_close(u.model);
    assert_done(hone_model_open(&u.model, copy, &e), e);
    unlink(copy);
    assert_true(hone_model_n_ctx_train(u.model) > GOLDEN_ORIGINAL);
    float *rows = rows_new(&u), *fast = rows_new(&u), kept[GOLDEN_ROWS * 160];
    assert_int_equal(u.n_vocab, 160);
    for (size_t chunk = 7; chunk <= 24; chunk += 17) {
        struct hone_session *s = session_reference(u.model, 64, 1, 64, 2);
        eval_chunked(&u, s, 0, u.tokens, u.n, chunk, rows);
        hone_session_free(s);
        for (int i = 0; i < GOLDEN_ROWS; i++)
            memcpy(kept + i * 160, rows + golden_positions[i] * 160, 160 * sizeof *kept);
        double error = nmse(kept, golden_logits, GOLDEN_ROWS * 160);
        if (!(error <= bound))
            fail_msg("chunks of %zu: normalised mean squared error %.3g", chunk, error);
    }
    /* And on fast kernels, which differ by their 8-bit activations. */
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s;
    p.n_ctx = 64;
    p.n_threads = 2;
    assert_done(hone_session_create(&s, u.model, &p, &e), e);
    eval_chunked(&u, s, 0, u.tokens, u.n, 20, fast);
    hone_session_free(s);
    assert_true(nmse(fast, rows, u.n * 160) < 1e-3);
    assert_true(nmse(rows + 8 * 160, u.expected + 8 * 160, (u.n - 8) * 160) > 1e-3); /* not what it says with a longer original context */
    free(rows);
    free(fast);
    subject_close(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_archs), cmocka_unit_test(test_quants), cmocka_unit_test(test_long_rope),
                                       cmocka_unit_test(test_mistral3_beyond)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
