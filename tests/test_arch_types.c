/* test_arch_types.c: every architecture in every weight type: the models of HONE_DATA/archs with their matrices packed anew, on
 * fast kernels against the reference path over the same file, no node left on a reference.
 *
 * Each architecture is run as one model of all types at once (matrix number j has format j mod 16, so neighbours that are fused
 * or share an activation differ), and in each type name of hone quantize by itself.
 *
 * Both sides read the same packed weights, so what differs is that fast kernels take activations in 8 bits. Where experts are
 * chosen, that flips a choice now and then, and a flipped expert is another function: so the bound of the lab holds for three
 * quarters of the positions, not for each. A kernel that reads a type wrongly errs at all of them. */
#include "tests/facts.h"

#include "engine/engine.h"
#include "lab/compare.h"
#include "model/gguf.h"
#include "model/mix.h"
#include "model/quantize.h"

#include "base/log.h"

#include <dirent.h>
#include <unistd.h>

enum { N = 24, FIRST = 17 }; /* tokens, and how many of them go in one step; the rest one by one */

static char folder[200], made[220];

static struct gguf *open_file(const char *path)
{
    struct gguf *g = NULL;
    struct hone_error e = {0};
    assert_done(gguf_open(&g, path, &e), e);
    return g;
}

/* ---- a model of all types */

static const enum format_id formats[] = {
    FORMAT_Q4_0, FORMAT_Q6_K, FORMAT_BF16,   FORMAT_Q2_K,  FORMAT_Q5_1, FORMAT_IQ4_XS, FORMAT_Q8_0, FORMAT_Q3_K,
    FORMAT_F16,  FORMAT_Q4_1, FORMAT_IQ4_NL, FORMAT_MXFP4, FORMAT_Q4_K, FORMAT_F32,    FORMAT_Q5_0, FORMAT_Q5_K,
};
enum { N_FORMATS_OF_FILES = sizeof formats / sizeof *formats };

/* The format of matrix number j: where rows do not divide by its block, that of a number behind it. */
static enum format_id format_of(const struct gguf_tensor *t, int *j)
{
    static const struct mix_model any = {1, 1, false};
    if (t->format == FORMAT_F32 || mix_format(mix_find("Q8_0"), &any, t->cname, t->n_dims, t->ne, NULL) < 0)
        return t->format;
    enum format_id f;
    do
        f = formats[(*j)++ % N_FORMATS_OF_FILES];
    while (t->ne[0] % format_get(f)->block);
    return f;
}

static void write_packed(struct gguf_writer *w, const struct gguf_tensor *t, enum format_id to)
{
    const struct format *a = format_get(t->format), *b = format_get(to);
    struct hone_error e = {0};
    int64_t n = (int64_t)(t->bytes / (size_t)a->bytes) * a->block;
    size_t bytes = format_row_bytes(b, n);
    float *x = malloc((size_t)n * sizeof *x);
    void *packed = malloc(bytes);
    assert_true(x && packed);
    a->unpack(t->data, x, n);
    b->pack(x, packed, n);
    assert_done(gguf_write_data(w, packed, bytes, &e), e);
    free(x);
    free(packed);
}

/* Bits of the formats that its matrices have. */
static unsigned write_mixed(const char *from, const char *to, int first)
{
    struct gguf *g = open_file(from);
    struct gguf_writer *w = NULL;
    struct hone_error e = {0};
    unsigned used = 0;
    assert_done(gguf_writer_create(&w, to, &e), e);
    for (int64_t i = 0; i < g->n_values; i++)
        gguf_write_value(w, NULL, &g->values[i]);
    int j = first;
    for (int64_t i = 0; i < g->n_tensors; i++) {
        enum format_id f = format_of(&g->tensors[i], &j);
        gguf_write_tensor(w, g->tensors[i].cname, f, g->tensors[i].n_dims, g->tensors[i].ne);
    }
    j = first;
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        enum format_id f = format_of(t, &j);
        used |= 1u << f;
        if (f == t->format)
            assert_done(gguf_write_data(w, t->data, t->bytes, &e), e);
        else
            write_packed(w, t, f);
    }
    assert_done(gguf_writer_close(w, true, &e), e);
    gguf_close(g);
    return used;
}

/* ---- running */

static void feed(struct hone_session *s, const int32_t *ids, int32_t n_vocab, float *out)
{
    for (int at = 0, n; at < N; at += n) {
        n = at ? 1 : FIRST;
        session_feed(s, 0, ids + at, (size_t)n, (size_t)n);
        for (int i = 0; i < n; i++)
            memcpy(out + (size_t)(at + i) * (size_t)n_vocab, hone_session_logits(s, (size_t)i), (size_t)n_vocab * sizeof *out);
    }
}

