/* test_shard_real.c: real models over several ranks of one process, against the same model on one device.
 *
 * One device reads texts of several kinds and goes on greedily; the others are fed the same tokens, so that one flipped token
 * does not hide the rest. On the fast kernels activations are quantised to 8 bits, and what one device rounds up another may
 * round down, so their bound is the lab's: the same top token at each position or a near-tie, mean KL divergence at most 0.01.
 * On the reference kernels nothing is quantised, and logits differ by the order of sums alone: there the bound is the ops'. A
 * second request has the bits of the first, fused collectives have those of plain ones, and new sessions have them again.
 *
 * HONE_MODELS is the folder that examples/fetch.sh fills; without it everything is skipped, visibly. HONE_SOAK: all splits,
 * more and longer texts, and 20 repeats of each; else two splits and two repeats. */
#include "tests/subject.h"

#include "base/clock.h"

enum { N_NEW = 40, N_SHORT = 12, REFERENCE_TOKENS = 6, PROMPT_TOKENS = 24, SUITE_TEXTS = 3, SOAK_TEXTS = 8 };

/* The first two are what the suite takes. */
static const char *const cuts[] = {"1/1", "2/1/1", "3/1", "1/1/1", "1/1/1/1", "3/1/2/1"};
enum { N_CUTS = sizeof cuts / sizeof *cuts };

/* A prompt, what one device says behind it, and its logits, [n_new + 1][n_vocab]. */
struct passage {
    struct sequence prompt;
    int32_t ids[N_NEW];
    float *one;
};

struct real {
    const char *file;
    struct hone_model *model;
    int32_t n_vocab;
    int n_new, n_texts;
    struct sequence *prompts;
    struct passage texts[SOAK_TEXTS];
};

/* The logits behind the prompt and behind each token of the continuation, which one device is asked for, too. */
static void read_text(const struct real *r, struct passage *t, struct hone_session *s, bool asked, int n_new, float *out)
{
    size_t row = (size_t)r->n_vocab;
    rewind_to(s, 0, 0);
    session_feed(s, 0, t->prompt.ids, t->prompt.n, 1);
    for (int i = 0; i <= n_new; i++) {
        memcpy(out + (size_t)i * row, hone_session_logits(s, 0), row * sizeof *out);
        if (i < n_new && asked)
            t->ids[i] = hone_greedy(s);
        if (i < n_new)
            session_feed(s, 0, &t->ids[i], 1, 1);
    }
}

static float *logits_new(const struct real *r)
{
    float *x = calloc((size_t)(r->n_new + 1) * (size_t)r->n_vocab, sizeof *x);
    assert_non_null(x);
    return x;
}

static void expect_bits(const struct real *r, const float *a, const float *b, int n_new, const char *shares, const char *what)
{
    if (memcmp(a, b, (size_t)(n_new + 1) * (size_t)r->n_vocab * sizeof *a) != 0)
        fail_msg("%s on %s: %s has other bits", r->file, shares, what);
}

static void real_open(struct real *r, const char *file)
{
    const char *folder = getenv("HONE_MODELS"), *soak = getenv("HONE_SOAK");
    struct hone_error e = {0};
    char path[4200];
    *r = (struct real){.file = file, .n_new = soak ? N_NEW : N_SHORT, .n_texts = soak ? SOAK_TEXTS : SUITE_TEXTS};
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", file);
    if (!folder || access(path, R_OK)) {
        print_message("SKIPPED: %s is not in HONE_MODELS (%s)\n", file, folder ? folder : "not set");
        skip();
    }
    assert_done(hone_model_open(&r->model, path, &e), e);
    assert_done(texts_encode(&r->prompts, r->n_texts, PROMPT_TOKENS, r->model, &e), e);
    r->n_vocab = hone_model_n_vocab(r->model);
    struct hone_session *s = session_over(r->model, NULL, NULL, NULL, 1);
    for (int i = 0; i < r->n_texts; i++) {
        r->texts[i] = (struct passage){.prompt = r->prompts[i], .one = logits_new(r)};
        read_text(r, &r->texts[i], s, true, r->n_new, r->texts[i].one);
    }
    hone_session_free(s);
}

static void real_close(struct real *r)
{
    for (int i = 0; i < r->n_texts; i++)
        free(r->texts[i].one);
    texts_free(r->prompts, r->n_texts);
    hone_model_close(r->model);
}

/* On the fast kernels, as they come: each text twice. */
static void check_fast(struct real *r, const char *shares, float *first, float *again)
{
    struct hone_session *s = session_over(r->model, "tensor", shares, NULL, 1);
    struct comparison c = {.n_vocab = r->n_vocab};
    struct hone_error e = {0};
    size_t row = (size_t)r->n_vocab;
    for (int k = 0; k < r->n_texts; k++) {
        struct passage *t = &r->texts[k];
        read_text(r, t, s, false, r->n_new, first);
        read_text(r, t, s, false, r->n_new, again);
        expect_bits(r, again, first, r->n_new, shares, "a second request");
        for (size_t i = 0; i <= (size_t)r->n_new; i++)
            assert_done(comparison_add(&c, t->one + i * row, first + i * row, &e), e);
    }
    hone_session_free(s);
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
    int repeats = getenv("HONE_SOAK") ? 20 : 2;
    struct passage *t = &r->texts[0];
    for (size_t g = 0; g < N_COLLECTIVE_GATES; g++) {
        struct hone_session *s = session_over(r->model, "tensor", shares, collective_gates[g], 1);
        read_text(r, t, s, false, r->n_new, g ? again : first);
        hone_session_free(s);
        if (g)
            expect_bits(r, again, first, r->n_new, shares, collective_gates[g]);
    }
    for (int i = 0; i < repeats; i++) {
        struct hone_session *s = session_of(r->model, "tensor", shares, collective_gates[i % N_COLLECTIVE_GATES], 1, 2 + i % 3);
        read_text(r, t, s, false, N_SHORT, again);
        hone_session_free(s);
        expect_bits(r, again, first, N_SHORT, shares, "a repeat");
    }
}

/* On the reference kernels: a few tokens, which take a second. */
static void check_reference(const struct real *r, const char *shares)
{
    size_t n = REFERENCE_TOKENS * (size_t)r->n_vocab;
    float *logits[2];
    for (int k = 0; k < 2; k++) {
        struct hone_session *s = session_over(r->model, k ? "tensor" : NULL, k ? shares : NULL, "kernel=ref", 1);
        logits[k] = malloc(n * sizeof **logits);
        assert_true(logits[k] && r->texts[0].prompt.n >= REFERENCE_TOKENS);
        session_feed(s, 0, r->texts[0].prompt.ids, REFERENCE_TOKENS, REFERENCE_TOKENS);
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

static void check_model(const char *file)
{
    struct real r;
    int64_t start = clock_ns();
    real_open(&r, file);
    float *first = logits_new(&r), *again = logits_new(&r);
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
