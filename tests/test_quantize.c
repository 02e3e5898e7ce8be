/* test_quantize.c: the rule table of the type names against files that others made, and conversion of whole files: formats,
 * values, keys, warnings, the same bytes for any number of threads, and nothing left behind by what fails. */
#include "tests/test.h"

#include "base/half.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mmap.h"
#include "model/gguf.h"
#include "model/mix.h"
#include "model/quantize.h"
#include "model/synth.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[200];

static const char *in_folder(const char *name)
{
    static char path[4][500];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int files_in_folder(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));)
        n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static void empty_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));)
        if (f->d_name[0] != '.')
            unlink(in_folder(f->d_name));
    closedir(d);
}

static struct gguf *open_ok(const char *path)
{
    struct hone_error e = {0};
    struct gguf *g;
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.message);
    return g;
}

static void quantize_ok(const char *in, const char *out, const char *type, int threads)
{
    struct hone_error e = {0};
    if (model_quantize(in, out, type, threads, NULL, NULL, &e))
        fail_msg("%s: %s", type, e.message);
}

static void synth_ok(const char *out, const char *type, int32_t layers, int32_t width)
{
    struct hone_error e = {0};
    struct synth_params p = {
        .shape = "llama3.2-1b", .type = type, .layers = layers, .width = width, .vocab = 300, .seed = 5, .no_vocab = true};
    if (model_synth(out, &p, NULL, NULL, &e))
        fail_msg("%s", e.message);
}

static void expect_format(const char *mix, const struct mix_model *m, const char *tensor, int64_t row, const char *format)
{
    int64_t ne[2] = {row, 64};
    int f = mix_format(mix_find(mix), m, tensor, 2, ne, NULL);
    if (f < 0 || strcmp(format_get((enum format_id)f)->name, format))
        fail_msg("%s %s: %s, expected %s", mix, tensor, f < 0 ? "kept" : format_get((enum format_id)f)->name, format);
}

/* Facts from two published files: Gemma 3 270M in Q4_K_M and SmolLM2 135M in Q4_1, both with tied heads and rows of 640 and
 * 576. */
static void test_published_files(void **state)
{
    (void)state;
    const struct mix_model gemma = {.n_layer = 18, .gqa = 4, .tied = true}, smol = {.n_layer = 30, .gqa = 3, .tied = true};
    static const char more[] = "110010010010010111"; /* the layers with more bits */
    for (int i = 0; i < 18; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        expect_format("Q4_K_M", &gemma, name, 2048, more[i] == '1' ? "Q6_K" : "Q4_K");
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        expect_format("Q4_K_M", &gemma, name, 640, more[i] == '1' ? "Q8_0" : "Q5_0");
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", i);
        expect_format("Q4_K_M", &gemma, name, 640, "Q5_0");
        snprintf(name, sizeof name, "blk.%d.attn_output.weight", i);
        expect_format("Q4_K_M", &gemma, name, 1024, "Q4_K");
    }
    expect_format("q4_k_m", &gemma, "token_embd.weight", 640, "Q8_0");
    expect_format("Q4_1", &smol, "token_embd.weight", 576, "Q8_0");
    expect_format("Q4_1", &smol, "blk.7.ffn_down.weight", 1536, "Q4_1");
}

