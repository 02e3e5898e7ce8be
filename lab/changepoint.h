/* changepoint.h: where in a history of figures the level changed. */
#ifndef LAB_CHANGEPOINT_H
#define LAB_CHANGEPOINT_H

#include "base/err.h"

#include <stddef.h>

struct changepoint {
    size_t at;            /* the first of the new level */
    double p;             /* the share of random orders that would look as changed as this one */
    double before, after; /* medians of the stretches on both sides, each up to the next change */
};

/* n figures in their order. *list: malloc'd, in order, n_found of them. In a history without any change, of figures that are
 * independent and alike, one is found with a chance of at most alpha. */
int changepoint_find(const double *x, size_t n, double alpha, struct changepoint **list, size_t *n_found, struct hone_error *e);

enum { CHANGEPOINT_MIN = 2 }; /* figures on each side of a change */

#endif
