/* difference.h: is this tensor right? The one judgement of a kernel's output, shared by check and shadow. (Whether a whole run
 * is right is another question: compare.h.)
 *
 * Three questions, each with its place in the answer. Is there a NaN or an infinity where the reference has none (or the other
 * way round)? Does any single value err by more than a bound? Is the normalised mean squared error within the op's tolerance?
 * The mean alone would pass one wrong value in a million, and a bound alone a small bias of everything. */
#ifndef LAB_DIFFERENCE_H
#define LAB_DIFFERENCE_H

#include "ops/ops.h"

enum difference_kind {
    DIFFERENCE_NONE,
    DIFFERENCE_NAN,   /* not finite where the other is */
    DIFFERENCE_VALUE, /* one value errs beyond the bound */
    DIFFERENCE_NMSE,  /* all of them together err beyond the tolerance */
    DIFFERENCE_BITS,  /* the op is exact, and this is not; or equal values in unequal bytes (a block's derived fields) */
};

struct difference {
    enum difference_kind kind;
    int64_t row[3], column; /* of the first NaN or unequal value, else of the value that errs most; row: (i1, i2, i3) */
    double got, want;       /* there */
    double nmse, tolerance; /* the op's; wider where the output has only a few values */
    double bound;           /* of a single value's error, without the step of the output's format */
    double largest;         /* error of a single value, less that step */
    int64_t border;         /* values that lie a step of the output's format off */
};

/* Holds got to want, of one shape and format and in file order. tolerance is the op's; 0 asks for the very bits. */
void difference_find(struct difference *d, const struct tensor *got, const struct tensor *want, double tolerance);
/* "row 3, column 17 of out is 2, the reference gives 1", where wanted is "the reference gives". Returns text. */
char *difference_text(const struct difference *d, const struct tensor *t, const char *wanted, char *text, size_t size);
/* "row 3, column 17"; with all three row indices where the tensor has more than two dimensions. Returns text. */
char *place_text(const struct tensor *t, const int64_t row[3], int64_t column, char *text, size_t size);

#endif
