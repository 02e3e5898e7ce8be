/* bootstrap.h: an interval for the centre of a few noisy samples, and the p of any value that the centre might have. */
#ifndef LAB_BOOTSTRAP_H
#define LAB_BOOTSTRAP_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct bootstrap {
    double centre; /* the trimmed mean */
    double error;  /* its standard error */
    double reach;  /* the interval is centre +- reach * error */
    double lo, hi;
    double *sizes; /* |t| of the resamples, ascending; malloc'd; infinite ones at the end */
    size_t n_sizes;
};

enum { BOOTSTRAP_MIN = 8 };

/* x: n samples in any order, at least BOOTSTRAP_MIN; level: 0.99. The same seed gives the same interval. After a failure *b is
 * empty. */
int bootstrap_make(struct bootstrap *b, const double *x, size_t n, double level, uint64_t seed, struct hone_error *e);
void bootstrap_free(struct bootstrap *b);
/* The two-sided p of the hypothesis that the centre is `value`. It is at most 1 - level just where the value lies outside the
 * interval. */
double bootstrap_p(const struct bootstrap *b, double value);
/* How many samples like these, in all, would take the interval to this half width. */
double bootstrap_needed(const struct bootstrap *b, size_t n, double half_width);

#endif
