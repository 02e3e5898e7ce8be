/* test_shard_real.c: real models over several ranks of one process, against the same model on one device.
 *
 * One device reads a prompt and goes on greedily; the others are fed the same tokens, so that one flipped token does not hide
 * the rest. On the fast kernels activations are quantised to 8 bits, and what one device rounds up another may round down, so
 * their bound is the lab's: the same top token at each position or a near-tie, mean KL divergence at most 0.01. On the
 * reference kernels nothing is quantised, and logits differ by the order of sums alone: there the bound is the ops'. A second
 * request has the bits of the first, fused collectives have those of plain ones, and new sessions have them again.
 *
 * HONE_MODELS is the folder that examples/fetch.sh fills; without it everything is skipped, visibly. HONE_SOAK: all splits and
 * 20 repeats of each; else two and one of them. */
#include "tests/subject.h"

#include "base/clock.h"

enum { N_NEW = 40, N_SHORT = 12, REFERENCE_TOKENS = 6 };

static const char text[] = "The three primary colours are red, yellow and blue. Mixing two of them gives";
/* The first two are what the suite takes. */
static const char *const cuts[] = {"1/1", "2/1/1", "3/1", "1/1/1", "1/1/1/1", "3/1/2/1"};
enum { N_CUTS = sizeof cuts / sizeof *cuts };

struct real {
    const char *file;
    struct hone_model *model;
    int32_t n_vocab, *prompt, ids[N_NEW]; /* ids: what one device says */
    size_t n_prompt;
    int n_new;
    float *one; /* its logits, [n_new + 1][n_vocab] */
};

/* The logits behind the prompt and behind each token of the continuation; of one device, which is asked for it, too. */
static void read_text(struct real *r, struct hone_session *s, bool asked, float *out)
{
    size_t row = (size_t)r->n_vocab;
    rewind_to(s, 0, 0);
    session_feed(s, 0, r->prompt, r->n_prompt, 1);
    for (int i = 0; i <= r->n_new; i++) {
        memcpy(out + (size_t)i * row, hone_session_logits(s, 0), row * sizeof *out);
        if (i < r->n_new && asked)
            r->ids[i] = hone_greedy(s);
        if (i < r->n_new)
            session_feed(s, 0, &r->ids[i], 1, 1);
    }
}

static float *logits_new(const struct real *r)
{
    float *x = calloc((size_t)(r->n_new + 1) * (size_t)r->n_vocab, sizeof *x);
    assert_non_null(x);
    return x;
}

static void expect_bits(const struct real *r, const float *a, const float *b, const char *shares, const char *what)
{
    if (memcmp(a, b, (size_t)(r->n_new + 1) * (size_t)r->n_vocab * sizeof *a) != 0)
        fail_msg("%s on %s: %s has other bits", r->file, shares, what);
}

static void real_open(struct real *r, const char *pattern)
{
    const char *folder = getenv("HONE_MODELS");
    struct hone_error e = {0};
    char path[4200];
    *r = (struct real){.file = pattern, .n_new = getenv("HONE_SOAK") ? N_NEW : N_SHORT};
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", pattern);
    if (!folder || access(path, R_OK)) {
        print_message("SKIPPED: %s is not in HONE_MODELS (%s)\n", pattern, folder ? folder : "not set");
        skip();
    }
    assert_done(hone_model_open(&r->model, path, &e), e);
    assert_done(hone_tokenize(r->model, text, sizeof text - 1, true, false, &r->prompt, &r->n_prompt, &e), e);
    r->n_vocab = hone_model_n_vocab(r->model);
    r->one = logits_new(r);
}

static void real_close(struct real *r)
{
    free(r->one);
    hone_free(r->prompt);
    hone_model_close(r->model);
}

