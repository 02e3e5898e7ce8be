/* test_synth.c: synthetic models: every shape opens and has the tensors and keys of the real architecture, weights and rope
 * factors are what they should be, the same seed gives the same bytes, the vocabulary encodes and decodes any text, and logits
 * are sane. */
#include "tests/test.h"

#include "base/hash.h"
#include "base/mmap.h"
#include "hone.h"
#include "lab/outline.h"
#include "model/gguf.h"
#include "model/mix.h"
#include "model/synth.h"
#include "model/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[200], out[220], other[220];

static void synth_ok(const char *path, const struct synth_params *p)
{
    struct hone_error e = {0};
    if (model_synth(path, p, NULL, NULL, &e))
        fail_msg("%s %s: %s", p->shape, p->type, e.message);
}

static struct gguf *open_ok(const char *path)
{
    struct hone_error e = {0};
    struct gguf *g;
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.message);
    return g;
}

static uint32_t u32_of(const struct gguf *g, const char *arch, const char *key)
{
    char name[100];
    uint32_t v = 0;
    struct hone_error e = {0};
    snprintf(name, sizeof name, "%s.%s", arch, key);
    if (gguf_get_u32(g, name, true, &v, &e))
        fail_msg("%s", e.message);
    return v;
}

/* The tensors of the two layers that an independent file of the architecture has, and no others. */
static void test_tensors_of_real_files(void **state)
{
    (void)state;
    static const char *const pairs[][3] = {
        {"llama3.1-8b", "llama3", "llama"}, {"gemma3-1b", "gemma3", "gemma3"}, {"qwen3.6-27b", "qwen35", "qwen35"}};
    const char *data = getenv("HONE_DATA");
    for (int i = 0; i < 3; i++) {
        char path[500];
        snprintf(path, sizeof path, "%s/archs/%s.gguf", data ? data : "", pairs[i][1]);
        if (access(path, R_OK)) {
            print_message("skipped: no test data at %s (HONE_DATA)\n", path);
            skip();
        }
        struct gguf *real = open_ok(path);
        synth_ok(out, &(struct synth_params){.shape = pairs[i][0],
                                             .type = "Q8_0",
                                             .layers = (int32_t)u32_of(real, pairs[i][2], "block_count"),
                                             .width = 256,
                                             .vocab = 300});
        struct gguf *g = open_ok(out);
        assert_int_equal(g->n_tensors, real->n_tensors);
        for (int64_t k = 0; k < real->n_tensors; k++) {
            const struct gguf_tensor *a = &real->tensors[k], *b = gguf_tensor(g, a->cname);
            if (!b || a->n_dims != b->n_dims || a->format != b->format)
                fail_msg("%s: %s is %s", pairs[i][0], a->cname, b ? "another" : "missing");
        }
        gguf_close(real);
        gguf_close(g);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    /* Facts of the published models: layers, width, ffn, heads, KV heads, head size. */
    static const struct {
        const char *shape, *arch;
        uint32_t layers, width, ffn, heads, kv, dim, vocab, ctx;
        bool head, factors;
    } facts[] = {
        {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, false, false},
        {"llama3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, false, true},
        {"llama3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, true, true},
        {"gemma3-270m", "gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, false, false},
        {"gemma3-1b", "gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 32768, false, false},
    };
    int n = 0;
    while (synth_shape(n))
        n++;
    assert_true(n >= (int)(sizeof facts / sizeof *facts));
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        /* One layer and a small vocabulary keep the file small; what they override is read from the table by the full width. */
        synth_ok(out, &(struct synth_params){.shape = facts[i].shape, .type = "Q2_K", .layers = 1, .vocab = 258});
        struct gguf *g = open_ok(out);
        const char *arch = facts[i].arch;
        assert_int_equal(u32_of(g, arch, "embedding_length"), facts[i].width);
        assert_int_equal(u32_of(g, arch, "feed_forward_length"), facts[i].ffn);
        assert_int_equal(u32_of(g, arch, "attention.head_count"), facts[i].heads);
        assert_int_equal(u32_of(g, arch, "attention.head_count_kv"), facts[i].kv);
        assert_int_equal(u32_of(g, arch, "attention.key_length"), facts[i].dim);
        assert_int_equal(u32_of(g, arch, "context_length"), facts[i].ctx);
        assert_int_equal(u32_of(g, arch, "vocab_size"), 258);
        assert_int_equal(u32_of(g, arch, "block_count"), 1);
        assert_true((gguf_tensor(g, "output.weight") != NULL) == facts[i].head);
        assert_true((gguf_tensor(g, "rope_freqs.weight") != NULL) == facts[i].factors);
        gguf_close(g);
    }
}

/* Of whole shapes, written without their weights: what a token reads, a position keeps and a sequence carries, by hand. */
static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *type;
        int64_t file, weights, kv, delta, conv; /* file: at most so many bytes on the disk */
    } facts[] = {
        /* 48 x (5120 x (10240 + 6144 + 96) + 6144 x 5120) + 16 x (5120 x (12288 + 2048) + 6144 x 5120) + 64 x 3 x 5120 x 17408 weights and a
         * row of the embedding in 4.5 bits, 5120 x 248320 in 6.5625, 2645504 in 32. */
        {"qwen3.6-27b", "Q4_0", 64 << 20, INT64_C(14750716736), 16 * 2 * 4 * 256 * 2, 48 * 48 * 128 * 128 * 4, 48 * 3 * 10240 * 4},
        {"qwen3.5-0.8b", "F16", 64 << 20, INT64_C(1505783040), 6 * 2 * 2 * 256 * 2, 18 * 16 * 128 * 128 * 4, 18 * 3 * 6144 * 4},
        {"llama3.2-1b", "Q8_0", 64 << 20, INT64_C(1313251456), 16 * 2 * 8 * 64 * 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        struct hone_error e = {0};
        struct hone_model *m = NULL;
        struct stat st;
        synth_ok(out, &(struct synth_params){.shape = facts[i].shape, .type = facts[i].type, .no_weights = true});
        assert_int_equal(stat(out, &st), 0);
        assert_true(st.st_size > facts[i].weights && st.st_blocks * INT64_C(512) < facts[i].file);
        if (hone_model_open(&m, out, &e))
            fail_msg("%s", e.message);
        json_t *all = outline(m, &e), *sizes = json_object_get(all, "sizes");
        assert_non_null(sizes);
        assert_int_equal(json_integer_value(json_object_get(sizes, "weight_bytes_per_token")), facts[i].weights);
        assert_int_equal(json_integer_value(json_object_get(sizes, "kv_bytes_per_position")), facts[i].kv);
        assert_int_equal(json_integer_value(json_object_get(sizes, "delta_state_bytes")), facts[i].delta);
        assert_int_equal(json_integer_value(json_object_get(sizes, "conv_state_bytes")), facts[i].conv);
        json_decref(all);
        hone_model_close(m);
    }
}

static void expect_rope(const char *shape, int64_t n, const int *at, const double *value, int points)
{
    synth_ok(out, &(struct synth_params){.shape = shape, .type = "Q4_0", .layers = 1, .vocab = 258});
    struct gguf *g = open_ok(out);
    const struct gguf_tensor *t = gguf_tensor(g, "rope_freqs.weight");
    assert_int_equal(t->ne[0], n);
    for (int i = 0; i < points; i++) {
        float x;
        memcpy(&x, (const char *)t->data + at[i] * (int)sizeof x, sizeof x);
        assert_true(fabs((double)x - value[i]) < 1e-5 * value[i]);
    }
    gguf_close(g);
}

/* Values worked out apart from this code, by Llama 3.1's own formula. */
static void test_rope_factors(void **state)
{
    (void)state;
    expect_rope("llama3.2-1b", 32, (int[]){0, 14, 15, 16, 17, 18, 31}, (double[]){1, 1, 1.651329, 3.292262, 9.666729, 32, 32},
                7);
    expect_rope("llama3.1-8b", 64, (int[]){28, 29, 31, 34, 35}, (double[]){1, 1.207484, 2.026313, 5.257327, 8}, 5);
}

static void test_weights(void **state)
{
    (void)state;
    synth_ok(out,
             &(struct synth_params){
                 .shape = "gemma3-270m", .type = "F32", .layers = 2, .width = 320, .vocab = 1000, .no_vocab = true, .seed = 9});
    struct gguf *g = open_ok(out);
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        int64_t n = (int64_t)(t->bytes / sizeof(float));
        double sum = 0, squares = 0, mean = t->n_dims == 1 ? 1 : 0;
        double sigma = t->n_dims == 1 ? 0.1 : 1 / sqrt((double)t->ne[0]);
        for (int64_t k = 0; k < n; k++) {
            float x;
            memcpy(&x, (const char *)t->data + k * (int64_t)sizeof x, sizeof x);
            sum += (double)x;
            squares += ((double)x - mean) * ((double)x - mean);
        }
        /* Five standard errors; matrices share a pool of 262144 numbers. */
        double independent = n < 262144 ? (double)n : 262144;
        assert_true(fabs(sum / (double)n - mean) < 5 * sigma / sqrt(independent) + 5 * sigma / sqrt((double)n));
        assert_true(fabs(sqrt(squares / (double)n) / sigma - 1) < 5 / sqrt(independent) + 5 / sqrt((double)n));
    }
    gguf_close(g);
}

static void hash_file(const char *path, struct sha256 *h)
{
    struct mapping m;
    struct hone_error e = {0};
    assert_int_equal(mapping_open(&m, path, &e), 0);
    assert_int_equal(hash_sha256(h, m.data, m.size, &e), 0);
    mapping_close(&m);
}

static void test_seed(void **state)
{
    (void)state;
    struct sha256 a, b;
    struct synth_params p = {.shape = "smollm2-135m", .type = "Q4_K_M", .layers = 2, .vocab = 500, .seed = 1};
    synth_ok(out, &p);
    synth_ok(other, &p);
    hash_file(out, &a);
    hash_file(other, &b);
    assert_string_equal(a.hex, b.hex);
    p.seed = 2;
    synth_ok(other, &p);
    hash_file(other, &b);
    assert_string_not_equal(a.hex, b.hex);
    unlink(other);
}

static void test_vocabulary(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "The quick brown fox jumps over the lazy dog, and then some more of it happens in a sentence without any point.",
        "for (int i = 0; i < 10; i++)\n\tprintf(\"%d\\n\", i);",
        "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x98\x80",
        "",
        " ",
        "\xff\xfe bad \xc3"};
    static const char *const made[] = {"llama3.2-1b", "smollm2-135m", "gemma3-1b"};
    static const int32_t sizes[] = {258, 300, 20000};
    for (int m = 0; m < 9; m++) {
        struct hone_error e = {0};
        struct tokenizer *t;
        synth_ok(out, &(struct synth_params){
                          .shape = made[m / 3], .type = "Q2_K", .layers = 1, .width = 256, .vocab = sizes[m % 3]});
        struct gguf *g = open_ok(out);
        if (tokenizer_open(&t, g, &e))
            fail_msg("%s", e.message);
        gguf_close(g);
        assert_int_equal(tokenizer_size(t), sizes[m % 3]);
        assert_int_equal(tokenizer_bos(t), sizes[m % 3] - 2);
        assert_int_equal(tokenizer_eos(t), sizes[m % 3] - 1);
        assert_true(tokenizer_add_bos(t) == (m / 3 != 1));
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            struct token_list ids = {0};
            struct text text = {0};
            assert_int_equal(tokenizer_encode(t, texts[i], strlen(texts[i]), 0, &ids, &e), 0);
            assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &text, &e), 0);
            assert_int_equal(text.n, strlen(texts[i]));
            assert_true(!text.n || !memcmp(text.data, texts[i], text.n));
            if (i == 0 && sizes[m % 3] == 20000)
                assert_true(ids.n < strlen(texts[i]) * 6 / 10);
            token_list_free(&ids);
            text_free(&text);
        }
        tokenizer_close(t);
    }
}