static void test_rules(void **state)
{
    (void)state;
    const struct mix_model m = {.n_layer = 16, .gqa = 4, .tied = false};
    int64_t ne[2] = {256, 8};
    const struct mix *q4 = mix_find("Q4_K_M");
    expect_format("Q4_0", &m, "token_embd.weight", 256, "Q4_0");
    expect_format("Q4_0", &m, "output.weight", 256, "Q6_K");
    expect_format("Q2_K", &m, "blk.3.attn_v.weight", 256, "Q4_K");
    expect_format("Q2_K", &m, "blk.3.attn_output.weight", 256, "Q3_K");
    expect_format("Q4_K_S", &m, "blk.3.attn_v.weight", 256, "Q5_K");
    expect_format("Q4_K_S", &m, "blk.4.attn_v.weight", 256, "Q4_K");
    expect_format("Q4_K_S", &m, "blk.1.ffn_down_exps.weight", 256, "Q5_K");
    expect_format("Q3_K_M", &m, "blk.0.ffn_down.weight", 256, "Q5_K");
    expect_format("Q3_K_M", &m, "blk.1.ffn_down.weight", 256, "Q4_K");
    expect_format("IQ4_XS", &m, "blk.1.ffn_down.weight", 256, "Q5_K");
    expect_format("IQ4_XS", &m, "blk.2.ffn_down.weight", 256, "IQ4_XS");
    expect_format("Q3_K_S", &m, "blk.2.ffn_down.weight", 32 * 9, "IQ4_NL");
    expect_format("Q5_K_S", &m, "blk.2.ffn_up.weight", 32 * 9, "Q5_1");
    expect_format("Q6_K", &m, "blk.2.ffn_up.weight", 40, "F16");
    expect_format("Q4_0", &m, "blk.2.ffn_up.weight", 40, "F16");
    expect_format("BF16", &m, "blk.2.ffn_up.weight", 41, "BF16");
    static const char *const kept[] = {"blk.0.attn_norm.weight",
                                       "blk.0.ffn_gate_inp.weight",
                                       "blk.0.ssm_conv1d.weight",
                                       "blk.0.attn_q.bias",
                                       "output_norm.weight",
                                       "weight",
                                       ""};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_int_equal(mix_format(q4, &m, kept[i], 2, ne, NULL), -1);
    assert_int_equal(mix_format(q4, &m, "rope_freqs.weight", 1, ne, NULL), -1);
    /* Names from hostile files: layers that are none. */
    expect_format("Q4_K_M", &m, "blk.99999999999999999999.ffn_down.weight", 256, "Q4_K");
    expect_format("Q4_K_M", &m, "blk.-1.ffn_down.weight", 256, "Q4_K");
    expect_format("Q4_K_M", &(struct mix_model){0}, "blk.2.ffn_down.weight", 256, "Q6_K");
    assert_null(mix_find("Q4_K"));
    assert_null(mix_find(""));
}

/* Files that llama.cpp quantised: each tensor has the format that the table says. */
static void test_other_files(void **state)
{
    (void)state;
    const char *data = getenv("HONE_DATA");
    char path[500];
    snprintf(path, sizeof path, "%s/quants", data ? data : "");
    DIR *d = data ? opendir(path) : NULL;
    if (!d) {
        print_message("skipped: no test data at %s (HONE_DATA)\n", path);
        skip();
    }
    int files = 0;
    for (struct dirent *f; (f = readdir(d));) {
        char type[32];
        if (sscanf(f->d_name, "llama-%31[^.].gguf", type) != 1 || !strstr(f->d_name, ".gguf"))
            continue;
        snprintf(path, sizeof path, "%s/quants/%s", data, f->d_name);
        struct gguf *g = open_ok(path);
        const struct mix *mix = mix_find(type);
        assert_non_null(mix);
        uint32_t file_type = 0;
        assert_int_equal(gguf_get_u32(g, "general.file_type", true, &file_type, NULL), 0);
        assert_int_equal(file_type, mix_file_type(mix));
        struct mix_model m = {.n_layer = 2, .gqa = 2, .tied = !gguf_tensor(g, "output.weight")};
        for (int64_t i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensors[i];
            int want = mix_format(mix, &m, t->cname, t->n_dims, t->ne, NULL);
            if ((int)t->format != (want < 0 ? (int)FORMAT_F32 : want))
                fail_msg("%s: %s is %s", path, t->cname, format_get(t->format)->name);
        }
        gguf_close(g);
        files++;
    }
    closedir(d);
    assert_true(files >= 10);
}

