/* test_delta.c: the kernels of the gated delta rule on 200 tokens, in pieces of 1, 7, 24, 64 and 200, against the reference in
 * double precision: steps and chunks, every decay from none to all, keys that are all alike, states that begin, several
 * sequences in one step. The pieces hand the state on through its slots, as a session's steps do.
 *
 * The reference runs once, over all 200 tokens, so what a kernel rounds between its pieces counts as its error. */
#include "tests/run_node.h"

#include "base/cpu.h"
#include "base/rng.h"
#include "ops/cases.h"
#include "ops/gated_delta_rule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 200, N_K = 2, N_V = 4, SLOTS = 6, MAX_SEQ = 4 };

/* ---- running */

/* Tokens [at, at + n) of the case, from each sequence's slot of slots to the same one. */
static void run_piece(const struct kernel *k, const struct case_run *c, int64_t at, int64_t n, int pool)
{
    static const int token_dim[] = {2, 2, 2, 1, 1, -1, 0};
    struct node piece = c->node;
    struct tensor src[7], out = c->out;
    for (int i = 0; i < 7; i++) {
        if (token_dim[i] < 0)
            continue;
        src[i] = c->src[i];
        src[i].ne[token_dim[i]] = n;
        src[i].data = (char *)src[i].data + (size_t)at * src[i].nb[token_dim[i]];
        piece.src[i] = &src[i];
    }
    out.ne[2] = n;
    out.data = (char *)out.data + (size_t)at * out.nb[2];
    piece.out = &out;
    run_node(k, &piece, pool);
}

/* ---- cases */

/* How much a state keeps. */
enum decays { KEEPS_ALL, KEEPS_NEARLY_ALL, KEEPS_SOME, KEEPS_NEXT_TO_NOTHING, KEEPS_NOTHING, KEEPS_IN_TURNS, N_DECAYS };
static const char *const decay_names[] = {"no decay",      "decays near 1",  "decays of models",
                                          "decays near 0", "decays of zero", "decays in turns"};

static float log_decay(enum decays d, int64_t t, struct rng *r)
{
    switch (d) {
    case KEEPS_ALL:
        return 0;
    case KEEPS_NEARLY_ALL:
        return (float)(-1e-6 * rng_uniform(r));
    case KEEPS_SOME:
        return (float)-fabs(rng_normal(r));
    case KEEPS_NEXT_TO_NOTHING:
        return (float)(-20 - 10 * rng_uniform(r));
    case KEEPS_NOTHING:
        return t % 3 ? -1e4f : -INFINITY;
    default:
        return t % 5 == 3 ? -90 : t % 5 == 1 ? -1e-4f : t % 40 == 5 ? -INFINITY : -0.5f;
    }
}

struct subject {
    char name[120];
    int64_t d_k, d_v, n_seq;
    enum decays decays;
    bool alike;  /* all keys of a head are one, every beta is 1 */
    bool begins; /* states of zeros */
};

static void subject_create(struct case_run *c, const struct subject *s)
{
    const struct gated_delta_rule_params params = {0.1f, s->n_seq % 2 ? DELTA_TILED : DELTA_GROUPED};
    const struct op_case spec = {.name = "delta",
                                 .params = &params,
                                 .src = {{FORMAT_F32, {s->d_k, N_K, TOKENS}, FILL_UNIT},
                                         {FORMAT_F32, {s->d_k, N_K, TOKENS}, FILL_UNIT},
                                         {FORMAT_F32, {s->d_v, N_V, TOKENS}, FILL_NORMAL},
                                         {FORMAT_F32, {N_V, TOKENS}, FILL_ZERO},
                                         {FORMAT_F32, {N_V, TOKENS}, FILL_SHARE},
                                         {FORMAT_F32, {s->d_v, s->d_k, N_V, SLOTS}, s->begins ? FILL_ZERO : FILL_NORMAL},
                                         {FORMAT_I32, {TOKENS}, FILL_INDEX, STRIDES_PLAIN, s->n_seq + (s->n_seq > 1)},
                                         {FORMAT_I32, {2, s->n_seq}, FILL_ZERO}}};
    struct hone_error e = {0};
    struct rng r = rng_seed(7);
    if (case_create_from(c, OP_GATED_DELTA_RULE, &spec, 5, &e))
        fail_msg("%s", e.message);
    float *g = c->src[3].data, *beta = c->src[4].data, *k = c->src[1].data;
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t h = 0; h < N_V; h++)
            g[t * N_V + h] = log_decay(s->decays, t, &r);
    for (int64_t i = 0; i < TOKENS * N_V && s->alike; i++)
        beta[i] = 1;
    for (int64_t i = N_K * s->d_k; i < TOKENS * N_K * s->d_k && s->alike; i++)
        k[i] = k[i - N_K * s->d_k];
    for (int32_t i = 0; i < s->n_seq; i++) /* each sequence has one slot, and there are others */
        ((int32_t *)c->src[7].data)[2 * i] = ((int32_t *)c->src[7].data)[2 * i + 1] = SLOTS - 1 - i;
}

static float *copy_of(const struct tensor *t)
{
    float *copy = malloc(tensor_nbytes(t));
    assert_non_null(copy);
    memcpy(copy, t->data, tensor_nbytes(t));
    return copy;
}

