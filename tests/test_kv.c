/* test_kv.c: the matrix of KV formats on a small model: every pair runs on fast kernels, errs by what its formats cost and no
 * more, gives the same bits with the writes into the cache fused or not, and the same again after a fork, a rewind and a
 * restore. What a format or a context does not allow is refused before anything is allocated.
 *
 * The weights are f32, so that nothing but the cache is quantised. bench/kv_matrix.sh has the matrix of a real model. */
#include "tests/facts.h"

#include "base/cpu.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/kv.h"
#include "model/synth.h"

#include <unistd.h>

enum { VOCAB = 300, PREFILL = 20, DECODE = 6, N = PREFILL + DECODE, N_TYPES = 8 };

static const char *const types[N_TYPES] = {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"};
static char folder[64], model_path[96], file[96];
static struct hone_model *model;
static int32_t ids[N];
static float exact[N * VOCAB], got[N * VOCAB], again[N * VOCAB];
static double own_error[N_TYPES];

static struct hone_session *session(const char *k, const char *v, const char *gates, int32_t n_seq)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = 64;
    p.n_seq = n_seq;
    p.n_threads = 2;
    p.poll = 0;
    p.type_k = k;
    p.type_v = v;
    p.gates = gates;
    if (hone_session_create(&s, model, &p, &e))
        fail_msg("%s/%s, '%s': %s", k, v, gates ? gates : "", e.message);
    return s;
}

static void feed(struct hone_session *s, int32_t seq, size_t from, size_t n, float *out)
{
    session_feed(s, seq, ids + from, n, n);
    for (size_t i = 0; i < n; i++)
        memcpy(out + (from + i) * VOCAB, hone_session_logits(s, i), VOCAB * sizeof *out);
}

/* A prefill, then single tokens. */
static void feed_all(struct hone_session *s, int32_t seq, float *out)
{
    feed(s, seq, 0, PREFILL, out);
    for (size_t i = PREFILL; i < N; i++)
        feed(s, seq, i, 1, out);
}

static void logits_of(const char *k, const char *v, const char *gates, float *out)
{
    struct hone_session *s = session(k, v, gates, 1);
    feed_all(s, 0, out);
    hone_session_free(s);
}

/* What a format makes of normal values. */
static double error_of(const char *type)
{
    enum { ROW = 2048 };
    static float x[ROW], y[ROW];
    static uint8_t packed[ROW * 4];
    enum format_id id;
    struct rng r = rng_seed(7);
    assert_int_equal(format_by_name(type, &id), 0);
    for (int i = 0; i < ROW; i++)
        x[i] = (float)rng_normal(&r);
    format_get(id)->pack(x, packed, ROW);
    format_get(id)->unpack(packed, y, ROW);
    return nmse(y, x, ROW);
}

static bool on_fast_kernels(struct hone_session *s)
{
    const struct plan *p;
    struct hone_error e = {0};
    assert_done(session_plan(s, 1, 1, &p, &e), e);
    for (int i = 0; i < p->n_steps; i++)
        if (!strcmp(p->steps[i].kernel->variant, "ref"))
            return false;
    return true;
}

/* Values err in the output by their own error at most, for it is a mean of them; a key's error moves a score by as much of it,
 * and a weight by as much of itself. Both layers add theirs, and the heads of a model are no normal numbers: 4 times the sum of
 * both. What sums in f32 leave, with f32 keys and values, is below 1e-9. */
