/* reference.h: the reference's logits for a set of texts: computed once by the all-reference path, kept in memory and, where a folder is given,
 * in a file, since they cost minutes on a large model and seconds to read back.
 *
 * Each text is a prompt and the reference's own greedy continuation; what is compared are the positions that predict the continuation.
 * Positions inside a text that the model did not choose are often coin tosses: with 8-bit activations SmolLM2 differs in 5 % of those. A
 * synthetic model is compared at every position of random ids. */
#ifndef LAB_REFERENCE_H
#define LAB_REFERENCE_H

#include "lab/compare.h"
#include "lab/texts.h"

struct reference {
    struct sequence *texts; /* prompt and continuation */
    size_t first[N_TEXTS];  /* the first compared position of each */
    int n_texts;
    int32_t n_vocab;
    float *logits; /* of the compared positions, one after the other; malloc'd */
    size_t n;      /* compared positions */
};

/* n_texts prompts of at most prompt_tokens tokens, continued by n_greedy, on one device whatever p is split over. progress:
 * share done, returns non-zero to cancel; may be NULL. */
int reference_make(struct reference *r, const struct hone_model *m, const struct hone_session_params *p, int n_texts, size_t prompt_tokens,
                   size_t n_greedy, const char *cache, int (*progress)(void *user, float done), void *user, struct hone_error *e);
void reference_free(struct reference *r);
/* Feeds the same tokens to s: prompt and half of what is compared as a prefill, the rest one by one, so that both kinds of step are
 * judged. */
int reference_compare(const struct reference *r, struct hone_session *s, struct comparison *c, struct hone_error *e);

#endif
