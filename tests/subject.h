/* subject.h: what the tests of models over several ranks share: a model of HONE_DATA/archs with what the independent
 * implementation says of it, sessions over ranks, and the comparisons. */
#ifndef TESTS_SUBJECT_H
#define TESTS_SUBJECT_H

#include "tests/facts.h"

#include "engine/engine.h"
#include "lab/compare.h"
#include "lab/texts.h"

#include <dirent.h>
#include <unistd.h>

/* On the reference kernels: what a sum in another order may change, as normalised mean squared error. */
static const double reference_bound = 1e-9;

struct subject {
    char name[280];
    struct hone_model *model;
    int32_t n_vocab;
    int32_t *tokens, *greedy;
    size_t n, n_greedy;
    float *expected; /* [n][n_vocab] */
};

/* Skips the test, visibly, without the data. */
static inline const char *data_folder(void)
{
    const char *data = getenv("HONE_DATA");
    if (!data || access(data, R_OK)) {
        print_message("SKIPPED: HONE_DATA does not name the folder with archs/\n");
        skip();
    }
    return data;
}

static inline void subject_open(struct subject *u, const char *data, const char *name)
{
    char path[4200];
    struct hone_error e = {0};
    *u = (struct subject){0};
    snprintf(u->name, sizeof u->name, "%s", name);
    snprintf(path, sizeof path, "%s/archs/%s.gguf", data, name);
    assert_done(hone_model_open(&u->model, path, &e), e);
    u->n_vocab = hone_model_n_vocab(u->model);
    snprintf(path, sizeof path, "%s/archs/%s.json", data, name);
    json_t *facts = facts_load(path);
    u->tokens = facts_ids(facts, "tokens", &u->n);
    u->greedy = facts_ids(facts, "greedy", &u->n_greedy);
    json_decref(facts);
    snprintf(path, sizeof path, "%s/archs/%s.logits", data, name);
    FILE *f = fopen(path, "rb");
    size_t n = u->n * (size_t)u->n_vocab;
    u->expected = malloc(n * sizeof(float));
    assert_true(f && u->expected && fread(u->expected, sizeof(float), n, f) == n);
    fclose(f);
}

static inline void subject_close(struct subject *u)
{
    free(u->tokens);
    free(u->greedy);
    free(u->expected);
    hone_model_close(u->model);
}

/* What there is of fused collectives; the first has none. */
static const char *const collective_gates[] = {
    "fuse.all_reduce_add=off;fuse.all_reduce_get_rows=off;fuse.all_reduce_add_rms_norm=off",
    "fuse.all_reduce_add=on;fuse.all_reduce_get_rows=on",
    "fuse.all_reduce_add=on;fuse.all_reduce_get_rows=on;fuse.all_reduce_add_rms_norm=on",
};
enum { N_COLLECTIVE_GATES = sizeof collective_gates / sizeof *collective_gates };

/* A session of n_threads over ranks (mode NULL: one device). gates NULL: the fastest kernels as they come; else they must fit,
 * and K and V are f32. */
static inline struct hone_session *session_of(const struct hone_model *m, const char *mode, const char *shares,
                                              const char *gates, int32_t n_seq, int32_t n_threads)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = 128;
    p.n_seq = n_seq;
    p.n_threads = n_threads;
    p.poll = 0; /* more threads than cores must not spin against each other */
    p.split_mode = mode;
    p.tensor_split = shares;
    p.gates = gates;
    p.type_k = p.type_v = gates ? "f32" : NULL;
    p.strict = gates != NULL;
    assert_done(hone_session_create(&s, m, &p, &e), e);
    return s;
}

static inline struct hone_session *session_over(const struct hone_model *m, const char *mode, const char *shares,
                                                const char *gates, int32_t n_seq)
{
    return session_of(m, mode, shares, gates, n_seq, 2);
}

static inline void rewind_to(struct hone_session *s, int32_t seq, int32_t length)
{
    struct hone_error e = {0};
    assert_done(hone_session_rewind(s, seq, length, &e), e);
}

static inline float *rows_new(const struct subject *u)
{
    float *rows = calloc(u->n * (size_t)u->n_vocab, sizeof(float));
    assert_non_null(rows);
    return rows;
}

