/* test_verify.c: the parts of hone verify: what a degenerate text is, what tells tokenizers apart, where two lists of nodes
 * part, which class follows from what, jobs that are wrong in every field. What needs processes is in verify_test.sh. */
#include "tests/facts.h"

#include "engine/engine.h"
#include "lab/degenerate.h"
#include "lab/eval_job.h"
#include "lab/verify.h"
#include "lab/vocabulary.h"
#include "model/gguf.h"
#include "model/synth.h"

#include <unistd.h>

static char folder[64], tiny[96], larger[96];

static int make_folder(void **state)
{
    struct hone_error e = {0};
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hone-verify-test-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(tiny, sizeof tiny, "%s/tiny.gguf", folder);
    snprintf(larger, sizeof larger, "%s/larger.gguf", folder);
    struct synth_params p = {.shape = "smollm2-135m", .type = "Q8_0", .layers = 2, .width = 64, .vocab = 300, .seed = 3}, q = p;
    q.vocab = 310;
    return model_synth(tiny, &p, NULL, NULL, &e) || model_synth(larger, &q, NULL, NULL, &e);
}

static int remove_folder(void **state)
{
    (void)state;
    remove(tiny);
    remove(larger);
    return rmdir(folder);
}

static struct hone_model *open_model(const char *path)
{
    struct hone_model *m;
    struct hone_error e = {0};
    assert_done(hone_model_open(&m, path, &e), e);
    return m;
}

/* ---- texts */

static struct degenerate look(const struct hone_model *m, const int32_t *ids, size_t n)
{
    struct degenerate d;
    struct hone_error e = {0};
    assert_done(degenerate_find(&d, m->model->tokenizer, ids, n, &e), e);
    return d;
}

static void test_degenerate(void **state)
{
    struct hone_model *m = open_model(tiny);
    const struct tokenizer *t = m->model->tokenizer;
    int32_t ids[64], exclamation = tokenizer_find(t, "!", 1);
    char text[100];
    (void)state;
    assert_true(exclamation >= 0 && tokenizer_eos(t) >= 0);
    for (int i = 0; i < 64; i++)
        ids[i] = 40 + i % 60; /* no short loop */
    assert_int_equal(look(m, ids, 64).kind, NOT_DEGENERATE);
    ids[16] = tokenizer_eos(t); /* an end after a quarter is an end like any */
    assert_int_equal(look(m, ids, 64).kind, NOT_DEGENERATE);
    ids[15] = tokenizer_eos(t);
    struct degenerate d = look(m, ids, 64);
    assert_int_equal(d.kind, ENDS_EARLY);
    assert_int_equal(d.at, 15);
    for (int period = 2; period <= 9; period++) { /* behind 12 tokens of text, then behind 20 */
        for (int start = 12; start <= 20; start += 8) {
            for (int i = 0; i < 64; i++)
                ids[i] = i < start ? 100 + i : 60 + 7 * ((i - start) % period);
            d = look(m, ids, 64);
            assert_int_equal(d.kind, period <= 8 && start == 12 ? SHORT_LOOP : NOT_DEGENERATE);
            if (d.kind)
                assert_true(d.at == 12 && (int)d.period == period);
        }
    }
    for (int i = 0; i < 64; i++)
        ids[i] = i < 30 ? 100 + i : exclamation;
    d = look(m, ids, 64);
    assert_int_equal(d.kind, ONE_CHARACTER);
    assert_string_equal(degenerate_text(&d, text, sizeof text), "is one character for more than half of it");
    hone_model_close(m);
}

/* ---- tokenizers */

