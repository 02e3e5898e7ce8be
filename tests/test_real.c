/* test_real.c: two real models on the reference path against what llama.cpp says about them (tests/golden/real.py).
 *
 * Teacher-forced: a prompt and then the 48 tokens that llama.cpp chose greedily are fed, so that one flipped token does not
 * hide the rest. Two comparisons, because llama.cpp quantises activations to 8 bits and a reference does not:
 *   - with its usual logits: the same top-1 in at least 98.5 % of all positions, and each other one a near-tie: llama.cpp's gap
 *     between its two best logits at most 4 times the RMS error at that position (over its 8 best logits), and that error
 *     within the bound of the weight type;
 *   - with logits in double precision (tests/golden/exact.py), where nothing is quantised: these differ by rounding alone. It
 * is the sharp one: a fault too small to turn a token shows here first. (llama.cpp with the weights unpacked to f32 lost as the
 *     source: it agrees with exact.py to 4e-5 on SmolLM2, but to 1e-2 only on Gemma 3; why is not known.)
 *
 * HONE_MODELS is the folder that examples/fetch.sh fills (tests/run.sh does); without it everything is skipped, visibly. A
 * build with sanitizers takes the first prompt alone, unless HONE_SOAK is set: all 12 take it ten minutes. */
#include "tests/facts.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mmap.h"

#include <unistd.h>

enum { N_NEW = 48, N_TOP = 8, N_CTX = 1024 };

struct real {
    const char *facts;
    double exact_bound; /* RMS difference from the logits in double precision */
    double rms_bound;   /* llama.cpp's RMS error at a position that is excused */
    double mean_bound;  /* and its mean over all positions */
};

/* What 8-bit activations cost llama.cpp, from exact.py over these prompts: RMS error 0.184 in the mean and 0.19 at most where
 * they turned a token for Q4_1 (7 of 576), 0.265 and 1.25 for Q4_K_M with its Q5_0 and Q8_0 tensors (5 of 576). The
 * bounds are 1.5 times that, the mean's 1.2 times. */
static const struct real smollm2 = {"tests/golden/real-smollm2.json", 1e-4, 0.29, 0.22};
static const struct real gemma3 = {"tests/golden/real-gemma3.json", 1e-4, 1.9, 0.32};

#ifdef HONE_SANITIZED
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

struct tally {
    size_t n, equal, excused, n_degenerate, n_tokens;
    double rms_sum, rms_max, exact_max;
    int64_t ns;
};

static void check_file(const struct hone_model *m, const json_t *facts, const char *path)
{
    struct mapping map;
    struct sha256 sum;
    struct hone_error e = {0};
    assert_non_null(m);
    assert_done(mapping_open(&map, path, &e), e);
    assert_done(hash_sha256(&sum, map.data, map.size, &e), e);
    mapping_close(&map);
    if (strcmp(sum.hex, json_string_value(json_object_get(facts, "sha256"))))
        fail_msg("%s has the SHA-256 %s; the facts are about another file", path, sum.hex);
}

/* llama.cpp's ids of the same text, its markup taken as control tokens. */
static void check_ids(const struct hone_model *m, const json_t *c, const int32_t *expected, size_t n_expected)
{
    const char *text = json_string_value(json_object_get(c, "text"));
    struct hone_error e = {0};
    int32_t *ids;
    size_t n;
    assert_done(hone_tokenize(m, text, strlen(text), true, true, &ids, &n, &e), e);
    for (size_t i = 0; i < n && i < n_expected; i++)
        if (ids[i] != expected[i])
            fail_msg("prompt '%s': id %zu is %d, expected %d", json_string_value(json_object_get(c, "kind")), i, ids[i],
                     expected[i]);
    assert_int_equal(n, n_expected);
    hone_free(ids);
}

static void row_read(const json_t *c, const char *key, size_t at, double out[N_TOP])
{
    const json_t *row = json_array_get(json_object_get(c, key), at);
    assert_int_equal(json_array_size(row), N_TOP);
    for (size_t i = 0; i < N_TOP; i++)
        out[i] = json_number_value(json_array_get(row, i));
}

static double rms_difference(const float *logits, const double ids[N_TOP], const double expected[N_TOP])
{
    double sum = 0;
    for (size_t i = 0; i < N_TOP; i++) {
        double d = (double)logits[(int32_t)ids[i]] - expected[i];
        sum += d * d;
    }
    return sqrt(sum / N_TOP);
}

static void check_position(const struct real *r, const json_t *c, size_t at, const float *logits, int32_t n_vocab,
                           struct tally *t)
{
    const char *kind = json_string_value(json_object_get(c, "kind"));
    double ids[N_TOP], usual[N_TOP], exact[N_TOP];
    row_read(c, "top", at, ids);
    row_read(c, "logits", at, usual);
    row_read(c, "exact", at, exact);
    double rms = rms_difference(logits, ids, usual), rms_exact = rms_difference(logits, ids, exact), gap = usual[0] - usual[1];
    int32_t best = argmax(logits, n_vocab);
    if (!(rms_exact <= r->exact_bound))
        fail_msg("prompt '%s', position %zu: logits are %.3g (RMS) off those in double precision; allowed is %.3g", kind, at,
                 rms_exact, r->exact_bound);
    t->n++;
    t->rms_sum += rms;
    t->rms_max = fmax(t->rms_max, rms);
    t->exact_max = fmax(t->exact_max, rms_exact);
    if (best == (int32_t)ids[0]) {
        t->equal++;
    } else if (gap <= 4 * rms && rms <= r->rms_bound) {
        t->excused++;
    } else {
        fail_msg(
            "prompt '%s', position %zu: top-1 is %d, expected %d, and it is no near-tie: gap %.3g, RMS error %.3g (bound %.3g)",
            kind, at, best, (int32_t)ids[0], gap, rms, r->rms_bound);
    }
}