/* On the fast kernels, as they come. */
static void check_fast(struct real *r, const char *shares, float *first, float *again)
{
    struct hone_session *s = session_over(r->model, "tensor", shares, NULL, 1);
    struct comparison c = {.n_vocab = r->n_vocab};
    struct hone_error e = {0};
    size_t row = (size_t)r->n_vocab;
    read_text(r, s, false, first);
    read_text(r, s, false, again);
    expect_bits(r, again, first, shares, "a second request");
    hone_session_free(s);
    for (size_t i = 0; i <= (size_t)r->n_new; i++)
        assert_done(comparison_add(&c, r->one + i * row, first + i * row, &e), e);
    comparison_judge_for(&c, r->model, 0.01);
    print_message("%s on %s: %zu of %zu tokens equal, %zu near-ties, mean KL %.2g, NMSE %.2g\n", r->file, shares, c.equal, c.n,
                  c.excused, c.kl_mean, c.nmse);
    if (c.verdict == CLASS_DIFFERENT)
        fail_msg("%s on %s: %s", r->file, shares, c.reason);
    comparison_free(&c);
}

/* Fused against plain, and new sessions of other numbers of threads against the first. */
static void check_bits(struct real *r, const char *shares, float *first, float *again)
{
    int repeats = getenv("HONE_SOAK") ? 20 : 2, n_new = r->n_new;
    for (size_t g = 0; g < N_COLLECTIVE_GATES; g++) {
        struct hone_session *s = session_over(r->model, "tensor", shares, collective_gates[g], 1);
        read_text(r, s, false, g ? again : first);
        hone_session_free(s);
        if (g)
            expect_bits(r, again, first, shares, collective_gates[g]);
    }
    r->n_new = N_SHORT;
    for (int i = 0; i < repeats; i++) {
        struct hone_session *s = session_of(r->model, "tensor", shares, collective_gates[i % N_COLLECTIVE_GATES], 1, 2 + i % 3);
        read_text(r, s, false, again);
        hone_session_free(s);
        expect_bits(r, again, first, shares, "a repeat");
    }
    r->n_new = n_new;
}

/* On the reference kernels: a few tokens, which take a second. */
static void check_reference(struct real *r, const char *shares)
{
    size_t n = REFERENCE_TOKENS * (size_t)r->n_vocab;
    float *logits[2];
    for (int k = 0; k < 2; k++) {
        struct hone_session *s = session_over(r->model, k ? "tensor" : NULL, k ? shares : NULL, "kernel=ref", 1);
        logits[k] = malloc(n * sizeof **logits);
        assert_non_null(logits[k]);
        session_feed(s, 0, r->prompt, REFERENCE_TOKENS, REFERENCE_TOKENS);
        for (size_t i = 0; i < REFERENCE_TOKENS; i++)
            memcpy(logits[k] + i * (size_t)r->n_vocab, hone_session_logits(s, i), (size_t)r->n_vocab * sizeof **logits);
        hone_session_free(s);
    }
    double error = nmse(logits[1], logits[0], n);
    print_message("%s on %s: on the reference kernels NMSE %.2g\n", r->file, shares, error);
    if (!(error <= reference_bound))
        fail_msg("%s on %s: normalised mean squared error %.3g from one device, allowed is %.3g", r->file, shares, error,
                 reference_bound);
    free(logits[0]);
    free(logits[1]);
}

static void check_model(const char *pattern)
{
    struct real r;
    int64_t start = clock_ns();
    real_open(&r, pattern);
    float *first = logits_new(&r), *again = logits_new(&r);
    struct hone_session *s = session_over(r.model, NULL, NULL, NULL, 1);
    read_text(&r, s, true, r.one);
    hone_session_free(s);
    int n_cuts = getenv("HONE_SOAK") ? N_CUTS : 2;
    for (int i = 0; i < n_cuts; i++) {
        check_fast(&r, cuts[i], first, again);
        check_bits(&r, cuts[i], first, again);
        if (getenv("HONE_SOAK"))
            check_reference(&r, cuts[i]);
    }
    print_message("%s: %d splits in %.1f s\n", r.file, n_cuts, (double)(clock_ns() - start) / 1e9);
    free(first);
    free(again);
    real_close(&r);
}

static void test_smollm2(void **state)
{
    (void)state;
    check_model("SmolLM2-135M-Instruct.Q4_1.gguf");
}

static void test_gemma3(void **state)
{
    (void)state;
    check_model("gemma-3-270m-q4_k_m.gguf");
}

int main(void)
{
#ifdef HONE_SANITIZED
    print_message("SKIPPED: real models under sanitizers\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_smollm2), cmocka_unit_test(test_gemma3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