static void test_vocabulary(void **state)
{
    struct hone_model *a = open_model(tiny), *b = open_model(larger);
    const struct gguf *x = a->model->gguf, *y = b->model->gguf;
    json_t *minor, *none = vocabulary_differences(x, x, &minor), *some = vocabulary_differences(x, y, NULL);
    (void)state;
    assert_int_equal(json_array_size(none), 0);
    assert_int_equal(json_array_size(minor), 0);
    assert_true(json_array_size(some) >= 3);
    assert_non_null(strstr(json_string_value(json_array_get(some, 0)), "tokenizer.ggml.tokens: 300 items in A, 310 in B"));
    assert_true(vocabulary_hash(x) == vocabulary_hash(x));
    assert_true(vocabulary_hash(x) != vocabulary_hash(y));
    json_decref(none);
    json_decref(some);
    json_decref(minor);
    hone_model_close(a);
    hone_model_close(b);
}

/* ---- nodes */

static json_t *node(const char *tensor, const char *op, const char *src, const char *format, const char *hash)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:[s], s:s, s:b}", "tensor", tensor, "op", op, "kernel", "cpu_some_kernel",
                     "format", format, "shape", "F32 [4, 2]", "src", src, "hash", hash, "file", 1);
}

/* Values of n nodes, eight each; value `wrong` of node `at` is off by `off`. */
static struct gguf *values(const char *name, int n, int at, int wrong, float off)
{
    char path[128];
    struct gguf_writer *w;
    struct gguf *g;
    struct hone_error e = {0};
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    assert_done(gguf_writer_create(&w, path, &e), e);
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        gguf_write_tensor(w, number, FORMAT_F32, 2, (int64_t[]){4, 2});
    }
    for (int i = 0; i < n; i++) {
        float x[8];
        for (int j = 0; j < 8; j++)
            x[j] = (float)(1 + j) * (i + 1) + (i >= at && j == wrong ? off : 0);
        assert_done(gguf_write_data(w, x, sizeof x, &e), e);
    }
    assert_done(gguf_writer_close(w, true, &e), e);
    assert_done(gguf_open(&g, path, &e), e);
    remove(path);
    return g;
}

static struct verify_nodes compare(json_t *a, json_t *b, float off)
{
    struct verify_nodes n = {0};
    int n_a = (int)json_array_size(a), n_b = (int)json_array_size(b);
    struct gguf *x = values("a", n_a, n_a, 0, 0), *y = values("b", n_b, 1, 6, off);
    verify_nodes_compare(&n, &(struct node_lists){.a = a, .b = b, .file_a = x, .file_b = y});
    gguf_close(x);
    gguf_close(y);
    json_decref(a);
    json_decref(b);
    return n;
}

