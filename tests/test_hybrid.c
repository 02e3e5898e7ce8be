/* test_hybrid.c: models with a recurrent state, beyond what test_archs.c holds of each: long sequences however they are cut,
 * what a session promises of forks, failures and going back, which layers are recurrent, and blocks that take no part.
 *
 * The models are synthetic ones of qwen35's shapes, small, in files of their own. */
#include "tests/facts.h"

#include "engine/engine.h"
#include "engine/states.h"
#include "model/gguf.h"
#include "model/synth.h"

#include <unistd.h>

enum { N = 200, VOCAB = 300, LAYERS = 4 };

static char folder[200], path[220], other[220];
static struct hone_model *model;
static int32_t ids[N];

static struct hone_model *open_ok(const char *file)
{
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    assert_done(hone_model_open(&m, file, &e), e);
    return m;
}

static struct hone_session *session(const struct hone_model *m, const char *gates, int32_t n_seq, int32_t n_batch)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = 256;
    p.n_seq = n_seq;
    p.n_batch = n_batch;
    p.n_threads = 2;
    p.poll = 0;
    p.gates = gates;
    p.type_k = p.type_v = "f32";
    assert_done(hone_session_create(&s, m, &p, &e), e);
    return s;
}

/* The logits of `n` tokens of seq, in steps of `chunk`. */
static void feed(struct hone_session *s, int32_t seq, const int32_t *tokens, size_t n, size_t chunk, float *out)
{
    for (size_t at = 0; at < n; at += chunk) {
        size_t k = n - at < chunk ? n - at : chunk;
        session_feed(s, seq, tokens + at, k, k);
        for (size_t i = 0; i < k && out; i++)
            memcpy(out + (at + i) * VOCAB, hone_session_logits(s, i), VOCAB * sizeof *out);
    }
}

static float once[N * VOCAB], again[N * VOCAB];

static void hold(const char *how, const float *got, const float *want, size_t n, double bound)
{
    double error = nmse(got, want, n * VOCAB);
    if (!(error <= bound))
        fail_msg("%s: normalised mean squared error %.3g, allowed is %.3g", how, error, bound);
}

/* 200 tokens at once, in steps of 1, 7, 24 and 64, and cut by a batch limit; on references and on fast kernels, fused and not. */
static void test_long(void **unused)
{
    (void)unused;
    static const struct {
        const char *name, *gates;
        double bound; /* references round a state once a step, fast kernels at every token or chunk */
    } ways[] = {{"references", "kernel=ref", 1e-11}, {"fast", "", 1e-9}, {"fast, not fused", "fuse=off", 1e-9}};
    static const size_t chunks[] = {1, 7, 24, 64};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct hone_session *s = session(model, ways[w].gates, 1, 512);
        feed(s, 0, ids, N, N, once);
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            char how[64];
            struct hone_error e = {0};
            snprintf(how, sizeof how, "%s, steps of %zu", ways[w].name, chunks[c]);
            assert_done(hone_session_rewind(s, 0, 0, &e), e);
            feed(s, 0, ids, N, chunks[c], again);
            hold(how, again, once, N, ways[w].bound);
        }
        hone_session_free(s);
        s = session(model, ways[w].gates, 1, 33);
        feed(s, 0, ids, N, N, again);
        hold("a batch limit of 33", again, once, N, ways[w].bound);
        hone_session_free(s);
    }
}

/* Fast kernels against the references, weights in f32 so that nothing is quantised. */
static void test_fast_against_reference(void **unused)
{
    (void)unused;
    struct hone_session *ref = session(model, "kernel=ref", 1, 512), *fast = session(model, "", 1, 512);
    feed(ref, 0, ids, N, N, once);
    feed(fast, 0, ids, N, 50, again);
    hold("fast", again, once, N, 1e-9);
    hone_session_free(ref);
    hone_session_free(fast);
}

