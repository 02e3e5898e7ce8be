/* test_shard_deep.c: the collectives of a deep model over three ranks, as the trace has them.
 *
 * 64 layers of qwen35, three of four recurrent. As wide as the real one nothing is run, only planned: 128 sums of 20,480 bytes,
 * plain with the gates off, 127 fused with an add and one with get_rows with them on. A narrow one with weights runs: the same
 * counts as the outcome, the same logits with each set of gates; and with each guard made to fail, one at a time, every step
 * declines, the reason and the number are kept, all sums fall back to plain ones, and the logits are still the same. */
#include "tests/facts.h"

#include "engine/engine.h"
#include "graph/fuse.h"
#include "graph/guards.h"
#include "lab/trace.h"
#include "model/synth.h"

#include <unistd.h>

#ifdef HONE_SANITIZED
enum { LAYERS = 4, GUARD_LAYERS = 4 };
#else
enum { LAYERS = 64, GUARD_LAYERS = 8 };
#endif
enum { RANKS = 3, STEPS = 3, VOCAB = 512, NARROW = 640 };

#define ADD  "fuse.all_reduce_add=on"
#define ROWS "fuse.all_reduce_get_rows=on"

static struct hone_model *model_made(int32_t layers, int32_t width, bool no_weights)
{
    char path[] = "/tmp/hone-deep-XXXXXX";
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    struct synth_params p = {.shape = "qwen3.6-27b",
                             .type = "Q4_0",
                             .layers = layers,
                             .width = width,
                             .vocab = VOCAB,
                             .ctx = 128,
                             .seed = 1,
                             .no_vocab = true,
                             .no_weights = no_weights};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    int rc = model_synth(path, &p, NULL, NULL, &e);
    rc = rc ? rc : hone_model_open(&m, path, &e);
    unlink(path);
    assert_done(rc, e);
    return m;
}

static struct hone_session *three(const struct hone_model *m, const char *words)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = 32;
    p.n_threads = RANKS;
    p.poll = 0;
    p.split_mode = "tensor";
    p.tensor_split = "1/1/1";
    p.gates = words;
    assert_done(hone_session_create(&s, m, &p, &e), e);
    return s;
}

static const char *const gates[] = {"", ADD, ROWS, ADD ";" ROWS};
enum { N_GATES = sizeof gates / sizeof *gates, BOTH = N_GATES - 1 };

/* What the trace must say of a model's sums under gates[g]. */
static void expect_summary(const struct collectives *c, size_t g, int layers, int width, bool fallback)
{
    char text[400], want[400];
    int sums = 2 * layers, add = !fallback && g & 1 ? sums - 1 : 0, rows = !fallback && g & 2 ? 1 : 0;
    snprintf(want, sizeof want,
             "allreduce summary devices=%d graphs=1 count=%d total_bytes=%d path add=%d get_rows=%d plain=%d fallback=%d",
             RANKS, sums, sums * width * (int)sizeof(float), add, rows, fallback ? 0 : sums - add - rows, fallback ? sums : 0);
    assert_string_equal(collectives_summary(c, text, sizeof text), want);
}

static void test_planned(void **state)
{
    (void)state;
    struct hone_model *m = model_made(64, 0, true);
    struct hone_error e = {0};
    struct trace t;
    assert_int_equal(m->model->n_layer, 64);
    assert_int_equal(m->model->n_embd, 5120);
    for (size_t g = 0; g < N_GATES; g++) {
        char text[400], want[400], all[100];
        const char *path = g & 2 ? "get_rows" : "plain";
        snprintf(all, sizeof all, "fuse.linear=off;%s", gates[g]); /* it would take in the product that makes the partial */
        struct hone_session *s = three(m, all);
        session_set_dry(s);
        assert_done(trace_run(&t, s, m, &(struct trace_options){.n_tokens = 1}, &e), e);
        expect_summary(&t.collectives, g, 64, 5120, false);
        for (int k = 0; k < t.collectives.n; k++)
            assert_int_equal(t.collectives.list[k].bytes, 20480);
        snprintf(want, sizeof want,
                 "partial_probe name=attn_output-63 op=MUL_MAT nbytes=20480 next=GET_ROWS next_nbytes=20480 plan=%s outcome=%s",
                 path, path);
        assert_string_equal(collectives_probe(&t.collectives, 126, text, sizeof text), want);
        trace_free(&t);
        hone_session_free(s);
    }
    hone_model_close(m);
}

