/* sequence.c: a confidence sequence for the median, from a sign test that may be looked at at any time.
 *
 * For a value v count the samples above it. If the median is at most v, each comes out above with a chance of at most 1/2,
 * whatever came before; so what a gambler makes who bets on "above" is a nonnegative supermartingale, and by Ville's inequality
 * it ever exceeds 2 / alpha with a chance of at most alpha / 2. The bets mix all shares p from 1/2 to 1 evenly (Robbins 1970):
 *
 *   gain = 2 * integral over p of (2 p)^above (2 (1 - p))^(n - above) = 2^(n + 1) / ((n + 1) C(n, above)) * P(Bin(n + 1, 1/2)
 * <= above)
 *
 * A value that one of the two gamblers has broken the bank on is out for good; what is left is an interval between two of the
 * samples. This is the Bernoulli form of the quantile sequences of Howard and Ramdas (2022, "Sequential estimation of quantiles
 * with applications to A/B testing and best-arm identification", Bernoulli 28(3)).
 *
 * It asks nothing of the noise but that its median is where the effect is: no variance, no moments, no bound; a burst of a
 * thousand times the noise is one sign. What lost: the asymptotic sequence of Waudby-Smith and others (2021), which plugs in
 * the variance and is not yet valid at the dozen blocks where one wants to stop; empirical-Bernstein sequences, which need a
 * bound on the samples and pay for it in width. The price here: no fewer than 11 blocks can decide at alpha 0.01. */
#include "lab/sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double sign_gain(size_t above, size_t n)
{
    double m = (double)n, k = (double)above;
    double choose = lgamma(m + 1) - lgamma(k + 1) - lgamma(m - k + 1); /* log C(n, above) */
    double at_most = 0, term = -(m + 1) * M_LN2;                       /* log of P(Bin(n + 1, 1/2) = 0) */
    for (size_t i = 0; i <= above; i++) {
        at_most += exp(term);
        term += log((m + 1 - (double)i) / ((double)i + 1));
    }
    return exp((m + 1) * M_LN2 - log(m + 1) - choose + log(at_most > 0 ? at_most : 5e-324));
}

static int reserve(struct always_valid *s, struct hone_error *e)
{
    if (s->n < s->cap)
        return 0;
    size_t cap = s->cap ? 2 * s->cap : 64;
    double *x = realloc(s->x, cap * sizeof *x);
    if (!x)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu samples", cap);
    s->x = x;
    s->cap = cap;
    return 0;
}

int always_valid_add(struct always_valid *s, double x, struct hone_error *e)
{
    int rc = reserve(s, e);
    if (rc)
        return rc;
    if (!s->n) {
        s->lo = -INFINITY;
        s->hi = INFINITY;
        s->few = 1; /* more than there are: none is enough */
    }
    size_t at = s->n++;
    for (; at > 0 && s->x[at - 1] > x; at--)
        s->x[at] = s->x[at - 1];
    s->x[at] = x;
    s->few++; /* one sample more never makes fewer enough */
    while (s->few > 0 && sign_gain(s->few - 1, s->n) >= 2 / s->alpha)
        s->few--;
    if (s->few <= s->n) {
        s->lo = fmax(s->lo, s->x[s->n - s->few]); /* `few` samples lie at or above it: whatever is below it is out */
        s->hi = fmin(s->hi, s->x[s->few - 1]);
    }
    return 0;
}

void always_valid_free(struct always_valid *s)
{
    free(s->x);
    *s = (struct always_valid){.alpha = s->alpha};
}
