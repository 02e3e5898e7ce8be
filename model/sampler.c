/* sampler.c: from logits to the next token: repeat penalty, top-k, top-p, min-p, temperature, draw.
 *
 * The order is llama.cpp's: the shares that top-p and min-p look at are those before the temperature. Of equal logits the lower
 * id is the better one, so that they have one order everywhere. Candidates are ranked only as far as somebody asks: they are a
 * heap, and the best is taken off it while top-p, min-p or the draw goes on. Of 262144
 * tokens with top-k 40 that takes 0.6 ms, with no top-k and the flattest logits 9 (sorting them all: 54).
 *
 * Reproducible: xoshiro256** from the seed, one draw a token, sums in a fixed order, in double. The only function whose last
 * bit may differ between C libraries is exp; it decides a token only where a draw falls within 1e-15 of a border, so a text may
 * differ there about once in 1e13 tokens. An exp of our own would end even that, for code that no one would read.
 *
 * Refused: NaN, which is never a choice but a fault upstream, by its place; settings that mean nothing. -inf is a token that
 * cannot come; +inf wins. */
#include "model/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_params p;
    int32_t n_vocab;
    struct rng rng;
    int32_t *recent;  /* a ring of the last repeat_last_n tokens */
    int64_t n_recent; /* told so far */
    struct candidate *candidates;
    int32_t n, n_heap; /* candidates of this token; those not ranked yet */
    float *penalised;  /* a copy of the logits, where there is a penalty */
};

struct sampler_params sampler_defaults(void)
{
    return (struct sampler_params){
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1, .repeat_last_n = 64, .seed = 0};
}

static int check(const struct sampler_params *p, int32_t n_vocab, struct hone_error *e)
{
    /* Written so that NaN fails. */
    if (!(p->temperature >= 0 && p->temperature <= 1e4f))
        return err_set(e, HONE_EUSAGE, "a temperature of %g: 0 (greedy) to 10000", (double)p->temperature);
    if (p->top_k < 0)
        return err_set(e, HONE_EUSAGE, "top-k of %d: 0 (all) or more", p->top_k);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return err_set(e, HONE_EUSAGE, "top-p of %g: 0 (the best alone) to 1 (all)", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(e, HONE_EUSAGE, "min-p of %g: 0 (all) to 1 (the best alone)", (double)p->min_p);
    if (!(p->repeat_penalty > 0 && p->repeat_penalty <= 1e4f))
        return err_set(e, HONE_EUSAGE, "a repeat penalty of %g: above 0, 1 is none", (double)p->repeat_penalty);
    if (p->repeat_last_n < 0 || p->repeat_last_n > 1 << 24)
        return err_set(e, HONE_EUSAGE, "a repeat window of %d tokens: 0 to %d", p->repeat_last_n, 1 << 24);
    if (n_vocab < 1)
        return err_set(e, HONE_EUSAGE, "a vocabulary of %d tokens", n_vocab);
    return 0;
}

int sampler_create(struct sampler **out, const struct sampler_params *p, int32_t n_vocab, struct hone_error *e)
{
    int rc = check(p, n_vocab, e);
    if (rc)
        return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct sampler){.p = *p, .n_vocab = n_vocab, .rng = rng_seed(p->seed)};
        s->recent = calloc((size_t)p->repeat_last_n + 1, sizeof *s->recent);
        s->candidates = calloc((size_t)n_vocab, sizeof *s->candidates);
        s->penalised = calloc((size_t)n_vocab, sizeof *s->penalised);
    }
    if (!s || !s->recent || !s->candidates || !s->penalised) {
        sampler_free(s);
        return err_set(e, HONE_ERESOURCE, "out of memory for a sampler of %d tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->recent);
    free(s->candidates);
    free(s->penalised);
    free(s);
}

void sampler_accept(struct sampler *s, int32_t token)
{
    if (s->p.repeat_last_n && token >= 0 && token < s->n_vocab)
        s->recent[s->n_recent++ % s->p.repeat_last_n] = token;
}

int32_t sampler_argmax(const float *logits, int32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The logits with recent tokens made less likely (Keskar et al. 2019): each distinct one once, towards minus infinity from
 * either side of zero. */
static const float *penalise(struct sampler *s, const float *logits)
{
    int64_t n = s->n_recent < s->p.repeat_last_n ? s->n_recent : s->p.repeat_last_n;
    if (s->p.repeat_penalty == 1 || n == 0)
        return logits;
    memcpy(s->penalised, logits, (size_t)s->n_vocab * sizeof *logits);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = s->recent[i];
        float l = logits[id]; /* from the original, so that a token that comes twice is not punished twice */
        s->penalised[id] = l > 0 ? l / s->p.repeat_penalty : l * s->p.repeat_penalty;
    }
    return s->penalised;
}

static bool better(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Puts x in the place of c[i], where it may be too good (best_first) or too bad, and moves it down among c[0, n). */
static void sift(struct candidate *c, int32_t n, int32_t i, struct candidate x, bool best_first)
{
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(c[child + 1], c[child]) == best_first)
            child++;
        if (better(c[child], x) != best_first)
            break;
        c[i] = c[child];
    }
    c[i] = x;
}

