/* bootstrap.c: the symmetric bootstrap-t of the 20 % trimmed mean (Efron and Tibshirani 1993, chapter 12; Wilcox 2012,
 * section 5.3).
 *
 * Each resample gives t = (its trimmed mean - the sample's) / its own standard error; the interval reaches as many standard
 * errors to both sides as 99 % of the |t| did. Studentising is what makes it honest with few samples. Coverage of a nominal 99
 * %, by simulation (600 runs a cell; normal, Student t with 3 and 1.5 degrees of freedom, and bursts of 10 sd in 8 % of
 * samples):
 *
 *              percentile, mean   bootstrap-t, mean   percentile, trimmed   this one
 *   n = 12       95.0 - 96.2 %       99.0 - 100 %        97.2 - 98.2 %     99.0 - 99.3 %
 *   n = 16       96.2 - 96.7 %       98.5 - 100 %        97.5 - 98.8 %     99.0 - 99.8 %
 *   n = 24       96.2 - 98.0 %       99.3 - 100 %        97.8 - 99.0 %     99.2 - 99.7 %
 *
 * and under bursts it is less than half as wide as that of the mean (2.8 against 6.3 sd for n = 16). Trimming costs width where
 * noise is normal (2.0 against 1.5); on shared machines it is not. tests/test_stats.c holds the coverage. */
#include "lab/bootstrap.h"

#include "base/rng.h"
#include "lab/stats.h"

#include <stdlib.h>
#include <string.h>

static const double trim = 0.2;
enum { RESAMPLES = 9999, LARGE = 256 /* samples; from there on a quarter of the resamples is as good */ };

/* n draws with replacement, sorted: how often each is drawn is counted, so nothing has to be sorted again. */
static void resample(const double *sorted, double *out, unsigned *drawn, size_t n, struct rng *r)
{
    memset(drawn, 0, n * sizeof *drawn);
    for (size_t i = 0; i < n; i++)
        drawn[rng_below(r, n)]++;
    for (size_t i = 0; i < n; i++)
        for (unsigned k = drawn[i]; k > 0; k--)
            *out++ = sorted[i];
}

int bootstrap_make(struct bootstrap *b, const double *x, size_t n, double level, uint64_t seed, struct hone_error *e)
{
    *b = (struct bootstrap){.n_sizes = n < LARGE ? RESAMPLES : RESAMPLES / 4};
    if (n < BOOTSTRAP_MIN)
        return err_set(e, HONE_EUSAGE, "%zu samples give no interval; at least %d are needed", n, BOOTSTRAP_MIN);
    double *sorted = calloc(2 * n, sizeof *sorted);
    unsigned *drawn = calloc(n, sizeof *drawn);
    b->sizes = calloc(b->n_sizes, sizeof *b->sizes);
    if (!sorted || !drawn || !b->sizes) {
        free(sorted);
        free(drawn);
        bootstrap_free(b);
        return err_set(e, HONE_ERESOURCE, "no memory for an interval of %zu samples", n);
    }
    memcpy(sorted, x, n * sizeof *sorted);
    stats_sort(sorted, n);
    b->centre = stats_trimmed_mean(sorted, n, trim);
    b->error = stats_trimmed_error(sorted, n, trim);
    struct rng r = rng_seed(seed);
    for (size_t i = 0; i < b->n_sizes; i++) {
        double *again = sorted + n;
        resample(sorted, again, drawn, n, &r);
        double off = fabs(stats_trimmed_mean(again, n, trim) - b->centre), error = stats_trimmed_error(again, n, trim);
        b->sizes[i] = off > 0 ? off / error : 0; /* equal values drawn n times: error 0, |t| infinite */
    }
    stats_sort(b->sizes, b->n_sizes);
    b->reach = b->sizes[(size_t)ceil(level * ((double)b->n_sizes + 1)) - 1];
    double half = b->error > 0 ? b->reach * b->error : 0;
    b->lo = b->centre - half;
    b->hi = b->centre + half;
    free(sorted);
    free(drawn);
    return 0;
}

void bootstrap_free(struct bootstrap *b)
{
    free(b->sizes);
    *b = (struct bootstrap){0};
}

double bootstrap_p(const struct bootstrap *b, double value)
{
    double off = fabs(b->centre - value);
    double t = off > 0 ? off / b->error : 0;
    size_t lo = 0, hi = b->n_sizes; /* the first |t| that is at least t */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (b->sizes[mid] < t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (double)(b->n_sizes - lo + 1) / (double)(b->n_sizes + 1);
}

double bootstrap_needed(const struct bootstrap *b, size_t n, double half_width)
{
    double ratio = half_width > 0 ? b->reach * b->error / half_width : INFINITY;
    return (double)n * ratio * ratio;
}
