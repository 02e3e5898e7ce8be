/* test_perplexity.c: the formula against a naive one and against llama.cpp's library on real models; a base's bounds against
 * whole rows; what an interruption leaves; files of a base that are wrong in every byte. */
#include "tests/facts.h"

#include "base/rng.h"
#include "engine/engine.h"
#include "lab/kl_base.h"
#include "lab/perplexity.h"
#include "lab/vocabulary.h"
#include "model/synth.h"

#include <unistd.h>

static char folder[64], tiny[96];

static int make_folder(void **state)
{
    struct hone_error e = {0};
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hone-ppl-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(tiny, sizeof tiny, "%s/tiny.gguf", folder);
    return model_synth(
        tiny,
        &(struct synth_params){.shape = "smollm2-135m", .type = "Q8_0", .layers = 2, .width = 64, .vocab = 300, .seed = 3},
        NULL, NULL, &e);
}

static int remove_folder(void **state)
{
    (void)state;
    remove(tiny);
    return rmdir(folder);
}

/* ---- a base against whole rows */

enum { VOCAB = 700, ROWS = 40, CTX = 12, FIRST = 6, WINDOW_ROWS = CTX - 1 - FIRST };

static double log_sum_of(const float *x, int n)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum);
}

static double exact_kl(const float *p, const float *q, int n)
{
    double a = log_sum_of(p, n), b = log_sum_of(q, n), kl = 0;
    for (int i = 0; i < n; i++)
        kl += exp((double)p[i] - a) * (((double)p[i] - a) - ((double)q[i] - b));
    return kl;
}

static void draw_row(struct rng *r, float *x, double spread)
{
    for (int i = 0; i < VOCAB; i++)
        x[i] = (float)(spread * rng_normal(r));
}

static struct kl_base *base_of(float (*rows)[VOCAB], int top)
{
    struct kl_base *b;
    struct hone_error e = {0};
    int32_t tokens[CTX];
    for (int i = 0; i < CTX; i++)
        tokens[i] = i;
    assert_done(kl_base_create(&b, CTX, FIRST, VOCAB, top, 42, "a model", &e), e);
    for (int i = 0; i < ROWS; i++) {
        if (i % WINDOW_ROWS == 0)
            assert_done(kl_base_add(b, tokens, &e), e);
        kl_base_set(b, i, rows[i], log_sum_of(rows[i], VOCAB), 1.5);
    }
    return b;
}

static void test_bounds(void **state)
{
    static float rows[ROWS][VOCAB], other[VOCAB];
    struct rng r = rng_seed(1);
    (void)state;
    for (int i = 0; i < ROWS; i++)
        draw_row(&r, rows[i], 0.5 + 0.1 * i); /* from nearly even to peaked */
    for (int top = 1; top <= VOCAB; top = top < 100 ? 3 * top + 1 : top < VOCAB ? VOCAB : VOCAB + 1) {
        struct kl_base *b = base_of(rows, top);
        double estimate = 0, exact = 0;
        for (int i = 0; i < ROWS; i++) {
            float smallest = INFINITY;
            for (int v = 0; v < VOCAB; v++) {
                other[v] = rows[i][v] + (float)(0.2 * rng_normal(&r));
                smallest = other[v] < smallest ? other[v] : smallest;
            }
            double kl = exact_kl(rows[i], other, VOCAB);
            struct kl_row k = kl_base_compare(b, i, other, log_sum_of(other, VOCAB), smallest);
            if (k.lower > kl + 1e-9 || k.upper < kl - 1e-9)
                fail_msg("top %d, row %d: %.9g is not within %.9g and %.9g", top, i, kl, k.lower, k.upper);
            assert_int_equal(k.top, argmax(rows[i], VOCAB));
            estimate += k.estimate / ROWS;
            exact += kl / ROWS;
            if (top == VOCAB)
                assert_true(fabs(k.lower - kl) < 1e-9 && fabs(k.upper - kl) < 1e-9 && fabs(k.estimate - kl) < 1e-9);
            for (int v = 0; v < VOCAB; v++) /* the same row: nothing, whatever was left out */
                smallest = rows[i][v] < smallest ? rows[i][v] : smallest;
            k = kl_base_compare(b, i, rows[i], log_sum_of(rows[i], VOCAB), smallest);
            assert_true(k.lower < 1e-9 && fabs(k.estimate) < 1e-9);
        }
        if (fabs(estimate - exact) > 0.1 * exact)
            fail_msg("top %d: estimated %.6f, it is %.6f", top, estimate, exact);
        kl_base_close(b);
    }
}

