/* measure.c: a test is a list of calls to the session, made once; a run walks it with or without a clock.
 *
 * The depth is filled in steps that begin at whole multiples of the session's step, whichever depths came before: a position
 * then always comes out of the same shape of step, and a test at depth d computes the same bits alone and within a sweep. What
 * a sweep saves is still all but the last step. Forking a filled sequence for each sample was the alternative; a cut back to
 * the depth needs no second map.
 *
 * Hashing the logits between the calls of a timed run was the other one: 49,152 logits take SHA-256 0.14 ms, 6 % of a step of
 * SmolLM2. So one run is hashed and not timed, and each timed one only shows, after its clock has stopped, that it ended on the
 * same logits. */
#include "lab/measure.h"

#include "base/clock.h"
#include "base/rng.h"
#include "model/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct measure {
    struct hone_session *s;
    const struct hone_model *m;
    struct measure_test test;
    struct hone_token *tokens; /* prompt, then generation */
    bool hashed;
    uint64_t last; /* of the last logits of the hashed run */
};

/* What warm-up takes away (packing, page faults, a first plan, clocks that rise) is 10 % to 1000 %. Neighbouring rounds of a
 * warm SmolLM2 differ by 0.3 to 4 % on two quiet virtual cores, and by 4 to 5 % in the median (of 1,200) where other processes
 * take four fifths of the time: at 5 % every second pair agrees even there, so ten rounds find one, and what gives none in ten
 * gives no figure either. */
struct warm_rule warm_defaults(void)
{
    return (struct warm_rule){.tolerance = 0.05, .max_rounds = 10, .max_ns = INT64_C(20000000000)};
}

enum { WARM_TOKENS = 16 }; /* of a generation, a round: its steps are alike, and a round of 4,096 would warm for minutes */

static void draw(struct hone_token *tokens, int64_t n, const struct hone_model *m, uint64_t seed)
{
    struct rng r = rng_seed(seed);
    int32_t n_vocab = hone_model_n_vocab(m), bos = tokenizer_bos(m->model->tokenizer);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (struct hone_token){.id = (int32_t)rng_below(&r, (uint64_t)n_vocab)};
    if (n && tokenizer_add_bos(m->model->tokenizer) && bos >= 0 && bos < n_vocab)
        tokens[0].id = bos;
}

/* Back to position keep, and on from there to the test's depth. */
static int fill_from(struct measure *t, int32_t keep, struct hone_error *e)
{
    int32_t d = t->test.n_depth;
    int rc = hone_session_rewind(t->s, 0, keep, e);
    if (rc || keep == d)
        return rc;
    struct hone_token *ids = calloc((size_t)d, sizeof *ids);
    if (!ids)
        return err_set(e, HONE_ERESOURCE, "no memory for %d tokens", d);
    draw(ids, d, t->m, 1);
    rc = hone_session_eval(t->s, ids + keep, (size_t)(d - keep), e);
    free(ids);
    return rc;
}

/* A recurrent state can go back to some positions only: from the last of them that a step of the filling ended at. */
static int fill(struct measure *t, int32_t step, struct measure_prefix *p, struct hone_error *e)
{
    int32_t d = t->test.n_depth, held = hone_session_length(t->s, 0), keep = 0;
    if (p->step == step && p->length <= held) {
        if (p->length == d && session_rewind_reach(t->s, 0, d) == d)
            return hone_session_rewind(t->s, 0, d, e);
        keep = session_rewind_reach(t->s, 0, (p->length < d ? p->length : d) / step * step);
        keep = keep % step ? 0 : keep;
    }
    *p = (struct measure_prefix){keep, step};
    int rc = fill_from(t, keep, e);
    if (!rc)
        p->length = d;
    return rc;
}