static void hold(const struct tensor *got, float *want, const char *what, const struct kernel *k, const struct subject *s,
                 int64_t piece)
{
    struct tensor reference = *got;
    int64_t worst;
    reference.data = want;
    double error = tensor_nmse(got, &reference, &worst);
    if (!(error <= op_get(OP_GATED_DELTA_RULE)->tolerance))
        fail_msg("%s, %s, pieces of %lld: %s errs by %.3g at %lld", k->variant, s->name, (long long)piece, what, error,
                 (long long)worst);
}

static bool is_fast(const struct kernel *k)
{
    return k->op == OP_GATED_DELTA_RULE && strcmp(k->variant, "ref") != 0 && !(k->needs & ~cpu_features());
}

static void check_subject(const struct subject *s)
{
    static const int64_t pieces[] = {TOKENS, 64, 24, 7, 1};
    const struct kernel *const *all;
    struct case_run c;
    int n, compared = 0;
    subject_create(&c, s);
    struct tensor *state = &c.src[5];
    float *before = copy_of(state);
    run_node(NULL, &c.node, 1);
    float *want = copy_of(&c.out), *want_state = copy_of(state);
    all = backend_by_name("cpu")->kernels(&n);
    for (int i = 0; i < n; i++) {
        if (!is_fast(all[i]))
            continue;
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            float *one = NULL, *one_state = NULL;
            for (int pool = 0; pool < (p ? 1 : N_POOLS); pool++) {
                memcpy(state->data, before, tensor_nbytes(state));
                memset(c.out.data, 0xff, tensor_nbytes(&c.out));
                for (int64_t at = 0; at < TOKENS; at += pieces[p])
                    run_piece(all[i], &c, at, TOKENS - at < pieces[p] ? TOKENS - at : pieces[p], pool);
                hold(&c.out, want, "a result", all[i], s, pieces[p]);
                hold(state, want_state, "a state", all[i], s, pieces[p]);
                if (pool) {
                    assert_memory_equal(c.out.data, one, tensor_nbytes(&c.out));
                    assert_memory_equal(state->data, one_state, tensor_nbytes(state));
                } else {
                    one = copy_of(&c.out);
                    one_state = copy_of(state);
                }
            }
            free(one);
            free(one_state);
        }
        compared++;
    }
    assert_true(compared > 0 || !(cpu_features() & CPU_AVX2));
    free(before);
    free(want);
    free(want_state);
    case_free(&c);
}

static void check_sizes(struct subject s, const char *what)
{
    static const int64_t sizes[][2] = {{128, 128}, {64, 96}, {37, 53}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        s.d_k = sizes[i][0];
        s.d_v = sizes[i][1];
        snprintf(s.name, sizeof s.name, "%s, %s, %lld x %lld", what, decay_names[s.decays], (long long)s.d_k, (long long)s.d_v);
        check_subject(&s);
    }
}

static void test_decays(void **state)
{
    (void)state;
    for (int d = 0; d < N_DECAYS; d++)
        check_sizes((struct subject){.n_seq = 1, .decays = (enum decays)d}, "one sequence");
}

/* Each delta takes back the one before: the longest sums that cancel. */
static void test_keys_alike(void **state)
{
    (void)state;
    check_sizes((struct subject){.n_seq = 1, .decays = KEEPS_ALL, .alike = true}, "equal keys");
    check_sizes((struct subject){.n_seq = 1, .decays = KEEPS_NEARLY_ALL, .alike = true}, "equal keys");
}

/* Some 50 tokens each, mixed with each other and with some of no sequence. */
static void test_sequences(void **state)
{
    (void)state;
    check_sizes((struct subject){.n_seq = 3, .decays = KEEPS_SOME}, "three sequences");
    check_sizes((struct subject){.n_seq = MAX_SEQ, .decays = KEEPS_IN_TURNS}, "four sequences");
}

/* A state of zeros that is read, and one that a slot below zero stands for, are the same. */
static void test_begins(void **state)
{
    (void)state;
    check_sizes((struct subject){.n_seq = 1, .decays = KEEPS_SOME, .begins = true}, "zeros");
    struct subject s = {.name = "begins", .d_k = 128, .d_v = 128, .n_seq = 1, .decays = KEEPS_NEARLY_ALL, .begins = true};
    struct case_run c;
    int n;
    subject_create(&c, &s);
    run_node(NULL, &c.node, 1);
    float *want = copy_of(&c.out), *want_state = copy_of(&c.src[5]);
    const struct kernel *const *all = backend_by_name("cpu")->kernels(&n);
    for (int i = 0; i < n; i++)
        for (int64_t length = TOKENS; length > 150; length -= 7) { /* whatever is left behind the last whole chunk */
            if (!is_fast(all[i]))
                continue;
            ((int32_t *)c.src[7].data)[0] = -1;
            memset(c.src[5].data, 0xff, tensor_nbytes(&c.src[5]));
            run_piece(all[i], &c, 0, length, 0);
            ((int32_t *)c.src[7].data)[0] = SLOTS - 1;
            if (length < TOKENS)
                run_piece(all[i], &c, length, TOKENS - length, 0);
            struct tensor slot = c.src[5];
            slot.ne[3] = 1;
            slot.data = tensor_row(&slot, 0, 0, SLOTS - 1);
            hold(&c.out, want, "a result", all[i], &s, length);
            hold(&slot, want_state + tensor_elements(&slot) * (SLOTS - 1), "a state", all[i], &s, length);
        }
    free(want);
    free(want_state);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decays), cmocka_unit_test(test_keys_alike),
                                       cmocka_unit_test(test_sequences), cmocka_unit_test(test_begins)};
    return cmocka_run_group_tests_name("delta rule", tests, start_pools, stop_pools);
}
