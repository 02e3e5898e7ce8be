/* sampler.c: a chain of steps over one array of candidates, sorted by logit only when a step needs order: repeat penalty, top-k, then
 * (on probabilities at temperature 1) top-p and min-p, temperature, draw. The order is llama.cpp's, so that the same flags mean the same. Sums run in
 * double over a fixed order: ties are broken by id, so the same logits and seed draw the same token on any machine
 * whose exp rounds alike; a draw that falls within 1e-15 of a border is the exception. */
#include "model/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    int32_t id;
    float logit;
    double p;
};

struct sampler {
    struct sampler_params params;
    struct rng rng;
    int32_t n_vocab;
    struct candidate *candidates; /* n_vocab */
    int32_t *recent;              /* the last repeat_last_n accepted tokens, a ring */
    int n_recent, next;
};

struct sampler_params sampler_defaults(void)
{
    return (struct sampler_params){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1, .repeat_last_n = 64};
}

static int check(const struct sampler_params *p, int32_t n_vocab, struct hone_error *e)
{
    if (n_vocab < 1)
        return err_set(e, HONE_EUSAGE, "a vocabulary of %d", n_vocab);
    if (!(p->temperature >= 0 && p->temperature <= 1e6f)) /* also a NaN */
        return err_set(e, HONE_EUSAGE, "a temperature of %g; 0 to 1e6 are possible", (double)p->temperature);
    if (p->top_k < 0)
        return err_set(e, HONE_EUSAGE, "top-k of %d; 0 is all", p->top_k);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return err_set(e, HONE_EUSAGE, "top-p of %g; above 0 to 1 are possible", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(e, HONE_EUSAGE, "min-p of %g; 0 to 1 are possible", (double)p->min_p);
    if (!(p->repeat_penalty > 0 && p->repeat_penalty <= 1e6f))
        return err_set(e, HONE_EUSAGE, "a repeat penalty of %g; above 0 to 1e6 are possible, 1 is off", (double)p->repeat_penalty);
    if (p->repeat_last_n < 0 || p->repeat_last_n > 1 << 24)
        return err_set(e, HONE_EUSAGE, "repeat-last-n of %d; 0 to %d are possible", p->repeat_last_n, 1 << 24);
    return 0;
}

int sampler_create(struct sampler **out, const struct sampler_params *p, int32_t n_vocab, struct hone_error *e)
{
    *out = NULL;
    int rc = check(p, n_vocab, e);
    if (rc)
        return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct sampler){.params = *p, .rng = rng_seed(p->seed), .n_vocab = n_vocab};
        s->candidates = calloc((size_t)n_vocab, sizeof *s->candidates);
        s->recent = calloc((size_t)p->repeat_last_n + 1, sizeof *s->recent);
    }
    if (!s || !s->candidates || !s->recent) {
        sampler_free(s);
        return err_set(e, HONE_ERESOURCE, "no memory for a sampler over %d tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->candidates);
    free(s->recent);
    free(s);
}

void sampler_accept(struct sampler *s, int32_t token)
{
    int room = s->params.repeat_last_n;
    if (!room || token < 0 || token >= s->n_vocab)
        return;
    s->recent[s->next] = token;
    s->next = (s->next + 1) % room;
    s->n_recent += s->n_recent < room;
}

int32_t sampler_argmax(const float *logits, int32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Each recent token once, however often it came: Keskar et al., arXiv 1909.05858. */
static void penalise(struct sampler *s)
{
    float penalty = s->params.repeat_penalty;
    for (int i = 0; i < s->n_recent && penalty != 1; i++) {
        struct candidate *c = &s->candidates[s->recent[i]];
        if (c->p != 0) /* done already; p is free until the probabilities are set */
            continue;
        c->logit = c->logit > 0 ? c->logit / penalty : c->logit * penalty;
        c->p = 1;
    }
}

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Moves the k best to the front, in no order: quickselect, since sorting 262,144 candidates for the best 40 costs 25 ms. */
static void select_best(struct candidate *c, int32_t n, int32_t k)
{
    int32_t lo = 0, hi = n - 1;
    while (lo < hi) {
        struct candidate pivot = c[lo + (hi - lo) / 2];
        int32_t i = lo, j = hi;
        while (i <= j) {
            while (by_logit(&c[i], &pivot) < 0)
                i++;
            while (by_logit(&c[j], &pivot) > 0)
                j--;
            if (i <= j) {
                struct candidate t = c[i];
                c[i++] = c[j];
                c[j--] = t;
            }
        }
        if (k - 1 <= j)
            hi = j;
        else if (k - 1 >= i)
            lo = i;
        else
            return;
    }
}

/* Probabilities of the first n sorted candidates at a temperature; returns their sum, the first one's being 1. */
static double weigh(struct candidate *c, int32_t n, double temperature)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += c[i].p = exp(((double)c[i].logit - (double)c[0].logit) / temperature);
    return sum;
}

static int32_t cut_top_p(const struct candidate *c, int32_t n, double top_p, double sum)
{
    double acc = 0;
    for (int32_t i = 0; i < n && top_p < 1; i++) {
        acc += c[i].p;
        if (acc >= top_p * sum)
            return i + 1;
    }
    return n;
}

static int32_t cut_min_p(const struct candidate *c, int32_t n, double min_p)
{
    int32_t keep = 1;
    while (keep < n && c[keep].p >= min_p)
        keep++;
    return keep;
}

int sampler_next(struct sampler *s, const float *logits, int32_t *token, struct hone_error *e)
{
    const struct sampler_params *p = &s->params;
    struct candidate *c = s->candidates;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (isnan(logits[i]))
            return err_set(e, HONE_EFAULT, "the logit of token %d is no number", i);
        c[i] = (struct candidate){i, logits[i], 0};
    }
    penalise(s);
    int32_t n = p->top_k && p->top_k < s->n_vocab ? p->top_k : s->n_vocab;
    if (p->temperature == 0)
        n = 1;
    if (n < s->n_vocab)
        select_best(c, s->n_vocab, n);
    qsort(c, (size_t)n, sizeof *c, by_logit);
    *token = c[0].id;
    if (n == 1 || !isfinite(c[0].logit)) /* greedy; or an infinite best, beside which nothing else has weight */
        return 0;
    n = cut_top_p(c, n, (double)p->top_p, weigh(c, n, 1));
    n = cut_min_p(c, n, (double)p->min_p);
    double left = rng_uniform(&s->rng) * weigh(c, n, (double)p->temperature);
    int32_t i = 0;
    while (i + 1 < n && left >= c[i].p)
        left -= c[i++].p;
    *token = c[i].id;
    return 0;
}