/* Of a step: which plan ran. */
static int observed(void *user, const struct plan *p, int step, int64_t ns)
{
    (void)step, (void)ns;
    *(const struct plan **)user = p;
    return 0;
}

/* The logits of a prompt's tokens and of some steps behind it. */
static void run_text(struct hone_session *s, float *out)
{
    static const int32_t ids[] = {3, 141, 59, 265, 35, 89, 79};
    enum { PROMPT = 4, N = sizeof ids / sizeof *ids };
    _Static_assert(N == PROMPT + STEPS, "a prompt and the steps");
    session_feed(s, 0, ids, PROMPT, PROMPT);
    for (size_t i = 0; i < PROMPT; i++)
        memcpy(out + i * VOCAB, hone_session_logits(s, i), VOCAB * sizeof *out);
    for (size_t i = PROMPT; i < N; i++) {
        session_feed(s, 0, ids + i, 1, 1);
        memcpy(out + i * VOCAB, hone_session_logits(s, 0), VOCAB * sizeof *out);
    }
}
enum { N_LOGITS = (4 + STEPS) * VOCAB };

/* One text under some gates: its logits must be those of `plain`, unless they are the first; *c: the sums of its last step.
 * Names in them are gone with the session, as its plans are. */
static void run_gates(const struct hone_model *m, const char *words, float *plain, bool first, struct decline *declines,
                      struct collectives *c)
{
    struct hone_session *s = three(m, words);
    struct hone_error e = {0};
    const struct plan *planned, *ran = NULL;
    float *got = calloc(N_LOGITS, sizeof *got);
    assert_non_null(got);
    session_observe(s, &(struct observer){&ran, NULL, observed});
    run_text(s, first ? plain : got);
    session_observe(s, NULL);
    if (!first && memcmp(got, plain, N_LOGITS * sizeof *got) != 0)
        fail_msg("'%s' gives other logits than plain collectives", words);
    free(got);
    memcpy(declines, session_declines(s), N_FUSIONS * sizeof *declines);
    assert_done(session_plan(s, 1, 1, &planned, &e), e);
    assert_done(collectives_find(c, planned, ran, RANKS, &e), e);
    hone_session_free(s);
}

static void test_gates(void **state)
{
    (void)state;
    struct hone_model *m = model_made(LAYERS, NARROW, false);
    float *plain = calloc(N_LOGITS, sizeof *plain);
    struct decline declines[N_FUSIONS];
    struct collectives c;
    assert_non_null(plain);
    for (size_t g = 0; g < N_GATES; g++) {
        run_gates(m, gates[g], plain, !g, declines, &c);
        expect_summary(&c, g, LAYERS, NARROW, false);
        for (int f = 0; f < N_FUSIONS; f++)
            assert_int_equal(declines[f].count, 0);
        collectives_free(&c);
    }
    free(plain);
    hone_model_close(m);
}

static void expect_declines(const struct decline *declines, const char *guard)
{
    for (int f = 0; f < N_FUSIONS; f++) {
        bool fused = f == FUSE_all_reduce_add || f == FUSE_all_reduce_get_rows;
        if (declines[f].count != (fused ? 1 + STEPS : 0))
            fail_msg("%s: %s declined %lld times", guard, fusion_get((enum fusion_id)f)->name, (long long)declines[f].count);
        if (fused && !strstr(declines[f].reason.text, guard))
            fail_msg("%s: the reason is '%s'", guard, declines[f].reason.text);
    }
}

static void test_guards(void **state)
{
    (void)state;
    struct hone_model *m = model_made(GUARD_LAYERS, NARROW, false);
    float *plain = calloc(N_LOGITS, sizeof *plain);
    struct decline declines[N_FUSIONS];
    struct collectives c;
    assert_non_null(plain);
    run_gates(m, "", plain, true, declines, &c);
    collectives_free(&c);
    for (int g = 0; g < N_GUARDS; g++) {
        char words[200];
        snprintf(words, sizeof words, "%s;debug.guard=%s", gates[BOTH], guard_name((enum guard)g));
        run_gates(m, words, plain, false, declines, &c);
        expect_summary(&c, BOTH, GUARD_LAYERS, NARROW, true);
        expect_declines(declines, guard_name((enum guard)g));
        collectives_free(&c);
    }
    free(plain);
    hone_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planned), cmocka_unit_test(test_gates),
                                       cmocka_unit_test(test_guards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