static void test_nodes(void **state)
{
    (void)state;
    /* One kernel is wrong; what follows is off too, and no fault. */
    struct verify_nodes n = compare(json_pack("[o,o,o]", node("x", "get_rows", "w", "F32", "1"),
                                              node("y", "add", "x", "F32", "2"), node("z", "mul", "y", "F32", "3")),
                                    json_pack("[o,o,o]", node("x", "get_rows", "w", "F32", "1"),
                                              node("y", "add", "x", "F32", "4"), node("z", "mul", "y", "F32", "5")),
                                    0.1f);
    assert_int_equal(n.n_common, 3);
    assert_int_equal(n.n_different, 2);
    assert_string_equal(n.first.tensor, "y");
    assert_string_equal(n.beyond.tensor, "y");
    assert_true(n.first.same_inputs && n.first.row == 1 && n.first.column == 2);
    assert_true(fabs(n.first.want - 14) < 1e-6 && fabs(n.first.got - 14.1) < 1e-6);
    /* The same in rounding. */
    n = compare(json_pack("[o,o]", node("x", "get_rows", "w", "F32", "1"), node("y", "add", "x", "F32", "2")),
                json_pack("[o,o]", node("x", "get_rows", "w", "F32", "1"), node("y", "add", "x", "F32", "4")), 1e-6f);
    assert_string_equal(n.first.tensor, "y");
    assert_true(n.first.same_inputs && !n.beyond.tensor[0]);
    /* B read an activation in 8 bits that A does not have: no kernel's fault. */
    n = compare(json_pack("[o,o]", node("x", "get_rows", "w", "F32", "1"), node("y", "mul_mat", "x", "F32", "2")),
                json_pack("[o,o,o]", node("x", "get_rows", "w", "F32", "1"), node("x.A8", "quantize", "x", "A8", "7"),
                          node("y", "mul_mat", "x.A8", "F32", "4")),
                0.1f);
    assert_string_equal(n.first.tensor, "y");
    assert_false(n.first.same_inputs);
    assert_int_equal(n.n_common, 2);
    /* The cache has another format: another question. */
    n = compare(json_pack("[o,o]", node("x", "get_rows", "w", "F32", "1"), node("k_write", "kv_write", "x", "F16", "2")),
                json_pack("[o,o]", node("x", "get_rows", "w", "F32", "1"), node("k_write", "kv_write", "x", "Q4_0", "4")),
                0.1f);
    assert_string_equal(n.first.tensor, "k_write");
    assert_false(n.first.same_inputs);
    /* B has a part of the product, as one of several devices, and the sum of all parts under another name: what both have whole is compared. */
    json_t *part = node("y", "mul_mat", "x", "F32", "4");
    json_object_set_new(part, "part", json_true());
    n = compare(json_pack("[o,o,o]", node("x", "get_rows", "w", "F32", "1"), node("y", "mul_mat", "x", "F32", "2"),
                          node("z", "add", "y", "F32", "3")),
                json_pack("[o,o,o]", node("x", "get_rows", "w", "F32", "1"), part, node("z", "add", "y.sum", "F32", "5")), 0.1f);
    assert_string_equal(n.first.tensor, "z");
    assert_int_equal(n.n_common, 2);
    assert_int_equal(n.n_different, 1);
    assert_false(n.first.same_inputs);
    /* Nothing in common, nothing different. */
    n = compare(json_pack("[o]", node("x", "get_rows", "w", "F32", "1")),
                json_pack("[o]", node("y", "get_rows", "w", "F32", "1")), 0);
    assert_true(!n.n_common && !n.first.tensor[0]);
}

/* The node reads a weight that the other model has in another format. */
static void test_nodes_of_other_weights(void **state)
{
    struct hone_model *a = open_model(tiny), *b = open_model(larger);
    struct verify_nodes n = {0};
    json_t *x = json_pack("[o]", node("x", "get_rows", "token_embd.weight", "F32", "1")),
           *y = json_pack("[o]", node("x", "get_rows", "token_embd.weight", "F32", "2"));
    struct node_lists l = {.a = x, .b = y, .model_a = a->model->gguf, .model_b = a->model->gguf};
    (void)state;
    verify_nodes_compare(&n, &l);
    assert_true(n.first.same_inputs);
    l.model_b = b->model->gguf;
    verify_nodes_compare(&n, &l);
    assert_false(n.first.same_inputs);
    json_decref(x);
    json_decref(y);
    hone_model_close(a);
    hone_model_close(b);
}

/* ---- the verdict */

enum { TEXTS = 4, GREEDY = 8, WORDS = 50 };

struct bench {
    struct verify v;
    struct hone_model *m;
    int32_t ids[TEXTS][2][GREEDY];
};

/* A verification that went well: four texts, 4 * 8 positions; B's logits are A's and `noise`. */
static void bench_open(struct bench *b, float noise)
{
    struct verify *v = &b->v;
    struct hone_error e = {0};
    memset(b, 0, sizeof *b);
    b->m = open_model(tiny);
    v->o = (struct verify_options){.n_texts = TEXTS, .n_greedy = GREEDY, .kl_bound = 0.01, .loss_bound = 0.02};
    v->texts = calloc(TEXTS, sizeof *v->texts);
    assert_non_null(v->texts);
    for (int i = 0; i < 2; i++)
        v->side[i] = (struct verify_side){
            .model = b->m, .has_jobs = true, .steady = true, .shadow_faults = -1, .type_k = "F16", .type_v = "F16"};
    for (int i = 0; i < TEXTS; i++) {
        v->texts[i].first_difference = GREEDY;
        v->texts[i].greedy[0] = b->ids[i][0];
        v->texts[i].greedy[1] = b->ids[i][1];
    }
    v->arrays_equal = TEXTS;
    v->tokenizer = json_array();
    v->weights = json_array();
    v->compared = true;
    v->logits.n_vocab = WORDS;
    for (int p = 0; p < TEXTS * GREEDY; p++) {
        float x[WORDS], y[WORDS];
        for (int i = 0; i < WORDS; i++) {
            x[i] = (float)((i * 7 + p) % WORDS) * 0.2f;
            y[i] = x[i] + noise * (float)((i * 13 + p) % 5 - 2);
        }
        assert_done(comparison_add(&v->logits, x, y, &e), e);
    }
    comparison_judge(&v->logits, v->o.kl_bound);
}

