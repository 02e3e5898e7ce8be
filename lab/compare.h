/* compare.h: what counts as right: logits of a candidate against those of a reference, position by position, both fed the same
 * tokens (teacher forcing), so that one flipped token does not hide the rest.
 *
 * Near-tie: a differing top-1 is excused only if the reference's gap between its two best logits is at most 4 times the RMS logit error at
 * that position, and that error is within the bound of the weight type. More than 2 % of positions excused, beyond what chance
 * gives in a sample of this size, is a failure. */
#ifndef LAB_COMPARE_H
#define LAB_COMPARE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum compare_class { CLASS_BIT_IDENTICAL, CLASS_TOKEN_IDENTICAL, CLASS_QUALITY_EQUAL, CLASS_DIFFERENT };

struct compare_position {
    int32_t top_ref, top_got;
    float kl;       /* KL(reference || candidate), nats */
    float nmse;     /* of the logits, both centred: softmax does not see a constant */
    float rms, gap; /* RMS logit error; the reference's gap between its two best */
    bool excused;
};

struct comparison {
    int32_t n_vocab;
    struct compare_position *positions; /* malloc'd */
    size_t n, cap;
    bool bits_equal, nan;   /* over all positions; a NaN in the candidate */
    size_t first_nan;
    double largest_error;
    /* Filled by comparison_judge: */
    size_t equal, excused, wrong; /* positions whose top-1 agrees, is excused, is neither */
    size_t first_wrong;     /* of those that differ, excused or not; n: none */
    double kl_mean, kl_p99, kl_max, nmse, nmse_max; /* nmse: the mean over positions */
    enum compare_class verdict;
    char reason[160];       /* of CLASS_DIFFERENT, "" otherwise */
};

/* The largest normalised mean squared error of centred logits that 8-bit activations may cause with weights of this type, by the
 * largest measured on two real models times four. */
double compare_bound(void);
/* Adds one position. */
int comparison_add(struct comparison *c, const float *ref, const float *got, struct hone_error *e);
/* Sums up and gives the verdict: quality-equal needs mean KL at most kl_bound and all positions equal or excused. */
void comparison_judge(struct comparison *c, double kl_bound);
void comparison_free(struct comparison *c);
const char *compare_class_name(enum compare_class v);
json_t *comparison_json(const struct comparison *c);

#endif