static bool refused(struct hone_session *s, int32_t seq, int32_t length, const char *says)
{
    struct hone_error e = {0};
    int32_t before = hone_session_length(s, seq);
    int rc = hone_session_rewind(s, seq, length, &e);
    if (rc)
        assert_int_equal(hone_session_length(s, seq), before);
    if (rc && !strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
    return rc == HONE_EUSAGE;
}

/* Back to where an eval ended, with the same bits behind it; elsewhere a refusal that says where. */
static void test_rewind(void **unused)
{
    (void)unused;
    struct hone_session *s = session(model, "", 1, 64);
    struct hone_error e = {0};
    feed(s, 0, ids, 20, 20, NULL);
    feed(s, 0, ids + 20, 30, 30, once);
    feed(s, 0, ids + 50, 5, 1, once + 30 * VOCAB);
    assert_true(refused(s, 0, 30, "0, 20,"));
    assert_true(refused(s, 0, 49, "55, not to 49"));
    assert_true(refused(s, 0, 56, "cannot go back"));
    assert_int_equal(session_rewind_reach(s, 0, 49), 20);
    assert_int_equal(session_rewind_reach(s, 0, 19), 0);
    assert_done(hone_session_rewind(s, 0, 55, &e), e);
    assert_done(hone_session_rewind(s, 0, 54, &e), e); /* the last step, as tools take it back */
    feed(s, 0, ids + 54, 1, 1, again);
    assert_memory_equal(again, once + 34 * VOCAB, VOCAB * sizeof(float));
    assert_done(hone_session_rewind(s, 0, 20, &e), e);
    feed(s, 0, ids + 20, 30, 30, again);
    assert_memory_equal(again, once, 30 * VOCAB * sizeof(float));
    for (int32_t i = 50; i < 150; i++) /* an answer may be long */
        feed(s, 0, ids + i, 1, 1, NULL);
    assert_done(hone_session_rewind(s, 0, 20, &e), e);
    feed(s, 0, ids + 20, 30, 30, again);
    assert_memory_equal(again, once, 30 * VOCAB * sizeof(float));
    hone_session_free(s);
}

/* A failed eval leaves the state as it was, though some of its steps ran. */
static int cancel_late(void *user, const struct plan *p, int step)
{
    int *left = user;
    (void)p;
    (void)step;
    return --*left == 0 ? HONE_ECANCELED : 0;
}

static void test_failures(void **unused)
{
    (void)unused;
    struct hone_session *s = session(model, "", 2, 16);
    struct hone_error e = {0};
    feed(s, 0, ids, 10, 10, NULL);
    feed(s, 1, ids + 90, 10, 10, NULL);
    feed(s, 0, ids + 10, 60, 60, once);
    feed(s, 1, ids + 100, 20, 20, once + 60 * VOCAB);
    assert_done(hone_session_rewind(s, 0, 10, &e), e);
    assert_done(hone_session_rewind(s, 1, 10, &e), e);
    const struct plan *plan;
    assert_done(session_plan(s, 16, 16, &plan, &e), e);
    int steps = plan->n_steps;
    for (int after = 1; after < 4 * steps; after += 1 + steps / 3) { /* in the first chunk, between chunks, in the last */
        struct hone_token tokens[64];
        for (int i = 0; i < 64; i++)
            tokens[i] = (struct hone_token){ids[10 + i], i % 3 == 2, true};
        int left = after;
        struct observer late = {&left, cancel_late, NULL};
        session_observe(s, &late);
        assert_int_equal(hone_session_eval(s, tokens, 64, &e), HONE_ECANCELED);
        session_observe(s, NULL);
        assert_int_equal(hone_session_length(s, 0), 10);
        assert_int_equal(hone_session_length(s, 1), 10);
    }
    feed(s, 0, ids + 10, 60, 60, again);
    assert_memory_equal(again, once, 60 * VOCAB * sizeof(float));
    feed(s, 1, ids + 100, 20, 20, again);
    assert_memory_equal(again, once + 60 * VOCAB, 20 * VOCAB * sizeof(float));
    hone_session_free(s);
}

/* Forks go on as their source would, each by itself, and can go back as far. */
static void test_forks(void **unused)
{
    (void)unused;
    struct hone_session *s = session(model, "", 3, 64);
    struct hone_error e = {0};
    feed(s, 0, ids, 12, 12, NULL);
    feed(s, 0, ids + 12, 8, 8, NULL);
    for (int32_t to = 1; to < 3; to++)
        assert_done(hone_session_fork(s, 0, to, &e), e);
    feed(s, 0, ids + 20, 10, 10, once);
    feed(s, 2, ids + 60, 10, 10, NULL);
    feed(s, 1, ids + 20, 10, 10, again);
    assert_memory_equal(again, once, 10 * VOCAB * sizeof(float));
    for (int32_t q = 0; q < 3; q++) {
        assert_done(hone_session_rewind(s, q, 12, &e), e);
        feed(s, q, ids + 12, 8, 8, q ? again : once);
    }
    assert_memory_equal(again, once, 8 * VOCAB * sizeof(float));
    hone_session_free(s);
}

/* A step with tokens of several sequences, of different lengths, some without any. */
static void test_sequences(void **unused)
{
    (void)unused;
    struct hone_session *s = session(model, "", 4, 64);
    struct hone_error e = {0};
    struct hone_token step[30];
    int32_t next[4] = {0, 50, 100, 150}, counts[4] = {0};
    feed(s, 1, ids + 50, 5, 5, NULL);
    next[1] += 5;
    for (int i = 0; i < 30; i++) {
        int32_t q = i % 5 == 0 ? 2 : i % 2; /* of sequence 3 nothing */
        step[i] = (struct hone_token){ids[next[q]++], q, true};
        counts[q]++;
    }
    assert_done(hone_session_eval(s, step, 30, &e), e);
    for (int i = 0; i < 30; i++)
        memcpy(once + i * VOCAB, hone_session_logits(s, (size_t)i), VOCAB * sizeof(float));
    for (int32_t q = 0; q < 3; q++) {
        struct hone_session *alone = session(model, "", 1, 64);
        if (q == 1)
            feed(alone, 0, ids + 50, 5, 5, NULL);
        feed(alone, 0, ids + next[q] - counts[q], (size_t)counts[q], (size_t)counts[q], again);
        for (int i = 0, k = 0; i < 30; i++)
            if (step[i].seq == q)
                hold("a sequence among others", once + i * VOCAB, again + k++ * VOCAB, 1, 1e-10);
        hone_session_free(alone);
    }
    hone_session_free(s);
}

/* ---- files */

/* A copy of the file in which the tensors of two layers have changed places, with keys of one's own. */
struct change {
    int32_t swap[2];          /* layers; equal: none */
    const uint8_t *recurrent; /* by layer; NULL: no such key */
    int n_recurrent;
    int32_t extra; /* blocks that predict further tokens, made of the last layer's tensors */
    const char *key;          /* has this value instead of its own; NULL: none */
    int32_t value;
};

static void new_name(char *to, size_t size, const char *name, const struct change *c)
{
    int layer, used = 0;
    snprintf(to, size, "%s", name);
    if (sscanf(name, "blk.%d.%n", &layer, &used) != 1 || !used)
        return;
    layer = layer == c->swap[0] ? c->swap[1] : layer == c->swap[1] ? c->swap[0] : layer;
    snprintf(to, size, "blk.%d.%s", layer, name + used);
}

static bool key_is(const struct gguf_value *v, const char *key)
{
    return v->key.size == strlen(key) && !memcmp(v->key.data, key, v->key.size);
}

static void rewrite(const char *from, const char *to, const struct change *c)
{
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    struct hone_error e = {0};
    char name[96];
    assert_done(gguf_open(&g, from, &e), e);
    assert_done(gguf_writer_create(&w, to, &e), e);
    for (int64_t i = 0; i < g->n_values; i++)
        if (!key_is(&g->values[i], "qwen35.block_count") && !(c->key && key_is(&g->values[i], c->key)))
            gguf_write_value(w, NULL, &g->values[i]);
    if (c->key)
        gguf_write_value(w, c->key, &(struct gguf_value){.type = GGUF_I32, .n = 1, .data = &c->value});
    gguf_write_u32(w, "qwen35.block_count", LAYERS + (uint32_t)c->extra);
    if (c->recurrent)
        gguf_write_array(w, "qwen35.attention.recurrent_layers", GGUF_BOOL, c->recurrent, (uint64_t)c->n_recurrent);
    if (c->extra)
        gguf_write_u32(w, "qwen35.nextn_predict_layers", (uint32_t)c->extra);
    char last[16];
    int n_last = snprintf(last, sizeof last, "blk.%d.", LAYERS - 1);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensors[i];
            new_name(name, sizeof name, t->cname, c);
            if (!pass)
                gguf_write_tensor(w, name, t->format, t->n_dims, t->ne);
            else
                assert_done(gguf_write_data(w, t->data, t->bytes, &e), e);
        }
        for (int x = 0; x < c->extra; x++)
            for (int64_t i = 0; i < g->n_tensors; i++) {
                const struct gguf_tensor *t = &g->tensors[i];
                if (strncmp(t->cname, last, (size_t)n_last))
                    continue;
                snprintf(name, sizeof name, "blk.%d.%s%s", LAYERS + x, strstr(t->cname, "ffn_up") ? "nextn." : "",
                         t->cname + n_last);
                if (!pass)
                    gguf_write_tensor(w, name, t->format, t->n_dims, t->ne);
                else
                    assert_done(gguf_write_data(w, t->data, t->bytes, &e), e);
            }
    }
    assert_done(gguf_writer_close(w, true, &e), e);
    gguf_close(g);
}