/* The real path on every family: finite logits that are no constant, of about unit size. */
static void test_logits(void **state)
{
    (void)state;
    static const char *const made[] = {"llama3.2-1b", "gemma3-270m"};
    for (int i = 0; i < 2; i++) {
        struct hone_error e = {0};
        struct hone_model *m;
        struct hone_session *s;
        synth_ok(out,
                 &(struct synth_params){
                     .shape = made[i], .type = "Q4_K_M", .layers = 4, .width = 512, .vocab = 1000, .ctx = 64, .no_vocab = i});
        if (hone_model_open(&m, out, &e))
            fail_msg("%s", e.message);
        struct hone_session_params p = hone_session_defaults();
        p.n_ctx = 32;
        p.n_threads = 1;
        if (hone_session_create(&s, m, &p, &e))
            fail_msg("%s", e.message);
        struct hone_token tokens[4] = {{5, 0, false}, {700, 0, false}, {999, 0, false}, {0, 0, true}};
        if (hone_session_eval(s, tokens, 4, &e))
            fail_msg("%s", e.message);
        const float *logits = hone_session_logits(s, 0);
        double squares = 0;
        for (int k = 0; k < 1000; k++)
            squares += (double)logits[k] * (double)logits[k];
        if (!(squares / 1000 > 0.5 && squares / 1000 < 2))
            fail_msg("%s: logits of mean square %g", made[i], squares / 1000);
        hone_session_free(s);
        hone_model_close(m);
    }
}