static void test_matrix(void **unused)
{
    (void)unused;
    bool fast = cpu_features() & CPU_AVX2;
    for (int k = 0; k < N_TYPES; k++)
        for (int v = 0; v < N_TYPES; v++) {
            struct hone_session *s = session(types[k], types[v], NULL, 1);
            feed_all(s, 0, got);
            if (fast && !on_fast_kernels(s))
                fail_msg("%s/%s: a node is left to the reference", types[k], types[v]);
            hone_session_free(s);
            double error = nmse(got, exact, N * VOCAB), own = own_error[k] + own_error[v];
            if (!(error <= 4 * own + 1e-9))
                fail_msg("%s/%s: logits err by %.3g, the formats by %.3g", types[k], types[v], error, own);
            if (!(error >= own / 1000)) /* another format than was asked for */
                fail_msg("%s/%s: logits err by %.3g alone, the formats by %.3g", types[k], types[v], error, own);
            logits_of(types[k], types[v], "fuse.rope_kv=off", again);
            if (memcmp(again, got, sizeof got))
                fail_msg("%s/%s: other bits where the writes are not fused", types[k], types[v]);
            logits_of(types[k], types[v], "kernel.attention=ref", again);
            if (!(nmse(again, got, N * VOCAB) <= own / 100 + 1e-9)) /* a key on the border of two codes may fall on either */
                fail_msg("%s/%s: unfused attention differs by %.3g", types[k], types[v], nmse(again, got, N * VOCAB));
        }
}

static void same(const char *how, int k, int v, size_t from)
{
    if (memcmp(again + from * VOCAB, got + from * VOCAB, (N - from) * VOCAB * sizeof *got))
        fail_msg("%s/%s: other bits %s", types[k], types[v], how);
}

static void decode(struct hone_session *s, int32_t seq)
{
    for (size_t i = PREFILL; i < N; i++)
        feed(s, seq, i, 1, again);
}

static void test_moves(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
#ifdef HONE_SANITIZED
    enum { STEP = 3 };
#else
    enum { STEP = 1 };
#endif
    for (int k = 0; k < N_TYPES; k++)
        for (int v = k % STEP; v < N_TYPES; v += STEP) {
            struct hone_session *s = session(types[k], types[v], NULL, 2);
            feed(s, 0, 0, PREFILL, got);
            assert_done(hone_session_save(s, file, &e), e);
            for (size_t i = PREFILL; i < N; i++)
                feed(s, 0, i, 1, got);
            assert_done(hone_session_fork(s, 0, 1, &e), e);
            assert_done(hone_session_rewind(s, 1, PREFILL, &e), e);
            decode(s, 1);
            same("on a fork", k, v, PREFILL);
            assert_done(hone_session_rewind(s, 0, PREFILL, &e), e);
            decode(s, 0);
            same("after a rewind", k, v, PREFILL);
            hone_session_free(s);
            s = session(types[k], types[v], NULL, 2);
            session_feed(s, 1, ids, 7, 1); /* other cells than those that were saved */
            for (int request = 0; request < 2; request++) {
                assert_done(hone_session_restore(s, file, &e), e);
                decode(s, 0);
                same("after a restore", k, v, PREFILL);
            }
            hone_session_free(s);
        }
}

/* ---- refusals */

static struct layer_memory layers[3] = {{.conv_rows = 3, .conv_channels = 40},
                                        {.n_kv_head = 2, .head_dim_k = 96, .head_dim_v = 80},
                                        {.n_kv_head = 2, .head_dim_k = 96, .head_dim_v = 80}};
static const struct model odd = {.n_layer = 3, .memory = layers};

static void test_heads(void **unused)
{
    (void)unused;
    struct kv kv;
    struct hone_error e = {0};
    assert_done(kv_create(&kv, &odd, 16, 1, FORMAT_Q4_0, FORMAT_BF16, 0, NULL, &e), e); /* heads of 96 are whole blocks */
    assert_null(kv.k[0]);
    kv_free(&kv);
    assert_int_equal(kv_create(&kv, &odd, 16, 1, FORMAT_F16, FORMAT_Q8_0, 0, NULL, &e), HONE_EUSAGE);
    assert_string_equal(
        e.message,
        "values cannot be kept as Q8_0 (-ctv): layer 1 has heads of 80, no multiple of its block of 32; f32, f16 and bf16 "
        "take heads of any size");
    e = (struct hone_error){0};
    layers[2].head_dim_k = 72;
    assert_int_equal(kv_create(&kv, &odd, 16, 1, FORMAT_Q5_1, FORMAT_F32, 0, NULL, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "keys cannot be kept as Q5_1 (-ctk): layer 2 has heads of 72"));
    layers[2].head_dim_k = 96;
}