/* A candidate that is wrong only where the base kept nothing is seen by the estimate. */
static void test_wrong_in_the_rest(void **state)
{
    static float rows[ROWS][VOCAB], other[VOCAB];
    struct rng r = rng_seed(2);
    (void)state;
    for (int i = 0; i < ROWS; i++)
        draw_row(&r, rows[i], 1);
    struct kl_base *b = base_of(rows, 8);
    double estimate = 0, lower = 0, exact = 0;
    for (int i = 0; i < ROWS; i++) {
        for (int v = 0; v < VOCAB; v++)
            other[v] = rows[i][v] + (v % 2 ? 0.7f : -0.7f);
        for (int t = 0; t < 8; t++)
            other[b->ids[i * 8 + t]] = rows[i][b->ids[i * 8 + t]];
        struct kl_row k = kl_base_compare(b, i, other, log_sum_of(other, VOCAB), -20);
        estimate += k.estimate / ROWS;
        lower += k.lower / ROWS;
        exact += exact_kl(rows[i], other, VOCAB) / ROWS;
    }
    assert_true(lower < 0.3 * exact);
    assert_true(fabs(estimate - exact) < 0.1 * exact);
    kl_base_close(b);
}

/* ---- the file */

static uint8_t *file_bytes(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    uint8_t *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static void write_base(const char *path, int top)
{
    static float rows[ROWS][VOCAB];
    struct rng r = rng_seed(5);
    struct hone_error e = {0};
    for (int i = 0; i < ROWS; i++)
        draw_row(&r, rows[i], 2);
    struct kl_base *b = base_of(rows, top);
    assert_done(kl_base_write(b, path, &e), e);
    kl_base_close(b);
}

static void test_file(void **state)
{
    char path[96];
    struct kl_base *b, *c;
    struct hone_error e = {0};
    static float rows[ROWS][VOCAB];
    struct rng r = rng_seed(5);
    (void)state;
    snprintf(path, sizeof path, "%s/base.kl", folder);
    write_base(path, 5);
    for (int i = 0; i < ROWS; i++)
        draw_row(&r, rows[i], 2);
    b = base_of(rows, 5);
    assert_done(kl_base_open(&c, path, &e), e);
    assert_int_equal(c->n_rows, b->n_rows);
    assert_int_equal(c->n_chunks, b->n_chunks);
    assert_int_equal(c->top, 5);
    assert_true(c->vocabulary == 42);
    assert_string_equal(c->model, "a model");
    assert_memory_equal(c->tokens, b->tokens, sizeof *b->tokens * (size_t)(b->n_chunks * CTX));
    assert_memory_equal(c->ids, b->ids, sizeof *b->ids * (size_t)b->n_rows * 5);
    assert_memory_equal(c->logits, b->logits, sizeof *b->logits * (size_t)b->n_rows * 5);
    assert_memory_equal(c->drawn, b->drawn, sizeof *b->drawn * (size_t)b->n_rows * KL_DRAWN);
    assert_memory_equal(c->log_sum, b->log_sum, 2 * sizeof *b->log_sum * (size_t)b->n_rows);
    kl_base_close(b);
    kl_base_close(c);
    assert_int_equal(kl_base_open(&c, tiny, &e), HONE_EINPUT); /* a GGUF file, but a model */
    assert_non_null(strstr(e.message, "not a base"));
    remove(path);
}

static void expect_refused(const uint8_t *bytes, size_t n, const char *what, const char *wanted)
{
    struct kl_base *b;
    struct hone_error e = {0};
    if (!kl_base_open_memory(&b, bytes, n, "base", &e))
        fail_msg("%s: it was taken", what);
    if (wanted && !strstr(e.message, wanted))
        fail_msg("%s: '%s' says nothing of '%s'", what, e.message, wanted);
}

/* Where the data of a tensor lies: found by what it must hold. */
static uint8_t *find(uint8_t *bytes, size_t n, const void *data, size_t size)
{
    for (size_t i = 0; i + size <= n; i++)
        if (!memcmp(bytes + i, data, size))
            return bytes + i;
    fail_msg("not found");
    return NULL;
}

static void test_wrong_files(void **state)
{
    char path[96];
    size_t n;
    struct kl_base *b;
    struct hone_error e = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/base.kl", folder);
    write_base(path, 5);
    uint8_t *bytes = file_bytes(path, &n), *copy = malloc(n);
    assert_non_null(copy);
    assert_done(kl_base_open_memory(&b, bytes, n, "base", &e), e);
    struct {
        const char *what;
        const void *from;
        size_t at, size;
        int32_t word;
        const char *message;
    } cases[] = {
        {"a token behind the vocabulary", b->tokens, 0, 16, VOCAB, "token 0 has id 700"},
        {"a negative token", b->tokens, 4, 16, -1, "token 1 has id -1"},
        {"an id behind the vocabulary", b->ids, 4, 20, VOCAB, "position 0 has an id outside"},
        {"an id twice", b->ids, 4, 20, b->ids[0], "position 0 has an id twice"},
        {"a logit that is NaN", b->logits, 8, 20, 0x7fc00000, "not finite and descending"},
        {"logits that ascend", b->logits, 16, 20, 0x42c80000, "not finite and descending"},
        {"a sum below its parts", b->log_sum, 0, 8, (int32_t)0xc2c80000, "smaller than its parts"},
        {"a sum without end", b->log_sum, 0, 8, 0x7f800000, "smaller than its parts"},
        {"a drawn id behind the vocabulary", b->drawn, 0, 64, VOCAB, "a drawn token"},
        {"a drawn logit above the kept", b->drawn_logits, 0, 64, 0x42c80000, "a drawn token"},
        {"a loss that is none", b->nll, 0, 8, (int32_t)0xbf800000, "a loss that is none"},
        {"another token", b->tokens, 4, 16, b->tokens[1] ^ 1, "the bytes of the tensor tokens"}, /* possible, and not what was written */
        {"another loss", b->nll, 0, 8, 0x3f800000, "the bytes of the tensor nll"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(copy, bytes, n);
        memcpy(find(copy, n, cases[i].from, cases[i].size) + cases[i].at, &cases[i].word, 4);
        expect_refused(copy, n, cases[i].what, cases[i].message);
    }
    static const struct {
        const char *key;
        uint32_t value;
        const char *message;
    } keys[] = {{"hone.kl_base.version", 3, "version is 3"},    {"hone.kl_base.n_ctx", 13, "has not the type and shape"},
                {"hone.kl_base.n_ctx", 3, "n_ctx is 3"},        {"hone.kl_base.first", 0, "first is 0"},
                {"hone.kl_base.first", CTX - 1, "first is 11"}, {"hone.kl_base.first", 5, "has not the type and shape"},
                {"hone.kl_base.n_vocab", 3, "more ids"},        {"hone.kl_base.n_vocab", 0xffffffff, "n_vocab is"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        memcpy(copy, bytes, n);
        memcpy(find(copy, n, keys[i].key, strlen(keys[i].key)) + strlen(keys[i].key) + 4, &keys[i].value, 4);
        expect_refused(copy, n, keys[i].key, keys[i].message);
    }
    for (size_t cut = 0; cut < n; cut += cut < 1200 ? 1 : 61)
        expect_refused(bytes, cut, "a file that ends early", NULL);
    struct rng r = rng_seed(9); /* any other bytes: taken or refused, and what is taken can be compared */
    static float row[VOCAB];
    for (int i = 0; i < 3000; i++) {
        struct kl_base *c;
        memcpy(copy, bytes, n);
        for (int j = 0; j < 3; j++)
            copy[rng_below(&r, i % 2 ? n : 1300)] = (uint8_t)rng_u64(&r);
        if (!kl_base_open_memory(&c, copy, n, "base", &e)) {
            for (int64_t k = 0; k < c->n_rows && c->n_vocab <= VOCAB; k++)
                kl_base_compare(c, k, row, log_sum_of(row, VOCAB), 0);
            kl_base_close(c);
        }
    }
    kl_base_close(b);
    free(copy);
    free(bytes);
    remove(path);
}

/* ---- the run */

static int cancel_after_two(void *user, const struct perplexity *p)
{
    (void)user;
    return p->done == 2;
}

static struct hone_session *session_of(const struct hone_model *m, int n_ctx, const char *gates)
{
    struct hone_session_params params = hone_session_defaults();
    struct hone_session *s;
    struct hone_error e = {0};
    params.n_ctx = n_ctx;
    params.n_threads = 2;
    params.poll = 0;
    params.gates = gates;
    assert_done(hone_session_create(&s, m, &params, &e), e);
    return s;
}

/* The same figures by the plainest way: each position's logits from a prefill of all before it. */
static void test_formula(void **state)
{
    struct hone_model *m;
    struct hone_error e = {0};
    enum { N = 3 * CTX + 5 };
    int32_t ids[N];
    struct rng r = rng_seed(4);
    (void)state;
    assert_done(hone_model_open(&m, tiny, &e), e);
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)rng_below(&r, (uint64_t)hone_model_n_vocab(m));
    struct hone_session *s = session_reference(m, CTX, 1, 512, 1);
    const struct tokenizer *t = m->model->tokenizer;
    double sum = 0, sum2 = 0;
    int n = 0;
    for (int w = 0; w < 3; w++)
        for (int at = FIRST; at + 1 < CTX; at++, n++) {
            int32_t window[CTX];
            memcpy(window, ids + w * CTX, sizeof window);
            if (tokenizer_add_bos(t))
                window[0] = tokenizer_bos(t);
            hone_session_rewind(s, 0, 0, &e);
            session_feed(s, 0, window, (size_t)at + 1, 1);
            const float *x = hone_session_logits(s, 0);
            double loss = log_sum_of(x, hone_model_n_vocab(m)) - (double)x[ids[w * CTX + at + 1]];
            sum += loss;
            sum2 += loss * loss;
        }
    struct perplexity p;
    assert_done(perplexity_run(&p, s, m, ids, N, &(struct perplexity_options){.n_ctx = CTX, .n_threads = 2}, &e), e);
    assert_int_equal(p.done, 3);
    assert_int_equal(p.n, n);
    assert_int_equal(p.n_unused, 5);
    assert_true(fabs(p.nll - sum / n) < 1e-6);
    assert_true(fabs(p.value - exp(sum / n)) < 1e-3);
    assert_true(fabs(p.nll_error - sqrt((sum2 / n - sum / n * sum / n) / (n - 1))) < 1e-6);
    perplexity_free(&p);
    assert_int_equal(perplexity_run(&p, s, m, ids, CTX - 1, &(struct perplexity_options){.n_ctx = CTX}, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "less than one window of 12"));
    hone_session_free(s);
    hone_model_close(m);
}

/* Ctrl-C after two windows: two windows' figures and a base of two, with which a whole run then compares as far as it goes. */
static void test_interrupted(void **state)
{
    struct hone_model *m;
    struct hone_error e = {0};
    struct kl_base *b;
    struct perplexity p;
    enum { N = 5 * CTX };
    int32_t ids[N];
    (void)state;
    assert_done(hone_model_open(&m, tiny, &e), e);
    for (int i = 0; i < N; i++)
        ids[i] = (7 * i + 3) % 290;
    struct hone_session *s = session_of(m, CTX, NULL), *reference = session_reference(m, CTX, 1, 512, 1);
    assert_done(kl_base_create(&b, CTX, CTX / 2, hone_model_n_vocab(m), 20, vocabulary_hash(m->model->gguf), tiny, &e), e);
    struct perplexity_options o = {.n_ctx = CTX, .save = b, .each = cancel_after_two, .n_threads = 1};
    assert_int_equal(perplexity_run(&p, s, m, ids, N, &o, &e), HONE_ECANCELED);
    assert_int_equal(p.done, 2);
    assert_int_equal(b->n_chunks, 2);
    assert_true(p.value > 1);
    perplexity_free(&p);
    o = (struct perplexity_options){.n_ctx = CTX, .base = b, .n_threads = 2};
    assert_done(perplexity_run(&p, s, m, ids, N, &o, &e), e);
    assert_int_equal(p.done, 2);
    assert_true(fabs(p.kl) < 1e-12 && p.agreement == 1 && fabs(p.kl_quantiles[KL_QUANTILES - 1]) < 1e-12);
    perplexity_free(&p);
    assert_done(perplexity_run(&p, reference, m, ids, N, &o, &e), e);
    assert_true(p.kl > 1e-9 && p.kl < 0.01 && p.kl_lower <= p.kl + 1e-6 && p.kl <= p.kl_upper);
    assert_true(p.kl_quantiles[0] <= p.kl_quantiles[4] && p.kl_quantiles[4] <= p.kl_quantiles[9]);
    perplexity_free(&p);
    ids[3]++; /* another text, another window, another tokenizer */
    assert_int_equal(perplexity_run(&p, s, m, ids, N, &o, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "another text: id 3"));
    ids[3]--;
    o.n_ctx = CTX - 2;
    assert_int_equal(perplexity_run(&p, s, m, ids, N, &o, &e), HONE_EINPUT);
    b->vocabulary++;
    e = (struct hone_error){0};
    assert_int_equal(perplexity_base_fits(b, m, NULL, 0, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "another tokenizer"));
    kl_base_close(b);
    hone_session_free(reference);
    hone_session_free(s);
    hone_model_close(m);
}

/* ---- real models, against llama.cpp's library (tests/golden/perplexity.py) */

/* Both engines compute with 8-bit activations, each in its own way; one window of 63 positions may differ by 2.2 % in
 * perplexity (measured, SmolLM2's eighth), all of 504 by 0.8 % (gemma3). The reference path keeps activations whole. */
static void hold_to_peer(const char *name, const char *gates, double tolerance, double window)
{
#ifdef HONE_SANITIZED /* a whole text on real models took a quarter of all sanitized tests, by the code of the tests above */
    print_message("skipped: %s is for the build without sanitizers\n", name);
    skip();
#endif
    const char *models = getenv("HONE_MODELS");
    char path[600], file[100];
    snprintf(file, sizeof file, "tests/golden/perplexity-%s.json", name);
    json_t *facts = facts_load(file);
    snprintf(path, sizeof path, "%s/%s", models ? models : "", json_string_value(json_object_get(facts, "file")));
    if (!models || access(path, R_OK)) {
        print_message("skipped: no model at %s (HONE_MODELS)\n", path);
        json_decref(facts);
        skip();
    }
    struct hone_model *m;
    struct hone_error e = {0};
    struct perplexity p;
    size_t n_text, n;
    int32_t *ids;
    uint8_t *text = file_bytes("tests/golden/perplexity.txt", &n_text);
    assert_done(hone_model_open(&m, path, &e), e);
    assert_done(hone_tokenize(m, (const char *)text, n_text, true, false, &ids, &n, &e), e);
    assert_int_equal(n, json_integer_value(json_object_get(facts, "tokens")));
    int n_ctx = (int)json_integer_value(json_object_get(facts, "n_ctx"));
    struct hone_session *s = session_of(m, n_ctx, gates);
    const json_t *chunks = json_object_get(facts, "chunks");
    struct perplexity_options o = {.n_ctx = n_ctx, .n_chunks = gates ? 2 : 0};
    assert_done(perplexity_run(&p, s, m, ids, n, &o, &e), e);
    double sum = 0;
    for (int64_t i = 0; i < p.done; i++)
        sum += log(json_number_value(json_array_get(chunks, (size_t)i)));
    print_message("%s %s: perplexity %.4f, llama.cpp %.4f\n", name, gates ? gates : "", p.value, exp(sum / (double)p.done));
    assert_true(fabs(p.nll - sum / (double)p.done) < tolerance);
    double last = json_number_value(json_array_get(chunks, (size_t)p.done - 1));
    assert_true(fabs(log(p.chunk / last)) < window);
    if (!gates) {
        assert_int_equal(p.n, json_integer_value(json_object_get(facts, "scored")));
        double error = json_number_value(json_object_get(facts, "perplexity_error"));
        assert_true(fabs(p.error / error - 1) < 0.02);
    }
    perplexity_free(&p);
    hone_free(ids);
    free(text);
    hone_session_free(s);
    hone_model_close(m);
    json_decref(facts);
}

static void test_smollm2(void **state)
{
    (void)state;
    hold_to_peer("smollm2", NULL, 0.015, 0.04);
}

static void test_smollm2_reference(void **state)
{
    (void)state;
    hold_to_peer("smollm2", "kernel=ref", 0.015, 0.03);
}

static void test_gemma3(void **state) /* it wants a bos in each window */
{
    (void)state;
    hold_to_peer("gemma3", NULL, 0.015, 0.04);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),      cmocka_unit_test(test_wrong_in_the_rest), cmocka_unit_test(test_file),
        cmocka_unit_test(test_wrong_files), cmocka_unit_test(test_formula),           cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_smollm2),     cmocka_unit_test(test_smollm2_reference), cmocka_unit_test(test_gemma3),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
