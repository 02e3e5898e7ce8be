/* reference.h: the reference's logits for a set of texts: computed once by the all-reference path, kept in memory and, where a folder is given,
 * in a file, since they cost minutes on a large model and seconds to read back. */
#ifndef LAB_REFERENCE_H
#define LAB_REFERENCE_H

#include "lab/compare.h"
#include "lab/texts.h"

struct reference {
    struct sequence *texts;
    int n_texts;
    int32_t n_vocab;
    float *logits; /* of all texts, one position after the other; malloc'd */
    size_t n;      /* positions */
};

/* progress: share done, returns non-zero to cancel; may be NULL. */
int reference_make(struct reference *r, const struct hone_model *m, const struct hone_session_params *p, int n_texts, size_t text_tokens,
                   const char *cache, int (*progress)(void *user, float done), void *user, struct hone_error *e);
void reference_free(struct reference *r);
/* Feeds the same tokens to s, three quarters of each text as a prefill and the rest one by one, so that both kinds of step are judged. */
int reference_compare(const struct reference *r, struct hone_session *s, struct comparison *c, struct hone_error *e);

#endif
