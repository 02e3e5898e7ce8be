/* shift.h: by how much one sample lies above another, when the two are not paired. */
#ifndef LAB_SHIFT_H
#define LAB_SHIFT_H

#include "base/err.h"

#include <stddef.h>

struct shift {
    double estimate; /* the median of all differences b[j] - a[i] */
    double lo, hi;   /* of the interval; -inf and +inf when the samples are too few for the level */
};

/* a, b: samples in any order, at least one each, sorted in place. level: 0.99. */
int shift_make(struct shift *s, double *a, size_t n_a, double *b, size_t n_b, double level, struct hone_error *e);

#endif