/* The subject's tokens from `from` to `to`, `chunk` a step; all their logits to out, which is of the whole. */
static inline void eval_chunked(const struct subject *u, struct hone_session *s, int32_t seq, size_t from, size_t to,
                                size_t chunk, float *out)
{
    size_t row = (size_t)u->n_vocab;
    for (size_t at = from; at < to; at += chunk) {
        size_t k = to - at < chunk ? to - at : chunk;
        session_feed(s, seq, u->tokens + at, k, k);
        for (size_t i = 0; i < k; i++)
            memcpy(out + (at + i) * row, hone_session_logits(s, i), row * sizeof(float));
    }
}

/* Those of the independent implementation, on the reference kernels. */
static inline void hold(const struct subject *u, const float *got, const char *how, const char *what)
{
    double error = nmse(got, u->expected, u->n * (size_t)u->n_vocab);
    if (!(error <= reference_bound))
        fail_msg("%s on %s, %s: normalised mean squared error %.3g, allowed is %.3g", u->name, how, what, error,
                 reference_bound);
}

/* The same on fast kernels: the bound is that of the lab. */
static inline void hold_fast(const struct subject *u, const float *got, const char *how)
{
    struct comparison c = {.n_vocab = u->n_vocab};
    struct hone_error e = {0};
    for (size_t i = 0; i < u->n; i++)
        assert_done(comparison_add(&c, u->expected + i * (size_t)u->n_vocab, got + i * (size_t)u->n_vocab, &e), e);
    comparison_judge_for(&c, u->model, 0.01);
    if (c.verdict == CLASS_DIFFERENT)
        fail_msg("%s on %s, on fast kernels: %s", u->name, how, c.reason);
    comparison_free(&c);
}

static inline void same_bits(const struct subject *u, const float *a, const float *b, size_t from, const char *how,
                             const char *what)
{
    for (size_t i = from * (size_t)u->n_vocab; i < u->n * (size_t)u->n_vocab; i++)
        if (memcmp(a + i, b + i, sizeof *a))
            fail_msg("%s on %s, %s: token %zu, id %zu: %.9g and %.9g", u->name, how, what, i / (size_t)u->n_vocab,
                     i % (size_t)u->n_vocab, (double)a[i], (double)b[i]);
}

static inline int is_model(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 5 && n < 256 && !strcmp(d->d_name + n - 5, ".gguf");
}

/* Under sanitizers a part of the models must do: every third, and where threads are looked at, which takes longest, gemma3 and
 * qwen35. */
#if defined __SANITIZE_THREAD__
enum { EVERY_ARCH = 12 };
#elif defined HONE_SANITIZED
enum { EVERY_ARCH = 3 };
#else
enum { EVERY_ARCH = 1 };
#endif

/* Calls check for every model of archs. */
static inline void each_arch(void (*check)(const struct subject *u))
{
    char path[4200];
    const char *data = data_folder();
    struct dirent **files;
    snprintf(path, sizeof path, "%s/archs", data);
    int n = scandir(path, &files, is_model, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char name[280];
        struct subject u;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(files[i]->d_name) - 5), files[i]->d_name);
        free(files[i]);
        if (i % EVERY_ARCH)
            continue;
        subject_open(&u, data, name);
        check(&u);
        subject_close(&u);
    }
    free(files);
}

/* A prompt in one step held to the references, eight greedy tokens, and the prompt again with the same bits. */
static inline void check_requests(const struct subject *u, struct hone_session *s, const char *shares, float *first, float *again)
{
    eval_chunked(u, s, 0, 0, u->n, u->n, first);
    hold(u, first, shares, "in one step");
    int32_t id = argmax(first + (u->n - 1) * (size_t)u->n_vocab, u->n_vocab);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(id, u->greedy[i]);
        session_feed(s, 0, &id, 1, 1);
        id = argmax(hone_session_logits(s, 0), u->n_vocab);
    }
    rewind_to(s, 0, 0);
    eval_chunked(u, s, 0, 0, u->n, u->n, again);
    same_bits(u, again, first, 0, shares, "a second request");
}

#endif