/* Squared error of a converted tensor relative to the original's squares. */
static double tensor_error(const struct gguf_tensor *a, const struct gguf_tensor *b)
{
    int64_t n = (int64_t)(a->bytes / sizeof(float));
    float *y = malloc((size_t)n * sizeof *y);
    assert_non_null(y);
    format_get(b->format)->unpack(b->data, y, n);
    double error = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, (const char *)a->data + i * (int64_t)sizeof x, sizeof x);
        error += ((double)x - (double)y[i]) * ((double)x - (double)y[i]);
        sum += (double)x * (double)x;
    }
    free(y);
    return error / sum;
}

static void compare(const struct gguf *a, const struct gguf *b, const struct mix *mix, double bound)
{
    struct mix_model m = {.n_layer = 5, .gqa = 4, .tied = true};
    uint32_t file_type = 99;
    assert_int_equal(gguf_get_u32(b, "general.file_type", true, &file_type, NULL), 0);
    assert_int_equal(file_type, mix_file_type(mix));
    assert_int_equal(a->n_values, b->n_values);
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (int64_t i = 0; i < a->n_tensors; i++) {
        const struct gguf_tensor *s = &a->tensors[i], *t = gguf_tensor(b, s->cname);
        assert_non_null(t);
        int want = mix_format(mix, &m, s->cname, s->n_dims, s->ne, NULL);
        assert_memory_equal(s->ne, t->ne, sizeof s->ne);
        if (want < 0) {
            assert_int_equal(t->format, FORMAT_F32);
            assert_memory_equal(s->data, t->data, s->bytes);
            continue;
        }
        assert_int_equal(t->format, want);
        double e = tensor_error(s, t);
        if (!(e <= bound))
            fail_msg("%s, %s: error %.3e, bound %.3e", mix_name(mix), s->cname, e, bound);
    }
}

static void test_all_types(void **state)
{
    (void)state;
    /* The bounds of test_formats.c for the coarsest format of the mix; equality for F32. */
    static const struct {
        const char *type;
        double bound;
    } types[] = {
        {"F32", 0},         {"F16", 4.5e-8},     {"BF16", 2.9e-6},   {"Q4_0", 7.6e-3},    {"Q4_1", 6.3e-3},
        {"Q5_0", 1.9e-3},   {"Q5_1", 1.5e-3},    {"Q8_0", 3e-5},     {"Q2_K", 7.2e-2},    {"Q3_K_S", 2.2e-2},
        {"Q3_K_M", 2.2e-2}, {"Q4_K_S", 5.1e-3},  {"Q4_K_M", 5.1e-3}, {"Q5_K_S", 1.25e-3}, {"Q5_K_M", 1.25e-3},
        {"Q6_K", 3.1e-4},   {"IQ4_NL", 5.65e-3}, {"IQ4_XS", 5.8e-3}, {"MXFP4", 1.3e-2},
    };
    synth_ok(in_folder("in.gguf"), "F32", 5, 256);
    struct gguf *a = open_ok(in_folder("in.gguf"));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        quantize_ok(in_folder("in.gguf"), in_folder("out.gguf"), types[i].type, 2);
        struct gguf *b = open_ok(in_folder("out.gguf"));
        compare(a, b, mix_find(types[i].type), types[i].bound);
        gguf_close(b);
    }
    gguf_close(a);
    char list[400], *next = list; /* every name that messages offer is one */
    snprintf(list, sizeof list, "%s", mix_names());
    for (char *name; (name = strsep(&next, ", "));)
        assert_true(!*name || mix_find(name));
}

static void hash_file(const char *path, struct sha256 *h)
{
    struct mapping m;
    struct hone_error e = {0};
    assert_int_equal(mapping_open(&m, path, &e), 0);
    assert_int_equal(hash_sha256(h, m.data, m.size, &e), 0);
    mapping_close(&m);
}

static void test_threads(void **state)
{
    (void)state;
    struct sha256 first, other;
    synth_ok(in_folder("in.gguf"), "F16", 3, 512);
    static const int threads[] = {1, 2, 3, 7};
    for (size_t i = 0; i < 4; i++) {
        quantize_ok(in_folder("in.gguf"), in_folder("out.gguf"), "Q4_K_M", threads[i]);
        hash_file(in_folder("out.gguf"), i ? &other : &first);
        if (i)
            assert_string_equal(first.hex, other.hex);
    }
}