static void test_recurrent_layers(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    struct hone_model *m = NULL;
    static const uint8_t plain[LAYERS] = {1, 1, 1, 0}, swapped[LAYERS] = {1, 0, 1, 1}, odd[LAYERS] = {1, 1, 2, 0};
    struct hone_session *s = session(model, "", 1, 64);
    feed(s, 0, ids, 10, 10, once);
    hone_session_free(s);
    rewrite(path, other, &(struct change){.recurrent = plain, .n_recurrent = LAYERS});
    m = open_ok(other);
    s = session(m, "", 1, 64);
    feed(s, 0, ids, 10, 10, again);
    assert_memory_equal(once, again, 10 * VOCAB * sizeof(float));
    hone_session_free(s);
    hone_model_close(m);
    /* The full layer is the second: without the key its tensors are missing, with it the model is another, and runs. */
    rewrite(path, other, &(struct change){.swap = {1, 3}});
    assert_int_equal(hone_model_open(&m, other, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "missing"));
    rewrite(path, other, &(struct change){.swap = {1, 3}, .recurrent = swapped, .n_recurrent = LAYERS});
    m = open_ok(other);
    assert_int_equal(m->model->memory[1].n_kv_head > 0, 1);
    assert_int_equal(m->model->memory[3].n_state_head > 0, 1);
    s = session(m, "kernel=ref", 1, 64);
    feed(s, 0, ids, 10, 10, once);
    hone_session_free(s);
    s = session(m, "", 1, 64);
    feed(s, 0, ids, 10, 3, again);
    hold("the second layer in full", again, once, 10, 1e-9);
    hone_session_free(s);
    hone_model_close(m);
    /* Hostile ones. */
    rewrite(path, other, &(struct change){.recurrent = plain, .n_recurrent = LAYERS - 1});
    assert_int_equal(hone_model_open(&m, other, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "too few for layer 3"));
    rewrite(path, other, &(struct change){.recurrent = odd, .n_recurrent = LAYERS});
    assert_int_equal(hone_model_open(&m, other, &e), HONE_EINPUT);
}

