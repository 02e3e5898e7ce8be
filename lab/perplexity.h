/* perplexity.h: how surprised a model is by a text, and how far its predictions are from those of a base.
 *
 * As llama.cpp's tool computes it: the text's ids are cut into windows of n_ctx, each begins on an empty cache (with bos in
 * place of its first id where the vocabulary wants one), and the second half is scored, where every token has at least n_ctx /
 * 2 before it: perplexity = exp(mean of -log p(token i + 1 | window up to i)), i from n_ctx / 2 to n_ctx - 2 of each window.
 * The standard error is that of the mean, carried through exp. Ids behind the last whole window are left out, and counted. */
#ifndef LAB_PERPLEXITY_H
#define LAB_PERPLEXITY_H

#include "engine/engine.h"
#include "lab/kl_base.h"

#include <jansson.h>

struct perplexity;

struct perplexity_options {
    int32_t n_ctx;              /* of a window; the session's context is at least as long */
    int64_t n_chunks;           /* windows at most; 0: all */
    int n_threads;              /* that sum up logits; 0: one a core */
    struct kl_base *save;       /* is filled; NULL: no base is made */
    const struct kl_base *base; /* to be compared with, of the same ids and n_ctx; NULL: none */
    /* After each window: what has come of all until then. Non-zero ends the run. NULL: none. */
    int (*each)(void *user, const struct perplexity *p);
    int (*progress)(void *user, float done); /* within windows; non-zero ends the run; NULL: none */
    void *user;
};

enum { KL_QUANTILES = 10, AGREEMENT_QUANTILES = 5 };
extern const double kl_quantile_at[KL_QUANTILES], agreement_quantile_at[AGREEMENT_QUANTILES];

struct perplexity {
    int64_t n_chunks, done; /* windows: asked for, scored */
    int64_t n_unused;       /* ids behind the last window */
    int64_t n;              /* scored positions */
    double nll, nll_error;  /* mean, its standard error */
    double value, error;    /* the perplexity, its standard error */
    double chunk;           /* the perplexity of the last window alone */
    /* With a base: the mean divergence, estimated, with its standard error (of positions and drawing together); the means of
     * its bounds (kl_base.h); how much of the base's probability was not kept. */
    double kl, kl_error, kl_lower, kl_upper, outside, outside_max;
    double base_value;                               /* the base's perplexity on the same positions */
    double ratio, ratio_error;                       /* mean of the difference of losses: ln(perplexity / base's) */
    double agreement, agreement_error;               /* share of positions whose likeliest token is the base's */
    double shift, shift_rms;                         /* of the probability of the token that came: mean and RMS of the change */
    double kl_quantiles[KL_QUANTILES];               /* over positions, of the estimate */
    double agreement_quantiles[AGREEMENT_QUANTILES]; /* over windows */
    /* Private: what the figures are made of. */
    struct perplexity_sums {
        double nll, nll2, kl, kl2, kl_lower, kl_upper, outside, base_nll, ratio, ratio2, shift, shift2;
        int64_t same;
    } sums;
    double *kls, *agreements; /* [n], [done]; malloc'd, with a base */
};

/* Scores ids with sequence 0 of s. 0, or HONE_ECANCELED with what was finished in *p (p->done may be 0), both to be freed;
 * other failures leave nothing. HONE_EINPUT where the ids make no window. */
int perplexity_run(struct perplexity *p, struct hone_session *s, const struct hone_model *m, const int32_t *ids, size_t n,
                   const struct perplexity_options *o, struct hone_error *e);
void perplexity_free(struct perplexity *p);
/* May another model's logits be compared with this base? 0, or HONE_EINPUT with what stands against it. ids NULL: the base's
 * own will be used. */
int perplexity_base_fits(const struct kl_base *b, const struct hone_model *m, const int32_t *ids, size_t n,
                         struct hone_error *e);
json_t *perplexity_json(const struct perplexity *p, bool with_base);

#endif