static void heapify(struct candidate *c, int32_t n, bool best_first)
{
    for (int32_t i = n / 2; i-- > 0;)
        sift(c, n, i, c[i], best_first);
}

/* The k best of the logits become the candidates, a heap with the best on top. */
static void select_candidates(struct sampler *s, const float *logits, int32_t k)
{
    struct candidate *c = s->candidates;
    for (int32_t id = 0; id < k; id++)
        c[id] = (struct candidate){logits[id], id};
    if (k < s->n_vocab) {
        heapify(c, k, false);
        for (int32_t id = k; id < s->n_vocab; id++) {
            struct candidate x = {logits[id], id};
            if (better(x, c[0]))
                sift(c, k, 0, x, false);
        }
    }
    heapify(c, k, true);
    s->n = s->n_heap = k;
}

/* The candidate of rank i. Those ranked so far lie behind the heap, the best last. */
static struct candidate ranked(struct sampler *s, int32_t i)
{
    struct candidate *c = s->candidates;
    while (s->n - s->n_heap <= i) {
        struct candidate best = c[0], last = c[--s->n_heap];
        if (s->n_heap)
            sift(c, s->n_heap, 0, last, true);
        c[s->n_heap] = best;
    }
    return c[s->n - 1 - i];
}

/* What x weighs against the best. Infinite logits: their difference is no number, but equals are equal. */
static double share(struct candidate x, float best, double scale)
{
    return x.logit == best ? 1 : exp(((double)x.logit - (double)best) * scale);
}

static double sum_of_all(const struct sampler *s, float best, double scale)
{
    double sum = 0;
    for (int32_t i = 0; i < s->n; i++)
        sum += share(s->candidates[i], best, scale);
    return sum;
}

/* How many of the best candidates stay: the fewest whose shares reach top_p, and of these those whose share is at least min_p
 * of the best's; one at least. */
static int32_t nucleus(struct sampler *s, float best)
{
    bool by_sum = s->p.top_p < 1;
    if (!by_sum && s->p.min_p == 0)
        return s->n;
    double enough = by_sum ? (double)s->p.top_p * sum_of_all(s, best, 1) : INFINITY, reached = 1;
    int32_t kept = 1;
    for (; kept < s->n && reached < enough; kept++) {
        double x = share(ranked(s, kept), best, 1);
        if (x < (double)s->p.min_p)
            break;
        reached += x;
    }
    return kept;
}

/* One of the `kept` best, by their shares at the temperature. */
static int32_t draw(struct sampler *s, int32_t kept, float best)
{
    double scale = 1 / (double)s->p.temperature, sum = 0, passed = 0;
    if (kept == s->n) {
        sum = sum_of_all(s, best, scale);
    } else {
        for (int32_t i = 0; i < kept; i++)
            sum += share(ranked(s, i), best, scale);
    }
    double place = rng_uniform(&s->rng) * sum;
    int32_t chosen = ranked(s, 0).id;
    /* Rounding may leave the place behind the last candidate: then the last that can come. */
    for (int32_t i = 0; i < kept && passed <= place; i++) {
        double x = share(ranked(s, i), best, scale);
        if (x > 0)
            chosen = ranked(s, i).id;
        passed += x;
    }
    return chosen;
}

int sampler_next(struct sampler *s, const float *logits, int32_t *token, struct hone_error *e)
{
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (isnan(logits[i]))
            return err_set(e, HONE_EFAULT, "the logit of token %d is not a number", i);
    logits = penalise(s, logits);
    if (s->p.temperature == 0) {
        *token = sampler_argmax(logits, s->n_vocab);
        return 0;
    }
    select_candidates(s, logits, s->p.top_k && s->p.top_k < s->n_vocab ? s->p.top_k : s->n_vocab);
    float best = ranked(s, 0).logit;
    *token = draw(s, nucleus(s, best), best);
    return 0;
}
