/* sequence.h: an interval for the centre of a stream of samples that holds at every moment at once: it may be looked at after
 * each sample, and the run may end because of what it says. An interval for a number of samples fixed beforehand (bootstrap.h)
 * may not. */
#ifndef LAB_SEQUENCE_H
#define LAB_SEQUENCE_H

#include "base/err.h"

#include <stddef.h>

/* Zeroed but for alpha: a sequence without samples, of the whole line. */
struct always_valid {
    double alpha;  /* the chance that the interval ever leaves out the median */
    double lo, hi; /* all that the samples so far allow; lo > hi: no median fits them all, so it moved while they were taken */
    double *x;     /* the samples, ascending; malloc'd */
    size_t n, cap;
    size_t few; /* so many samples above a value rule it out as too low; more than n: none can yet */
};

int always_valid_add(struct always_valid *s, double x, struct hone_error *e);
void always_valid_free(struct always_valid *s);

/* The evidence, as a betting gain (1: none), that more than half of the samples lie above some value when `above` of n do.
 * Under the opposite its chance of ever exceeding k is at most 1 / k. */
double sign_gain(size_t above, size_t n);

#endif
