/* stats.h: summaries of samples, and tests that need no distribution. Intervals are in bootstrap.h, sequences in sequence.h. */
#ifndef LAB_STATS_H
#define LAB_STATS_H

#include <stdbool.h>
#include <stddef.h>

/* Sorts x in place and returns its median (the mean of the middle two for even n); 0 for n 0. */
double stats_median(double *x, size_t n);
/* The quantile q of sorted samples, interpolated between neighbours. */
double stats_quantile(const double *sorted, size_t n, double q);
void stats_sort(double *x, size_t n);

/* The mean of sorted samples without the floor(trim * n) smallest and largest; 0 for n 0. trim: 0 to below 0.5. */
double stats_trimmed_mean(const double *sorted, size_t n, double trim);
/* Its standard error, from the winsorised variance (Tukey and McLaughlin 1963; Yuen 1974). n at least 2. */
double stats_trimmed_error(const double *sorted, size_t n, double trim);

/* Wilcoxon's signed-rank test of symmetry about 0: the two-sided p. Exact, also with ties (midranks), for up to 200 samples
 * that are not 0, by the normal approximation beyond; samples of 0 are left out, as Wilcoxon did. 1 when nothing is left; -1
 * when memory is out. */
double stats_signed_rank(const double *x, size_t n);

/* Holm (1979): which of n hypotheses are rejected when at most alpha of all true ones together may be. rejected has n entries.
 */
void stats_holm(const double *p, int n, double alpha, bool *rejected);

#endif