static enum verify_class bench_close(struct bench *b, const char *wanted)
{
    struct verify *v = &b->v;
    verify_judge(v);
    enum verify_class c = v->verdict;
    assert_true((c == VERIFY_DIFFERENT) == (v->n_reasons > 0));
    if (wanted) {
        bool found = false;
        for (int i = 0; i < v->n_reasons; i++)
            found |= strstr(v->reasons[i], wanted) != NULL;
        for (int i = 0; i < v->n_notes; i++)
            found |= strstr(v->notes[i], wanted) != NULL;
        if (!found)
            fail_msg("nothing says '%s'; the first reason is '%s'", wanted, v->reasons[0]);
    }
    comparison_free(&v->logits);
    json_decref(v->tokenizer);
    json_decref(v->weights);
    free(v->texts);
    hone_model_close(b->m);
    return c;
}

static void test_classes(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 0);
    assert_int_equal(bench_close(&b, NULL), VERIFY_BIT_IDENTICAL);
    bench_open(&b, 1e-4f); /* other bits, nodes not looked at */
    assert_int_equal(bench_close(&b, NULL), VERIFY_TOKEN_IDENTICAL);
    bench_open(&b, 1e-4f);
    b.v.nodes = (struct verify_nodes){.looked = true, .first = {.tensor = "x", .same_inputs = true}};
    assert_int_equal(bench_close(&b, NULL), VERIFY_WITHIN_TOLERANCE);
    bench_open(&b, 1e-4f); /* what is beyond its tolerance comes from elsewhere */
    b.v.nodes = (struct verify_nodes){.looked = true, .first = {.tensor = "x", .same_inputs = true}, .beyond = {.tensor = "y"}};
    assert_int_equal(bench_close(&b, NULL), VERIFY_TOKEN_IDENTICAL);
    bench_open(&b, 1e-4f); /* texts that prove nothing */
    for (int i = 0; i < 3; i++)
        b.v.texts[i].degenerate[1] = (struct degenerate){.kind = SHORT_LOOP, .period = 2};
    b.v.n_degenerate = 3;
    assert_int_equal(bench_close(&b, "3 of 4 texts are degenerate"), VERIFY_QUALITY_EQUAL);
    bench_open(&b, 1e-4f); /* a greedy text that left at a near-tie */
    b.v.texts[2].first_difference = 4;
    b.v.texts[2].near_tie = true;
    b.v.arrays_equal--;
    assert_int_equal(bench_close(&b, NULL), VERIFY_QUALITY_EQUAL);
    enum verify_class c;
    assert_int_equal(verify_class_find("within-tolerance", &c), 0);
    assert_int_equal(c, VERIFY_WITHIN_TOLERANCE);
    assert_int_equal(verify_class_find("equal", &c), -1);
}

