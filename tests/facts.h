/* facts.h: what the tests against stored facts share: reading the JSON beside them, sessions on the reference path, and the
 * measures that compare logits. Everything goes through the public API, as a program that embeds hone would do it. */
#ifndef TESTS_FACTS_H
#define TESTS_FACTS_H

#include "tests/test.h"

#include "hone.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails the running test with the message of *e when rc is not 0. */
#define assert_done(rc, e)                                                                                                     \
    do {                                                                                                                       \
        if (rc)                                                                                                                \
            fail_msg("%s", (e).message);                                                                                       \
    } while (0)

static inline json_t *facts_load(const char *path)
{
    json_error_t why;
    json_t *facts = json_load_file(path, 0, &why);
    if (!facts)
        fail_msg("%s:%d: %s", path, why.line, why.text);
    return facts;
}

/* An array of integers; malloc'd. */
static inline int32_t *facts_ids(const json_t *object, const char *key, size_t *n)
{
    const json_t *array = json_object_get(object, key);
    assert_true(json_is_array(array));
    *n = json_array_size(array);
    int32_t *ids = malloc((*n ? *n : 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

/* A session in which every node runs on its reference and the KV cache is f32. */
static inline struct hone_session *session_reference(const struct hone_model *m, int32_t n_ctx, int32_t n_seq, int32_t n_batch,
                                                     int32_t n_threads)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = n_ctx;
    p.n_seq = n_seq;
    p.n_batch = n_batch;
    p.n_threads = n_threads;
    p.poll = 0; /* more threads than cores must not spin against each other */
    p.gates = "kernel=ref";
    p.type_k = p.type_v = "f32";
    p.strict = true;
    assert_done(hone_session_create(&s, m, &p, &e), e);
    return s;
}

/* The fastest kernels, one sequence. */
static inline struct hone_session *session_fast(const struct hone_model *m, int32_t n_ctx, int32_t n_threads)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = n_ctx;
    p.n_threads = n_threads;
    p.poll = 0;
    assert_done(hone_session_create(&s, m, &p, &e), e);
    return s;
}

/* Feeds ids of one sequence; the logits of the last n_wanted are kept. */
static inline void session_feed(struct hone_session *s, int32_t seq, const int32_t *ids, size_t n, size_t n_wanted)
{
    struct hone_error e = {0};
    struct hone_token *tokens = calloc(n, sizeof *tokens);
    assert_non_null(tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (struct hone_token){.id = ids[i], .seq = seq, .want_logits = i + n_wanted >= n};
    int rc = hone_session_eval(s, tokens, n, &e);
    free(tokens);
    assert_done(rc, e);
}

/* The best id; ties go to the lowest. */
static inline int32_t argmax(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Normalised mean squared error; infinite where a value is not finite. */
static inline double nmse(const float *got, const float *expected, size_t n)
{
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)expected[i];
        if (!isfinite(d))
            return INFINITY;
        error += d * d;
        power += (double)expected[i] * (double)expected[i];
    }
    return error / power;
}

#endif