static void test_names(void **unused)
{
    (void)unused;
    static const char *const none[] = {"f99", "", "q8", "q4_K", "q6_k", "iq4_nl", "mxfp4", "i32", "a8", "f16,f16", "f32 "};
    enum format_id id;
    struct hone_error e;
    for (int i = 0; i < N_TYPES; i++) {
        assert_int_equal(kv_format(types[i], "-ctk", &id, &e), 0);
        assert_non_null(strstr(kv_format_names(), types[i]));
    }
    assert_int_equal(kv_format("Q8_0", "-ctk", &id, &e), 0);
    assert_int_equal(id, FORMAT_Q8_0);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        e = (struct hone_error){0};
        assert_int_equal(kv_format(none[i], "-ctv", &id, &e), HONE_EUSAGE);
        assert_non_null(strstr(e.message, "-ctv"));
        assert_non_null(strstr(e.message, kv_format_names()));
    }
}

/* The context that an error says would fit; one of nine tenths of it is then allocated. */
static double context_that_fits(const struct model *m, enum format_id k, enum format_id v, size_t promised)
{
    struct kv kv;
    struct hone_error e = {0};
    assert_int_equal(kv_create(&kv, m, 1 << 30, 1, k, v, promised, NULL, &e), HONE_ERESOURCE);
    const char *says = strstr(e.message, "enough for a context of ");
    if (!says || !strstr(e.message, format_get(k)->name) || !strstr(e.message, format_get(v)->name))
        fail_msg("%s", e.message);
    double n = strtod(says + strlen("enough for a context of "), NULL);
    assert_true(n >= 0 && n < 1 << 30);
    if (n >= 2) {
        assert_done(kv_create(&kv, m, (int32_t)(0.9 * n), 1, k, v, promised, NULL, &e), e);
        kv_free(&kv);
    }
    return n;
}

static void test_context(void **unused)
{
    (void)unused;
    static struct layer_memory many[64];
    static const struct model large = {.n_layer = 64, .memory = many};
    for (int i = 0; i < 64; i++)
        many[i] = (struct layer_memory){.n_kv_head = 8, .head_dim_k = 128, .head_dim_v = 128};
    double wide = context_that_fits(&large, FORMAT_F32, FORMAT_F32, 0),
           half = context_that_fits(&large, FORMAT_F16, FORMAT_F16, 0);
    double mixed = context_that_fits(&large, FORMAT_Q8_0, FORMAT_Q4_0, 0),
           narrow = context_that_fits(&large, FORMAT_Q4_0, FORMAT_Q4_0, 0);
    /* By the bytes of a position; what is free changes from one question to the next. */
    assert_true(fabs(half / wide / 2 - 1) < 0.2);
    assert_true(fabs(mixed / wide / (8 / (34. / 32 + 18. / 32)) - 1) < 0.2);
    assert_true(fabs(narrow / wide / (4 / (18. / 32)) - 1) < 0.2);
    assert_true(context_that_fits(&large, FORMAT_Q4_0, FORMAT_Q4_0, (size_t)1 << 62) ==
                0); /* all of it is promised to others */
}

static int setup(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    snprintf(folder, sizeof folder, "/tmp/hone-kv-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(model_path, sizeof model_path, "%s/m.gguf", folder);
    snprintf(file, sizeof file, "%s/s.session", folder);
    struct synth_params p = {.shape = "smollm2-135m", .type = "F32", .layers = 2, .width = 128, .vocab = VOCAB, .seed = 11};
    if (model_synth(model_path, &p, NULL, NULL, &e) || hone_model_open(&model, model_path, &e)) {
        print_message("%s\n", e.message);
        return -1;
    }
    for (int i = 0; i < N; i++)
        ids[i] = (i * 73 + i / 7) % VOCAB;
    for (int i = 0; i < N_TYPES; i++)
        own_error[i] = error_of(types[i]);
    struct hone_session *s = session_reference(model, 64, 1, 64, 2);
    feed_all(s, 0, exact);
    hone_session_free(s);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    hone_model_close(model);
    unlink(model_path);
    unlink(file);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix), cmocka_unit_test(test_moves),   cmocka_unit_test(test_heads),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_context),
    };
    return cmocka_run_group_tests_name("KV formats", tests, setup, teardown);
}