int measure_open(struct measure **out, struct hone_session *s, const struct hone_session_params *p, const struct hone_model *m,
                 const struct measure_test *test, struct measure_prefix *prefix, struct hone_error *e)
{
    struct measure_prefix none = {0};
    int64_t n = (int64_t)test->n_prompt + test->n_gen;
    *out = NULL;
    if (test->n_prompt < 0 || test->n_gen < 0 || test->n_depth < 0 || test->n_batch < 1 || n < 1)
        return err_set(e, HONE_EUSAGE, "a test of %d and %d tokens at depth %d, %d a batch", test->n_prompt, test->n_gen,
                       test->n_depth, test->n_batch);
    if (n + test->n_depth > hone_session_n_ctx(s))
        return err_set(e, HONE_EUSAGE, "a test of %lld positions in a context of %d", (long long)(n + test->n_depth),
                       hone_session_n_ctx(s));
    struct measure *t = calloc(1, sizeof *t);
    if (!t || !(t->tokens = calloc((size_t)n, sizeof *t->tokens))) {
        free(t);
        return err_set(e, HONE_ERESOURCE, "no memory for %lld tokens", (long long)n);
    }
    t->s = s;
    t->m = m;
    t->test = *test;
    draw(t->tokens, test->n_prompt, m, 2);
    draw(t->tokens + test->n_prompt, test->n_gen, m, 3);
    for (int32_t i = 0; i < test->n_prompt; i++)
        t->tokens[i].want_logits = (i + 1) % test->n_batch == 0 || i + 1 == test->n_prompt;
    for (int32_t i = 0; i < test->n_gen; i++)
        t->tokens[test->n_prompt + i].want_logits = true;
    int rc = fill(t, p->n_batch, prefix ? prefix : &none, e);
    if (rc) {
        measure_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void measure_close(struct measure *t)
{
    if (t)
        free(t->tokens);
    free(t);
}

/* Called after each call, while its logits are there; NULL in timed runs. */
typedef int look_fn(void *user, const float *logits, struct hone_error *e);

/* n_gen: of the generation, the first so many. Leaves the sequence as the calls made it. */
static int run(struct measure *t, int32_t n_gen, struct measure_sample *out, look_fn *look, void *user, struct hone_error *e)
{
    int64_t start = clock_ns(), first = 0, prompt = 0;
    int rc = 0;
    for (int32_t i = 0, n; i < t->test.n_prompt && !rc; i += n) {
        n = t->test.n_prompt - i < t->test.n_batch ? t->test.n_prompt - i : t->test.n_batch;
        rc = hone_session_eval(t->s, t->tokens + i, (size_t)n, e);
        if (!rc && look)
            rc = look(user, hone_session_logits(t->s, 0), e);
    }
    if (t->test.n_prompt)
        first = prompt = clock_ns();
    for (int32_t i = 0; i < n_gen && !rc; i++) {
        rc = hone_session_eval(t->s, t->tokens + t->test.n_prompt + i, 1, e);
        if (!first)
            first = clock_ns();
        if (!rc && look)
            rc = look(user, hone_session_logits(t->s, 0), e);
    }
    *out = (struct measure_sample){
        .ns = clock_ns() - start, .first_ns = first - start, .prompt_ns = prompt ? prompt - start : 0, .same = true};
    return rc;
}

static int rewind_to_depth(struct measure *t, int rc, struct hone_error *e)
{
    struct hone_error later = {0};
    bool reached = session_rewind_reach(t->s, 0, t->test.n_depth) == t->test.n_depth;
    int back = fill_from(t, reached ? t->test.n_depth : 0, &later);
    if (!rc && back)
        rc = err_set(e, later.code, "%s", later.message);
    return rc;
}

/* 36 bytes a position with logits. */
struct looked {
    unsigned char *records, *ids;
    size_t n, cap;
    int32_t n_vocab;
    bool nan;
};

static void put_int32(unsigned char *to, int32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)((uint32_t)v >> 8 * i);
}

enum { RECORD = 4 + 64 };

static int look_at(void *user, const float *logits, struct hone_error *e)
{
    struct looked *l = user;
    struct sha256 h;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        unsigned char *records = realloc(l->records, cap * RECORD), *ids;
        if (records)
            l->records = records;
        ids = records ? realloc(l->ids, cap * 4) : NULL;
        if (ids)
            l->ids = ids;
        if (!records || !ids)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu hashes", cap);
        l->cap = cap;
    }
    int rc = hash_sha256(&h, logits, (size_t)l->n_vocab * sizeof *logits, e);
    if (rc)
        return rc;
    for (int32_t i = 0; i < l->n_vocab; i++)
        l->nan |= !isfinite(logits[i]);
    int32_t best = sampler_argmax(logits, l->n_vocab);
    put_int32(l->ids + 4 * l->n, best);
    put_int32(l->records + RECORD * l->n, best);
    memcpy(l->records + RECORD * l->n + 4, h.hex, 64);
    l->n++;
    return 0;
}

static uint64_t last_logits(const struct measure *t)
{
    const float *logits = hone_session_logits(t->s, 0);
    return logits ? hash64(logits, (size_t)hone_model_n_vocab(t->m) * sizeof *logits) : 0;
}

int measure_hash(struct measure *t, struct measure_output *out, struct hone_error *e)
{
    struct looked l = {.n_vocab = hone_model_n_vocab(t->m)};
    struct measure_sample ignored;
    *out = (struct measure_output){0};
    int rc = run(t, t->test.n_gen, &ignored, look_at, &l, e);
    if (!rc) {
        t->last = last_logits(t);
        t->hashed = true;
        out->n = l.n;
        out->nan = l.nan;
        rc = hash_sha256(&out->output, l.records, l.n * RECORD, e);
    }
    if (!rc)
        rc = hash_sha256(&out->tokens, l.ids, l.n * 4, e);
    free(l.records);
    free(l.ids);
    return rewind_to_depth(t, rc, e);
}

int measure_once(struct measure *t, struct measure_sample *out, struct hone_error *e)
{
    int rc = run(t, t->test.n_gen, out, NULL, NULL, e);
    if (!rc)
        out->same = !t->hashed || t->last == last_logits(t);
    return rewind_to_depth(t, rc, e);
}

int measure_settle(struct measure *t, struct hone_error *e)
{
    struct hone_token one = t->tokens[0];
    one.want_logits = true;
    return rewind_to_depth(t, hone_session_eval(t->s, &one, 1, e), e);
}

int warm_up(struct warmth *w, const struct warm_rule *r, warm_fn *round, void *user, struct hone_error *e)
{
    int64_t before = 0;
    *w = (struct warmth){0};
    while (w->rounds < r->max_rounds && (w->rounds < 2 || w->ns < r->max_ns)) {
        int64_t now = 0;
        int rc = round(user, &now, e);
        if (rc)
            return rc;
        w->rounds++;
        w->ns += now;
        if (w->rounds > 1) {
            int64_t shorter = now < before ? now : before;
            w->gap = shorter > 0 ? (double)(now + before - 2 * shorter) / (double)shorter : 0;
            w->stable = shorter > 0 && w->gap <= r->tolerance;
            if (w->stable)
                return 0;
        }
        before = now;
    }
    return 0;
}

static int warm_round(void *user, int64_t *ns, struct hone_error *e)
{
    struct measure *t = user;
    struct measure_sample s;
    int rc = run(t, t->test.n_gen < WARM_TOKENS ? t->test.n_gen : WARM_TOKENS, &s, NULL, NULL, e);
    *ns = s.ns;
    return rewind_to_depth(t, rc, e);
}

int measure_warm(struct measure *t, const struct warm_rule *r, struct warmth *w, struct hone_error *e)
{
    return warm_up(w, r, warm_round, t, e);
}