/* Numbers of a file that do not go together, or out of their range: an error that names the key or the tensor. */
static void test_hostile_keys(void **unused)
{
    (void)unused;
    static const struct {
        const char *key;
        int32_t value;
        const char *says;
    } cases[] = {
        {"qwen35.ssm.conv_kernel", 1, "qwen35.ssm.conv_kernel"},
        {"qwen35.ssm.conv_kernel", 5, "ssm_conv1d.weight"},
        {"qwen35.ssm.conv_kernel", -4, "is -4"},
        {"qwen35.ssm.inner_size", 0, "qwen35.ssm.inner_size"},
        {"qwen35.ssm.inner_size", 383, "inner size of 383"},
        {"qwen35.ssm.inner_size", 1 << 30, "qwen35.ssm.inner_size"},
        {"qwen35.ssm.state_size", 64, "a state of 64"},
        {"qwen35.ssm.state_size", 1 << 30, "qwen35.ssm.state_size"},
        {"qwen35.ssm.time_step_rank", 0, "qwen35.ssm.time_step_rank"},
        {"qwen35.ssm.time_step_rank", 6, "6 heads of V"},
        {"qwen35.ssm.group_count", 2, "2 of K"},
        {"qwen35.ssm.group_count", 3, "attn_qkv.weight"},
        {"qwen35.full_attention_interval", 0, "full_attention_interval"},
        {"qwen35.full_attention_interval", 3, "missing"},
        {"qwen35.attention.value_length", 128, "one size"},
        {"qwen35.rope.dimension_count", 512, "rope.dimension_count"},
        {"qwen35.attention.head_count_kv", 7, "not a multiple"},
        {"qwen35.nextn_predict_layers", LAYERS, "nextn_predict_layers"},
        {"qwen35.nextn_predict_layers", -1, "nextn_predict_layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hone_error e = {0};
        struct hone_model *m = NULL;
        rewrite(path, other, &(struct change){.key = cases[i].key, .value = cases[i].value});
        int rc = hone_model_open(&m, other, &e);
        if (rc != HONE_EINPUT || !strstr(e.message, cases[i].says))
            fail_msg("%s = %d: %d, '%s' does not say '%s'", cases[i].key, cases[i].value, rc, e.message, cases[i].says);
    }
}

static void test_extra_block(void **unused)
{
    (void)unused;
    struct hone_session *s = session(model, "", 1, 64);
    feed(s, 0, ids, 10, 10, once);
    hone_session_free(s);
    assert_string_equal(model->model->left_out, "");
    for (int extra = 1; extra <= 2; extra++) {
        rewrite(path, other, &(struct change){.extra = extra});
        struct hone_model *m = open_ok(other);
        assert_int_equal(m->model->n_layer, LAYERS);
        assert_int_equal(m->model->n_weights, model->model->n_weights);
        assert_non_null(strstr(m->model->left_out, "block 4, which predicts further tokens (nextn)"));
        assert_true((strstr(m->model->left_out, "block 5") != NULL) == (extra == 2));
        s = session(m, "", 1, 64);
        feed(s, 0, ids, 10, 10, again);
        assert_memory_equal(once, again, 10 * VOCAB * sizeof(float));
        hone_session_free(s);
        hone_model_close(m);
    }
}

static void test_memory(void **unused)
{
    (void)unused;
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    size_t one = states_slot_bytes(model->model);
    p.n_seq = 3;
    p.n_snapshots = 2;
    p.n_ctx = 64;
    assert_done(hone_session_create(&s, model, &p, &e), e);
    assert_true(session_state_bytes(s) >= 3 * 4 * one && session_state_bytes(s) < 3 * 4 * one + 4096);
    hone_session_free(s);
    p.n_snapshots = 0;
    assert_int_equal(hone_session_create(&s, model, &p, &e), HONE_EUSAGE);
    p.n_snapshots = STATES_MAX_SNAPSHOTS + 1;
    assert_int_equal(hone_session_create(&s, model, &p, &e), HONE_EUSAGE);
}

static int setup(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/hone-hybrid-XXXXXX", tmp && strlen(tmp) < 100 ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    struct synth_params p = {.shape = "qwen3.6-27b", .type = "F32", .layers = LAYERS, .width = 320, .vocab = VOCAB, .seed = 11};
    if (model_synth(path, &p, NULL, NULL, &e) || hone_model_open(&model, path, &e)) {
        print_message("%s\n", e.message);
        return -1;
    }
    for (int i = 0; i < N; i++)
        ids[i] = (i * 73 + i / 7) % VOCAB;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    hone_model_close(model);
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),        cmocka_unit_test(test_fast_against_reference),
        cmocka_unit_test(test_rewind),      cmocka_unit_test(test_failures),
        cmocka_unit_test(test_forks),       cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_hostile_keys), cmocka_unit_test(test_extra_block),
    };
    return cmocka_run_group_tests_name("hybrid", tests, setup, teardown);
}
