/* stats.c: order statistics. Means are not offered: one sample that waited for the machine's neighbour moves a mean of ten by as much
 * as the effect that is looked for. */
#include "lab/stats.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void stats_sort(double *x, size_t n)
{
    qsort(x, n, sizeof *x, ascending);
}

double stats_quantile(const double *sorted, size_t n, double q)
{
    if (!n)
        return 0;
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

double stats_median(double *x, size_t n)
{
    stats_sort(x, n);
    return stats_quantile(x, n, 0.5);
}
