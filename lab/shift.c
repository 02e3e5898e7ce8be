/* shift.c: the shift between two samples by Hodges and Lehmann (1963), with the interval that Mann and Whitney's test gives
 * (Moses; see Hollander and Wolfe, "Nonparametric Statistical Methods", ch. 4): the estimate is the median of all differences,
 * the interval goes from the c-th smallest to the c-th largest of them. It holds for any distribution, exactly, as long as
 * samples are independent and only shifted: of logarithms, a ratio. A bootstrap of medians of five samples has intervals that
 * miss far more often than they say.
 *
 * Differences are not listed (two runs of 100,000 samples have 10^10): the k-th is found by bisection on the value, counting
 * with two pointers over the sorted samples. */
#include "lab/shift.h"

#include "lab/stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT = 40 }; /* samples each, up to which the distribution of U is counted: 1600 values, a millisecond */

/* How many of the n_a * n_b differences are at most t: the larger b, the fewer a are large enough. */
static double count_below(const double *a, size_t n_a, const double *b, size_t n_b, double t)
{
    double n = 0;
    for (size_t i = 0, j = 0; j < n_b; j++) {
        while (i < n_a && b[j] - a[i] > t)
            i++;
        n += (double)(n_a - i);
    }
    return n;
}

/* The k-th smallest difference, k from 1. */
static double kth(const double *a, size_t n_a, const double *b, size_t n_b, double k)
{
    double lo = b[0] - a[n_a - 1], hi = b[n_b - 1] - a[0];
    if (count_below(a, n_a, b, n_b, lo) >= k)
        return lo;
    for (int i = 0; i < 200; i++) { /* until lo and hi are neighbours */
        double mid = lo + (hi - lo) / 2;
        if (!(mid > lo && mid < hi))
            break;
        if (count_below(a, n_a, b, n_b, mid) >= k)
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

/* The largest c with P(U < c) <= tail under equal distributions, by counting: the number of ways to get u with n and m samples
 * is that with one a less (its largest value is above all b's that remain) plus that with one b less. */
static int exact_rank(size_t n, size_t m, double tail, size_t *c, struct hone_error *e)
{
    size_t size = n * m + 1;
    double *ways = calloc((m + 1) * size, sizeof *ways); /* [b's used][u], for the a's used so far */
    if (!ways)
        return err_set(e, HONE_ERESOURCE, "no memory for the distribution of %zu and %zu samples", n, m);
    for (size_t j = 0; j <= m; j++)
        ways[j * size] = 1;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) /* in place: row j - 1 is of i already, row j of i - 1 */
            for (size_t u = size; u-- > 0;)
                ways[j * size + u] = (u >= j ? ways[j * size + u - j] : 0) + ways[(j - 1) * size + u];
    double all = 0, below = 0;
    for (size_t u = 0; u < size; u++)
        all += ways[m * size + u];
    for (*c = 0; *c < size; ++*c) {
        below += ways[m * size + *c];
        if (below / all > tail)
            break;
    }
    free(ways);
    return 0;
}

/* The quantile of the standard normal, by bisection on erfc. */
static double normal_quantile(double p)
{
    double lo = -40, hi = 40;
    for (int i = 0; i < 100; i++) {
        double mid = (lo + hi) / 2;
        if (0.5 * erfc(-mid / sqrt(2)) < p)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

int shift_make(struct shift *s, double *a, size_t n_a, double *b, size_t n_b, double level, struct hone_error *e)
{
    double pairs = (double)n_a * (double)n_b, tail = (1 - level) / 2;
    size_t c = 0;
    stats_sort(a, n_a);
    stats_sort(b, n_b);
    double middle = kth(a, n_a, b, n_b, floor((pairs + 1) / 2));
    if (fmod(pairs, 2) == 0)
        middle = (middle + kth(a, n_a, b, n_b, pairs / 2 + 1)) / 2;
    *s = (struct shift){middle, -INFINITY, INFINITY};
    if (n_a <= EXACT && n_b <= EXACT) {
        int rc = exact_rank(n_a, n_b, tail, &c, e);
        if (rc)
            return rc;
    } else {
        double at = pairs / 2 + normal_quantile(tail) * sqrt(pairs * (double)(n_a + n_b + 1) / 12);
        c = at > 0 ? (size_t)at : 0;
    }
    if (c > 0) {
        s->lo = kth(a, n_a, b, n_b, (double)c);
        s->hi = kth(a, n_a, b, n_b, pairs + 1 - (double)c);
    }
    return 0;
}