/* One step: the prompt and all but the last expected token; position i of the 48 is the one that expects greedy[i]. */
static void check_case(const struct real *r, const struct hone_model *m, struct hone_session *s, const json_t *c,
                       struct tally *t)
{
    size_t n_prompt, n_greedy;
    struct hone_error e = {0};
    int32_t *prompt = facts_ids(c, "prompt", &n_prompt), *greedy = facts_ids(c, "greedy", &n_greedy);
    assert_int_equal(n_greedy, N_NEW);
    check_ids(m, c, prompt, n_prompt);
    size_t n = n_prompt + N_NEW - 1;
    int32_t *ids = realloc(prompt, n * sizeof *ids);
    assert_non_null(ids);
    memcpy(ids + n_prompt, greedy, (N_NEW - 1) * sizeof *ids);
    assert_done(hone_session_rewind(s, 0, 0, &e), e);
    int64_t start = clock_ns();
    session_feed(s, 0, ids, n, N_NEW);
    t->ns += clock_ns() - start;
    t->n_tokens += n;
    t->n_degenerate += json_is_string(json_object_get(c, "degenerate"));
    for (size_t i = 0; i < N_NEW; i++) {
        const float *logits = hone_session_logits(s, i);
        assert_non_null(logits);
        check_position(r, c, i, logits, hone_model_n_vocab(m), t);
    }
    free(ids);
    free(greedy);
}

/* What `make demo` shows, decoded token by token. */
static void check_demo(const struct hone_model *m, struct hone_session *s, const json_t *demo)
{
    const char *prompt = json_string_value(json_object_get(demo, "rendered"));
    const char *expected = json_string_value(json_object_get(demo, "answer"));
    struct hone_error e = {0};
    int32_t *ids, answer[256];
    size_t n, n_answer = 0, size;
    char *text;
    assert_done(hone_tokenize(m, prompt, strlen(prompt), true, true, &ids, &n, &e), e);
    assert_done(hone_session_rewind(s, 0, 0, &e), e);
    session_feed(s, 0, ids, n, 1);
    int64_t start = clock_ns();
    while (n_answer < sizeof answer / sizeof *answer) {
        int32_t id = argmax(hone_session_logits(s, 0), hone_model_n_vocab(m));
        if (hone_is_end(m, id))
            break;
        answer[n_answer++] = id;
        session_feed(s, 0, &id, 1, 1);
    }
    double seconds = (double)(clock_ns() - start) / 1e9;
    assert_done(hone_detokenize(m, answer, n_answer, false, &text, &size, &e), e);
    assert_string_equal(text, expected);
    print_message("the demo's answer: %zu tokens, %.1f a second\n", n_answer, (double)n_answer / seconds);
    hone_free(text);
    hone_free(ids);
}

static void check_model(const struct real *r)
{
    const char *folder = getenv("HONE_MODELS");
    json_t *facts = facts_load(r->facts);
    const char *file = json_string_value(json_object_get(facts, "model"));
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", file);
    if (!folder || access(path, R_OK)) {
        print_message("SKIPPED: %s is not in HONE_MODELS (%s)\n", file, folder ? folder : "not set");
        json_decref(facts);
        skip();
    }
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    assert_done(hone_model_open(&m, path, &e), e);
    check_file(m, facts, path);
    struct hone_session *s = session_reference(m, N_CTX, 1, N_CTX, 0);
    const json_t *cases = json_object_get(facts, "cases"), *demo = json_object_get(facts, "demo");
    size_t n = json_array_size(cases);
    assert_true(n >= 12);
    if (is_sanitized && !getenv("HONE_SOAK")) {
        print_message("built with sanitizers: 1 of %zu prompts\n", n);
        n = 1;
        demo = NULL;
    }
    struct tally t = {0};
    for (size_t i = 0; i < n; i++)
        check_case(r, m, s, json_array_get(cases, i), &t);
    print_message(
        "%s: %zu prompts (%zu degenerate), %zu of %zu top-1 equal (%.2f %%), %zu near-ties; RMS error mean %.3g, max %.3g; "
        "from double precision at most %.2g; %zu tokens in %.1f s\n",
        file, n, t.n_degenerate, t.equal, t.n, 100.0 * (double)t.equal / (double)t.n, t.excused, t.rms_sum / (double)t.n,
        t.rms_max, t.exact_max, t.n_tokens, (double)t.ns / 1e9);
    size_t allowed = t.n * 15 / 1000; /* at least 98.5 %; one of a lone prompt's 48 */
    assert_true(t.n - t.equal <= (allowed ? allowed : 1));
    assert_true(t.rms_sum / (double)t.n <= r->mean_bound);
    if (demo)
        check_demo(m, s, demo);
    hone_session_free(s);
    hone_model_close(m);
    json_decref(facts);
}

static void test_smollm2(void **state)
{
    (void)state;
    check_model(&smollm2);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_model(&gemma3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_smollm2), cmocka_unit_test(test_gemma3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
