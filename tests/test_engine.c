/* test_engine.c: what a session promises beside right logits (test_archs.c): fusions change nothing when their parts run on the
 * references, packed weights read as before, declines are counted, failed evals leave no trace, forks and rewinds are exact. */
#include "test.h"

#include "tests/feed.h"

#include "base/clock.h"
#include "engine/engine.h"
#include "graph/fuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 160 };

static const char *const archs[] = {"archs/llama", "archs/llama3", "archs/gemma3", "quants/llama-Q4_K_M", "quants/llama-Q4_0",
                                    "archs/qwen35"};
enum { N_ARCHS = sizeof archs / sizeof *archs };

static struct hone_model *open_model(const char *name)
{
    char path[4096];
    const char *data = getenv("HONE_DATA");
    snprintf(path, sizeof path, "%s/%s.gguf", data ? data : "", name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_message("skipped: no test data at %s (HONE_DATA)\n", path);
        skip();
    }
    fclose(f);
    struct hone_error e;
    struct hone_model *m;
    if (hone_model_open(&m, path, &e))
        fail_msg("%s", e.message);
    return m;
}

static struct hone_session *open_session(const struct hone_model *m, const char *gates, bool strict, int n_seq)
{
    struct hone_error e;
    struct hone_session *s;
    struct hone_session_params p = hone_session_defaults();
    p.n_ctx = 64;
    p.gates = gates;
    p.strict = strict;
    p.n_threads = 2;
    p.n_seq = n_seq;
    if (hone_session_create(&s, m, &p, &e))
        fail_msg("%s", e.message);
    return s;
}

/* The logits of all 24 tokens, fed in one prefill of 20 and four steps. */
static void logits_of(struct hone_session *s, float *out)
{
    struct hone_error e;
    assert_int_equal(hone_session_rewind(s, 0, 0, &e), 0);
    for (int at = 0; at < N;) {
        int n = at ? 1 : 20;
        if (feed(s, 0, ids + at, n, &e))
            fail_msg("%s", e.message);
        memcpy(out + at * VOCAB, hone_session_logits(s, 0), (size_t)n * VOCAB * sizeof *out);
        at += n;
    }
}

static double nmse(const float *a, const float *ref)
{
    double num = 0, den = 0;
    for (int i = 0; i < N * VOCAB; i++) {
        num += ((double)a[i] - (double)ref[i]) * ((double)a[i] - (double)ref[i]);
        den += (double)ref[i] * (double)ref[i];
    }
    return num / den;
}

static float base[N * VOCAB], other[N * VOCAB];

/* Every fused op by name on its reference, which is its parts: the same bits as without fusion, and every one that the
 * architecture has must have fired. */
static void test_fusions_keep_bits(void **unused)
{
    (void)unused;
    for (int a = 0; a < N_ARCHS; a++) {
        struct hone_model *m = open_model(archs[a]);
        struct hone_session *s = open_session(m, "kernel=ref", true, 1);
        const struct plan *p;
        struct hone_error e = {0};
        logits_of(s, base);
        hone_session_free(s);
        char gates[1000] = "kernel=ref";
        for (int op = 0; op < N_OPS; op++)
            if (op_get((enum op)op)->fused)
                snprintf(gates + strlen(gates), sizeof gates - strlen(gates), " kernel.%s=ref", op_get((enum op)op)->name);
        s = open_session(m, gates, true, 1);
        logits_of(s, other);
        assert_memory_equal(base, other, sizeof base);
        assert_int_equal(session_plan(s, 1, 1, &p, &e), 0);
        for (int f = 0; f < N_FUSIONS; f++) {
            const struct fusion *fusion = fusion_get((enum fusion_id)f);
            bool there = strcmp(archs[a], "archs/gemma3") != 0 || f != FUSE_mul_mat_add; /* its products are normed before the add */
            bool recurrent = f == FUSE_ssm_conv_silu || f == FUSE_gated_delta_net;
            there = there && fusion->on && (!recurrent || !strcmp(archs[a], "archs/qwen35")); /* those of collectives need several ranks */
            if (there && fusion->stage == FUSE_EARLY && p->fuse_hits[f] == 0)
                fail_msg("%s: %s never fired: %s", archs[a], fusion->name, p->fuse_misses[f].text);
        }
        hone_session_free(s);
        hone_model_close(m);
    }
}

/* Each fusion on its fast kernels, alone and after all others were on: the same bits as without it, and each node that it is said to
 * have made is in the plan or a part of a larger one (a fused node was once dropped, and the text was good for a while). */