static char logged[2000];

static void on_log(void *user, enum log_level level, const char *line)
{
    (void)user;
    size_t n = strlen(logged);
    if (level == LOG_WARN)
        snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static void test_warnings(void **state)
{
    (void)state;
    log_to(on_log, NULL, LOG_WARN);
    synth_ok(in_folder("in.gguf"), "F32", 2, 256);
    quantize_ok(in_folder("in.gguf"), in_folder("a.gguf"), "Q4_1", 1);
    assert_string_equal(logged, "");
    quantize_ok(in_folder("a.gguf"), in_folder("b.gguf"), "F16", 1);
    assert_string_equal(logged, "");
    quantize_ok(in_folder("a.gguf"), in_folder("b.gguf"), "Q4_1", 1); /* nothing to do: not a requantisation */
    assert_string_equal(logged, "");
    quantize_ok(in_folder("a.gguf"), in_folder("b.gguf"), "Q4_0", 1);
    assert_non_null(strstr(logged, "14 tensors were quantised before"));
    logged[0] = 0;
    synth_ok(in_folder("in.gguf"), "F32", 2, 288);
    quantize_ok(in_folder("in.gguf"), in_folder("b.gguf"), "Q4_K_M", 1);
    assert_non_null(strstr(logged, "Q5_0 instead of Q4_K"));
    assert_non_null(strstr(logged, "Q8_0 instead of Q6_K, since rows of 288 values"));
    assert_non_null(strstr(logged, "tensors took a fallback format"));
    log_to(NULL, NULL, LOG_WARN);
    logged[0] = 0;
}

/* A file of one matrix [ne0, 4], values in x, and one of integers. */
static void write_model(const char *path, int64_t ne0, const float *x, const char *arch)
{
    struct hone_error e = {0};
    struct gguf_writer *w;
    int64_t ne[2] = {ne0, 4}, two = 2;
    int32_t ids[2] = {1, 16777217};
    assert_int_equal(gguf_writer_create(&w, path, &e), 0);
    if (arch)
        gguf_write_string(w, "general.architecture", arch);
    gguf_write_string(w, "llama.block_count", "not a number");
    gguf_write_array(w, "llama.attention.head_count_kv", GGUF_I32, (int32_t[]){0, -4, 2}, 3);
    gguf_write_u32(w, "split.count", 1);
    gguf_write_u32(w, "general.alignment", 64);
    gguf_write_tensor(w, "blk.0.ffn_up.weight", FORMAT_F32, 2, ne);
    gguf_write_tensor(w, "ids.weight", FORMAT_I32, 1, &two);
    gguf_write_data(w, x, (size_t)ne0 * 4 * sizeof *x, &e);
    gguf_write_data(w, ids, sizeof ids, &e);
    if (gguf_writer_close(w, true, &e))
        fail_msg("%s", e.message);
}

static void test_odd_models(void **state)
{
    (void)state;
    float x[4 * 288];
    for (int i = 0; i < 4 * 288; i++)
        x[i] = (float)(i % 37 - 18);
    write_model(in_folder("in.gguf"), 288, x, "llama");
    quantize_ok(in_folder("in.gguf"), in_folder("out.gguf"), "Q6_K", 3);
    struct gguf *g = open_ok(in_folder("out.gguf"));
    assert_int_equal(gguf_tensor(g, "blk.0.ffn_up.weight")->format, FORMAT_Q8_0);
    assert_int_equal(gguf_tensor(g, "ids.weight")->format, FORMAT_I32);
    assert_int_equal(((const int32_t *)gguf_tensor(g, "ids.weight")->data)[1], 16777217);
    assert_null(gguf_find(g, "split.count"));
    assert_non_null(gguf_find(g, "llama.block_count"));
    gguf_close(g);

    write_model(in_folder("in.gguf"), 41, x, "llama"); /* an odd row: F16, in pieces that end anywhere */
    quantize_ok(in_folder("in.gguf"), in_folder("out.gguf"), "Q4_0", 3);
    g = open_ok(in_folder("out.gguf"));
    assert_int_equal(gguf_tensor(g, "blk.0.ffn_up.weight")->format, FORMAT_F16);
    float y[4 * 41];
    format_get(FORMAT_F16)->unpack(gguf_tensor(g, "blk.0.ffn_up.weight")->data, y, 4 * 41);
    assert_memory_equal(x, y, sizeof y);
    gguf_close(g);

    x[1000] = NAN;
    log_to(on_log, NULL, LOG_WARN);
    write_model(in_folder("in.gguf"), 288, x, "llama");
    quantize_ok(in_folder("in.gguf"), in_folder("out.gguf"), "Q4_0", 2);
    assert_non_null(strstr(logged, "blk.0.ffn_up.weight holds values that are not finite"));
    log_to(NULL, NULL, LOG_WARN);
    logged[0] = 0;
}

static int cancel(void *user, float done)
{
    (void)done;
    return ++*(int *)user == 3;
}

static void refused(const char *in, const char *out, const char *type, int threads, int code, const char *says)
{
    struct hone_error e = {0};
    assert_int_equal(model_quantize(in, out, type, threads, NULL, NULL, &e), code);
    if (!strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
}

static void test_refusals(void **state)
{
    (void)state;
    float x[4 * 32] = {0};
    empty_folder();
    synth_ok(in_folder("in.gguf"), "F16", 2, 256);
    assert_int_equal(symlink("in.gguf", in_folder("link.gguf")), 0);
    assert_int_equal(link(in_folder("in.gguf"), in_folder("hard.gguf")), 0);
    refused(in_folder("in.gguf"), in_folder("in.gguf"), "Q4_0", 1, HONE_EUSAGE, "same file");
    refused(in_folder("in.gguf"), in_folder("link.gguf"), "Q4_0", 1, HONE_EUSAGE, "same file");
    refused(in_folder("hard.gguf"), in_folder("in.gguf"), "Q4_0", 1, HONE_EUSAGE, "same file");
    refused(in_folder("in.gguf"), in_folder("out.gguf"), "Q4_7", 1, HONE_EUSAGE, "Q4_K_M");
    refused(in_folder("in.gguf"), in_folder("out.gguf"), "", 1, HONE_EUSAGE, "Q4_K_M");
    refused(in_folder("in.gguf"), in_folder("out.gguf"), "Q4_0", 5000, HONE_EUSAGE, "5000 threads");
    refused(in_folder("none.gguf"), in_folder("out.gguf"), "Q4_0", 1, HONE_EINPUT, "none.gguf");
    refused(in_folder("in.gguf"), in_folder("none/out.gguf"), "Q4_0", 1, HONE_ERESOURCE, "none/out.gguf");
    write_model(in_folder("x.gguf"), 32, x, NULL);
    refused(in_folder("x.gguf"), in_folder("out.gguf"), "Q4_0", 1, HONE_EINPUT, "general.architecture");
    struct hone_error e = {0};
    int calls = 0;
    assert_int_equal(model_quantize(in_folder("in.gguf"), in_folder("out.gguf"), "Q8_0", 2, cancel, &calls, &e),
                     HONE_ECANCELED);
    assert_int_equal(calls, 3);
    assert_int_equal(model_quantize(in_folder("in.gguf"), in_folder("out.gguf"), "Q8", 2, NULL, NULL, NULL), HONE_EUSAGE);
    assert_int_equal(files_in_folder(), 4); /* in, link, hard, x: no output, no partial file */
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/hone-quantize-XXXXXX", tmp && strlen(tmp) < 100 ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_files), cmocka_unit_test(test_rules),    cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_all_types),       cmocka_unit_test(test_threads),  cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_odd_models),      cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("quantize", tests, setup, teardown);
}
