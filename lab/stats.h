/* stats.h: summaries of samples. */
#ifndef LAB_STATS_H
#define LAB_STATS_H

#include <stddef.h>

/* Sorts x in place and returns its median (the mean of the middle two for even n); 0 for n 0. */
double stats_median(double *x, size_t n);
/* The quantile q of sorted samples, interpolated between neighbours. */
double stats_quantile(const double *sorted, size_t n, double q);
void stats_sort(double *x, size_t n);

#endif