static void test_fast_fusions_keep_bits(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("quants/llama-Q4_0");
    struct hone_session *s = open_session(m, "fuse=off", false, 1);
    const struct plan *p;
    struct hone_error e = {0};
    logits_of(s, base);
    hone_session_free(s);
    for (int off = 0; off <= N_FUSIONS; off++) {
        char gate[80] = "";
        if (off < N_FUSIONS)
            snprintf(gate, sizeof gate, "fuse.%s=off", fusion_get((enum fusion_id)off)->name);
        s = open_session(m, gate, false, 1);
        logits_of(s, other);
        if (memcmp(base, other, sizeof base))
            fail_msg("'%s' changes the bits", gate);
        assert_int_equal(session_plan(s, 1, 1, &p, &e), 0);
        for (int f = 0; f < N_FUSIONS; f++) {
            int there = 0, taken = 0;
            for (int i = 0; i < p->n_steps; i++)
                there += p->steps[i].node->n_parts && p->steps[i].node->fusion == f;
            for (int i = 0; i < N_FUSIONS; i++)
                taken += i > f ? p->fuse_hits[i] : 0;
            assert_true(there <= p->fuse_hits[f] && there + taken >= p->fuse_hits[f]);
            assert_true(f < FUSE_mlp || there == p->fuse_hits[f]); /* nothing takes these in */
        }
        assert_true(off != N_FUSIONS || (p->fuse_hits[FUSE_mlp] > 0 && p->fuse_hits[FUSE_linear] > 0));
        hone_session_free(s);
    }
    hone_model_close(m);
}

/* Fast kernels against the references in the same process: the layouts change under the second session's hands. */
static void test_fast_against_reference(void **unused)
{
    (void)unused;
    for (int a = 0; a < N_ARCHS; a++) {
        struct hone_model *m = open_model(archs[a]);
        struct hone_session *ref = open_session(m, "kernel=ref", true, 1), *fast = open_session(m, NULL, true, 1);
        logits_of(ref, base);
        logits_of(fast, other);
        /* 8-bit activations: about 4e-5 of the square a product, gathered over two to seven layers. */
        double err = nmse(other, base);
        if (err > 2e-3)
            fail_msg("%s: normalised mean squared error %g", archs[a], err);
        float again[N * VOCAB];
        logits_of(fast, again);
        assert_memory_equal(again, other, sizeof again);
        logits_of(ref, again); /* the references now read packed weights, if there are any: the same values, so the same bits */
        assert_memory_equal(again, base, sizeof again);
        hone_session_free(ref);
        hone_session_free(fast);
        hone_model_close(m);
    }
}

static void test_declines(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model(archs[0]);
    struct hone_session *s = open_session(m, "kernel=ref", true, 1);
    struct hone_error e = {0};
    logits_of(s, base);
    hone_session_free(s);
    const char *gates = "kernel=ref kernel.rms_norm_mul=ref kernel.rope_kv=ref decline.rope_kv=on";
    s = open_session(m, gates, false, 1);
    logits_of(s, other);
    assert_memory_equal(base, other, sizeof base);
    for (int f = 0; f < N_FUSIONS; f++)
        assert_int_equal(session_declines(s)[f].count, f == FUSE_rope_kv ? 5 : 0); /* a prefill and four steps */
    assert_non_null(strstr(session_declines(s)[FUSE_rope_kv].reason.text, "decline gate"));
    hone_session_free(s);
    s = open_session(m, gates, true, 1);
    assert_int_equal(feed(s, 0, ids, N, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "rope_kv"));
    hone_session_free(s);
    hone_model_close(m);
}

/* The quickest of some steps. */
static int64_t step_ns(struct hone_session *s)
{
    struct hone_error e;
    int64_t best = INT64_MAX;
    for (int i = 0; i < 40; i++) {
        int64_t start = clock_ns();
        assert_int_equal(feed(s, 0, ids, 1, &e), 0);
        int64_t ns = clock_ns() - start;
        best = ns < best ? ns : best;
    }
    return best;
}

/* debug.spin costs the time that it says, and nothing but time. */
static void test_spin(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model(archs[0]);
    struct hone_session *s = open_session(m, NULL, false, 1);
    assert_true(session_spin(s) == 0);
    logits_of(s, base);
    int64_t plain = step_ns(s);
    hone_session_free(s);
    s = open_session(m, "debug.spin=3 debug.spin=900", false, 1);
    assert_true(session_spin(s) == 9);
    logits_of(s, other);
    assert_memory_equal(base, other, sizeof base);
    assert_in_range(step_ns(s), 4 * plain, INT64_MAX);
    hone_session_free(s);
    hone_model_close(m);
}