static void all_local(struct hone_session *s, const char *what)
{
    static const int32_t sizes[] = {1, FIRST};
    for (int k = 0; k < 2; k++) {
        const struct plan *plan;
        struct hone_error e = {0};
        assert_done(session_plan(s, sizes[k], sizes[k], &plan, &e), e);
        for (int i = 0; i < plan->n_steps && plan->steps[i].backend->features(0); i++)
            if (!strcmp(plan->steps[i].kernel->variant, "ref"))
                fail_msg("%s: %s stays on the reference", what, plan->steps[i].node->out->name);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double check_model(const char *path, const char *what)
{
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    if (hone_model_open(&m, path, &e))
        fail_msg("%s: %s", what, e.message);
    int32_t n_vocab = hone_model_n_vocab(m), ids[N];
    size_t row = (size_t)n_vocab;
    float *want = malloc(N * row * sizeof *want), *got = malloc(N * row * sizeof *got);
    assert_true(want && got);
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + 5) % n_vocab;
    struct hone_session *s = session_reference(m, 64, 1, 64, 2);
    feed(s, ids, n_vocab, want);
    hone_session_free(s);
    s = session_fast(m, 64, 2);
    feed(s, ids, n_vocab, got);
    all_local(s, what);
    hone_session_free(s);
    double errors[N];
    for (int i = 0; i < N; i++) {
        struct comparison c = {.n_vocab = n_vocab};
        assert_done(comparison_add(&c, want + (size_t)i * row, got + (size_t)i * row, &e), e);
        errors[i] = c.nan ? INFINITY : (double)c.positions[0].nmse;
        comparison_free(&c);
    }
    qsort(errors, N, sizeof *errors, by_size);
    double error = errors[N * 3 / 4 - 1];
    if (!(error <= compare_bound()))
        fail_msg("%s: normalised mean squared error %.3g, allowed is %.3g", what, error, compare_bound());
    free(want);
    free(got);
    hone_model_close(m);
    return error;
}

static const char *data_folder(void)
{
    const char *data = getenv("HONE_DATA");
    if (!data || access(data, R_OK)) {
        print_message("SKIPPED: HONE_DATA does not name the folder with archs/\n");
        skip();
    }
    return data;
}

static int is_model(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 5 && n < 100 && !strcmp(d->d_name + n - 5, ".gguf");
}

/* Calls fn with the path and the name of each. */
static void each_arch(void (*fn)(const char *path, const char *name))
{
    char path[4200], name[100];
    snprintf(path, sizeof path, "%s/archs", data_folder());
    struct dirent **files;
    int n = scandir(path, &files, is_model, alphasort);
    assert_true(n >= 17);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/archs/%s", data_folder(), files[i]->d_name);
        snprintf(name, sizeof name, "%.*s", (int)(strlen(files[i]->d_name) - 5), files[i]->d_name);
        fn(path, name);
        free(files[i]);
    }
    free(files);
}

static void mixed(const char *path, const char *name)
{
    unsigned used = 0, all = 0;
    char what[140];
    for (int j = 0; j < N_FORMATS_OF_FILES; j++)
        all |= 1u << formats[j];
    const int step = N_FORMATS_OF_FILES / 2;
    for (int first = 0; first < N_FORMATS_OF_FILES; first += step) {
        used |= write_mixed(path, made, first);
        snprintf(what, sizeof what, "%s in all types, from number %d on", name, first);
        double error = check_model(made, what);
        print_message("%s: %.2g\n", what, error);
#ifdef HONE_SANITIZED
        if ((used & all) == all) /* a model of fewer matrices than formats needs another turn */
            break;
#endif
    }
    if ((used & all) != all)
        fail_msg("%s: formats %x of %x", name, used & all, all);
}

static void test_all_types_in_one(void **state)
{
    (void)state;
    each_arch(mixed);
}

#ifndef HONE_SANITIZED
static void every_type(const char *path, const char *name)
{
    char types[400], *next = types, what[140];
    double most = 0;
    int n = 0;
    snprintf(types, sizeof types, "%s", mix_names());
    for (char *type; (type = strsep(&next, ", "));) {
        struct hone_error e = {0};
        if (!*type)
            continue;
        assert_done(model_quantize(path, made, type, 2, NULL, NULL, &e), e);
        snprintf(what, sizeof what, "%s in %s", name, type);
        double error = check_model(made, what);
        if (error > most)
            most = error;
        n++;
    }
    print_message("%s in %d types by themselves: %.2g at most\n", name, n, most);
}
#endif

static void test_each_type(void **state)
{
    (void)state;
#ifdef HONE_SANITIZED
    print_message("SKIPPED: some 300 models take minutes under sanitizers\n");
    skip();
#else
    each_arch(every_type);
#endif
}

static void quiet(void *user, enum log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/hone-types-XXXXXX", tmp && strlen(tmp) < 100 ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(made, sizeof made, "%s/model.gguf", folder);
    log_to(quiet, NULL, LOG_WARN); /* of weights that were quantised before */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    log_to(NULL, NULL, LOG_WARN);
    unlink(made);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_types_in_one), cmocka_unit_test(test_each_type)};
    return cmocka_run_group_tests_name("architectures in all types", tests, setup, teardown);
}