static void test_reasons(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1.5f);
    assert_int_equal(bench_close(&b, "another top token"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    b.v.loss[1] = 0.03;
    assert_int_equal(bench_close(&b, "loss on A's own text changes by +0.03"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    b.v.loss[1] = NAN;
    assert_int_equal(bench_close(&b, "loss"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    b.v.side[1].steady = false;
    assert_int_equal(bench_close(&b, "B is not steady"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    b.v.side[0].shadow_faults = 2;
    assert_int_equal(bench_close(&b, "A has 2 kernel fault"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    json_array_append_new(b.v.tokenizer, json_string("tokenizer.ggml.pre: 'x' in A, 'y' in B"));
    assert_int_equal(bench_close(&b, "another tokenizer: tokenizer.ggml.pre"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    b.v.texts[1].first_difference = 3;
    assert_int_equal(bench_close(&b, "first in text 1 at token 3"), VERIFY_DIFFERENT);
    bench_open(&b, 1e-4f);
    b.v.nodes = (struct verify_nodes){.looked = true, .first = {.tensor = "x", .same_inputs = true}, .beyond = {.tensor = "x"}};
    assert_int_equal(bench_close(&b, "a kernel is wrong: from the same inputs, x"), VERIFY_DIFFERENT);
    bench_open(&b, 0);
    b.v.compared = false;
    assert_int_equal(bench_close(&b, "nothing was compared"), VERIFY_DIFFERENT);
    bench_open(&b, 1e-4f); /* said, and no reason */
    snprintf(b.v.side[1].type_k, sizeof b.v.side[1].type_k, "Q8_0");
    assert_int_equal(bench_close(&b, "the KV cache is F16/F16 in A, Q8_0/F16 in B"), VERIFY_TOKEN_IDENTICAL);
    bench_open(&b, 0.06f); /* random weights: errors count, tokens do not */
    b.v.synthetic = true;
    assert_int_equal(bench_close(&b, "random weights"), VERIFY_QUALITY_EQUAL);
    bench_open(&b, 1.5f);
    b.v.synthetic = true;
    assert_int_equal(bench_close(&b, "logits err by NMSE"), VERIFY_DIFFERENT);
}

/* ---- jobs */

static void test_job(void **state)
{
    struct hone_model *m = open_model(tiny);
    struct hone_error e = {0};
    struct hone_session *s = session_reference(m, 32, 1, 16, 1);
    char path[96], file[96];
    json_t *answer;
    enum { N = 7, FROM = 2 };
    const int32_t ids[N] = {5, 6, 7, 8, 9, 10, 11};
    size_t vocab = (size_t)hone_model_n_vocab(m);
    (void)state;
    snprintf(path, sizeof path, "%s/logits", folder);
    snprintf(file, sizeof file, "%s/nodes.gguf", folder);
    json_t *job = json_pack("{s:[i,i,i,i,i,i,i], s:i, s:i, s:s, s:i}", "tokens", 5, 6, 7, 8, 9, 10, 11, "prefill", 4, "from",
                            FROM, "logits", path, "greedy", 3);
    assert_done(eval_job_run(s, m, job, &answer, &e), e);
    assert_int_equal(json_integer_value(json_object_get(answer, "rows")), N - FROM + 2);
    assert_int_equal(json_array_size(json_object_get(answer, "greedy")), 3);
    FILE *f = fopen(path, "rb");
    float *rows = malloc((N - FROM) * vocab * sizeof *rows + 4);
    assert_non_null(f);
    assert_non_null(rows);
    assert_int_equal(fread(rows, sizeof *rows, (N - FROM) * vocab + 1, f), (N - FROM) * vocab);
    fclose(f);
    hone_session_rewind(s, 0, 0, &e);
    session_feed(s, 0, ids, 4, 2);
    assert_memory_equal(rows, hone_session_logits(s, 0), 2 * vocab * sizeof *rows);
    for (int i = 4; i < N; i++) {
        session_feed(s, 0, ids + i, 1, 1);
        assert_memory_equal(rows + (size_t)(i - FROM) * vocab, hone_session_logits(s, 0), vocab * sizeof *rows);
    }
    json_t *again;
    assert_done(eval_job_run(s, m, job, &again, &e), e);
    assert_true(json_equal(answer, again));
    json_decref(again);
    json_decref(answer);
    json_decref(job);
    /* The nodes of the second single step: the last one is the logits. */
    job = json_pack("{s:[i,i,i,i,i,i,i], s:i, s:{s:i, s:s, s:i}}", "tokens", 5, 6, 7, 8, 9, 10, 11, "prefill", 4, "nodes",
                    "step", 3, "file", file, "first", 1);
    assert_done(eval_job_run(s, m, job, &answer, &e), e);
    json_t *nodes = json_object_get(answer, "nodes"), *last = json_array_get(nodes, json_array_size(nodes) - 1);
    assert_string_equal(json_string_value(json_object_get(last, "tensor")), "result_output");
    assert_true(json_is_false(json_object_get(json_array_get(nodes, 0), "file")) &&
                json_is_true(json_object_get(last, "file")));
    struct gguf *g;
    char number[16];
    snprintf(number, sizeof number, "%zu", json_array_size(nodes) - 1);
    assert_done(gguf_open(&g, file, &e), e);
    assert_non_null(gguf_tensor(g, number));
    assert_null(gguf_tensor(g, "0"));
    assert_memory_equal(gguf_tensor(g, number)->data, rows + (size_t)(N - 1 - FROM) * vocab, vocab * sizeof *rows);
    gguf_close(g);
    json_decref(answer);
    json_decref(job);
    free(rows);
    remove(path);
    remove(file);
    hone_session_free(s);
    hone_model_close(m);
}

static void test_wrong_jobs(void **state)
{
    static const char *const jobs[] = {
        "[]",
        "7",
        "{}",
        "{\"tokens\": []}",
        "{\"tokens\": 3}",
        "{\"tokens\": [-1]}",
        "{\"tokens\": [300]}",
        "{\"tokens\": [1.5]}",
        "{\"tokens\": [\"1\"]}",
        "{\"tokens\": [99999999999999]}",
        "{\"tokens\": [1], \"prefill\": 0}",
        "{\"tokens\": [1], \"prefill\": 2}",
        "{\"tokens\": [1], \"from\": 1}",
        "{\"tokens\": [1], \"from\": -1}",
        "{\"tokens\": [1], \"greedy\": -1}",
        "{\"tokens\": [1], \"greedy\": 1e9}",
        "{\"tokens\": [1], \"greedy\": 99999999999}",
        "{\"tokens\": [1], \"logits\": 5}",
        "{\"tokens\": [1], \"logits\": \"\"}",
        "{\"tokens\": [1], \"logits\": \"a\\u0000b\"}",
        "{\"tokens\": [1], \"more\": 1}",
        "{\"tokens\": [1], \"nodes\": 1}",
        "{\"tokens\": [1], \"nodes\": {\"step\": 1}}",
        "{\"tokens\": [1], \"nodes\": {\"step\": -1}}",
        "{\"tokens\": [1], \"nodes\": {\"steps\": 0}}",
        "{\"tokens\": [1], \"nodes\": {\"file\": 0}}",
        "{\"tokens\": [1], \"nodes\": {\"first\": -3}}",
    };
    struct hone_model *m = open_model(tiny);
    struct hone_session *s = session_reference(m, 32, 1, 16, 1);
    (void)state;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct hone_error e = {0};
        json_t *answer, *job = json_loads(jobs[i], JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        assert_non_null(job);
        if (eval_job_run(s, m, job, &answer, &e) != HONE_EINPUT || answer)
            fail_msg("%s was taken", jobs[i]);
        json_decref(job);
    }
    struct hone_error e = {0};
    json_t *answer, *job = json_pack("{s:[i], s:s}", "tokens", 1, "logits", "/nowhere/at/all");
    assert_int_equal(eval_job_run(s, m, job, &answer, &e), HONE_ERESOURCE);
    json_decref(job);
    job = json_pack("{s:[i], s:i}", "tokens", 1, "greedy", 40); /* more than the context */
    e = (struct hone_error){0};
    assert_int_equal(eval_job_run(s, m, job, &answer, &e), HONE_EINPUT);
    json_decref(job);
    hone_session_free(s);
    hone_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_degenerate), cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_nodes),      cmocka_unit_test(test_nodes_of_other_weights),
        cmocka_unit_test(test_classes),    cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_job),        cmocka_unit_test(test_wrong_jobs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