static void test_failed_eval_leaves_nothing(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model(archs[0]);
    struct hone_session *s = open_session(m, NULL, false, 2);
    struct hone_error e;
    assert_int_equal(feed(s, 0, ids, 10, &e), 0);
    int32_t bad[2] = {5, 1 << 20};
    assert_int_equal(feed(s, 0, bad, 2, &e), HONE_EINPUT);
    assert_int_equal(feed(s, 7, ids, 1, &e), HONE_EUSAGE);
    struct hone_token many[80] = {{0}};
    assert_int_equal(hone_session_eval(s, many, 80, &e), HONE_EINPUT); /* more than the context */
    assert_int_equal(hone_session_length(s, 0), 10);
    hone_session_cancel(s);
    assert_int_equal(feed(s, 0, ids + 10, 4, &e), HONE_ECANCELED);
    assert_int_equal(hone_session_length(s, 0), 10);
    assert_int_equal(feed(s, 0, ids + 10, 14, &e), 0);
    memcpy(other, hone_session_logits(s, 0), 14 * VOCAB * sizeof(float));
    assert_int_equal(hone_session_rewind(s, 0, 0, &e), 0);
    assert_int_equal(feed(s, 0, ids, 10, &e), 0);
    assert_int_equal(feed(s, 0, ids + 10, 14, &e), 0);
    assert_memory_equal(other, hone_session_logits(s, 0), 14 * VOCAB * sizeof(float));
    assert_int_equal(hone_session_rewind(s, 0, 25, &e), HONE_EUSAGE);
    assert_int_equal(hone_session_rewind(s, 0, -1, &e), HONE_EUSAGE);
    hone_session_free(s);
    hone_model_close(m);
}

/* A fork goes on as its source would have; cells are shared, freed once, and reused in whatever order. */
static void test_fork(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model(archs[2]);
    struct hone_session *s = open_session(m, "kernel=ref", false, 3);
    struct hone_error e;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(feed(s, 0, ids, 12, &e), 0);
        assert_int_equal(hone_session_fork(s, 0, 2, &e), 0);
        assert_int_equal(feed(s, 0, ids + 12, 12, &e), 0);
        memcpy(base, hone_session_logits(s, 0), 12 * VOCAB * sizeof(float));
        assert_int_equal(feed(s, 1, ids + 5, 7, &e), 0); /* a stranger's cells in between */
        assert_int_equal(hone_session_rewind(s, 0, 3, &e), 0);
        assert_int_equal(feed(s, 2, ids + 12, 12, &e), 0);
        assert_memory_equal(base, hone_session_logits(s, 0), 12 * VOCAB * sizeof(float));
        for (int q = 0; q < 3; q++)
            assert_int_equal(hone_session_rewind(s, q, 0, &e), 0);
    }
    assert_int_equal(hone_session_fork(s, 0, 3, &e), HONE_EUSAGE);
    hone_session_free(s);
    hone_model_close(m);
}

static void test_params_refused(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model(archs[0]);
    struct hone_session *s;
    struct hone_error e;
    struct hone_session_params good = hone_session_defaults(), p;
#define REFUSED(change, code)                                       \
    p = good;                                                       \
    change;                                                         \
    assert_int_equal(hone_session_create(&s, m, &p, &e), code);     \
    assert_null(s)
    REFUSED(p.size = 8, HONE_EUSAGE);
    REFUSED(p.n_ctx = -1, HONE_EUSAGE);
    REFUSED(p.n_seq = 65, HONE_EUSAGE);
    REFUSED(p.n_batch = 0, HONE_EUSAGE);
    REFUSED(p.n_threads = 5000, HONE_EUSAGE);
    REFUSED(p.poll = 101, HONE_EUSAGE);
    REFUSED(p.type_k = "f99", HONE_EUSAGE);
    REFUSED(p.type_k = "i32", HONE_EUSAGE);
    REFUSED(p.type_v = "q4_K", HONE_EUSAGE); /* heads of 64 are no multiple of 256 */
    REFUSED(p.gates = "nonsense=1", HONE_EUSAGE);
    REFUSED(p.gates = "debug.spin=nan", HONE_EUSAGE);
    REFUSED(p.gates = "debug.spin=3x", HONE_EUSAGE);
    REFUSED(p.gates = "debug.spin=-1", HONE_EUSAGE);
    REFUSED(p.recipe = "/nonexistent/recipe", HONE_EINPUT);
    REFUSED((p.n_ctx = 1 << 30, p.n_seq = 1), HONE_ERESOURCE);
    assert_non_null(strstr(e.message, "enough for a context of"));
#undef REFUSED
    hone_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fusions_keep_bits), cmocka_unit_test(test_fast_fusions_keep_bits), cmocka_unit_test(test_fast_against_reference),
        cmocka_unit_test(test_declines),          cmocka_unit_test(test_failed_eval_leaves_nothing),
        cmocka_unit_test(test_fork),              cmocka_unit_test(test_params_refused),
        cmocka_unit_test(test_spin),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