static int cancel(void *user, float done)
{
    (void)user;
    return done > 0.3f;
}

static void refused(struct synth_params p, const char *path, int code, const char *says)
{
    struct hone_error e = {0};
    p.shape = p.shape ? p.shape : "llama3.2-1b";
    p.type = p.type ? p.type : "Q4_0";
    assert_int_equal(model_synth(path, &p, NULL, NULL, &e), code);
    if (!strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
}

static void test_refusals(void **state)
{
    (void)state;
    unlink(out);
    refused((struct synth_params){.shape = "llama"}, out, HONE_EUSAGE, "smollm2-135m, llama3.2-1b");
    refused((struct synth_params){.type = "Q4_9"}, out, HONE_EUSAGE, "Q4_K_M");
    refused((struct synth_params){.width = 100}, out, HONE_EUSAGE, "multiple of 32");
    refused((struct synth_params){.width = -32}, out, HONE_EUSAGE, "-32");
    refused((struct synth_params){.width = 1 << 20}, out, HONE_EUSAGE, "65536");
    refused((struct synth_params){.layers = 1025}, out, HONE_EUSAGE, "1024");
    refused((struct synth_params){.vocab = 257}, out, HONE_EUSAGE, "258");
    refused((struct synth_params){.vocab = 1 << 30, .no_vocab = true}, out, HONE_EUSAGE, "4194304");
    refused((struct synth_params){.ctx = -1}, out, HONE_EUSAGE, "-1");
    refused((struct synth_params){.layers = 1}, "/nonexistent/x.gguf", HONE_ERESOURCE, "/nonexistent/x.gguf");
    struct hone_error e = {0};
    struct synth_params p = {.shape = "smollm2-135m", .type = "Q4_0", .layers = 2, .vocab = 500};
    assert_int_equal(model_synth(out, &p, cancel, NULL, &e), HONE_ECANCELED);
    assert_int_equal(access(out, F_OK), -1);
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/hone-synth-XXXXXX", tmp && strlen(tmp) < 100 ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    return 0;
}

/* Fails if a test left a partial file behind. */
static int teardown(void **state)
{
    (void)state;
    unlink(out);
    unlink(other);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_of_real_files),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_rope_factors),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("synth", tests, setup, teardown);
}
