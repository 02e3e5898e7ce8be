/* degenerate.h: text that proves nothing. A model that is broken in the middle still says "!!!!!!!!" twice alike; so two equal
 * texts of one character, of a short loop, or that ended at once are no evidence that two ways of running a model agree. */
#ifndef LAB_DEGENERATE_H
#define LAB_DEGENERATE_H

#include "model/tokenizer.h"

enum degeneracy { NOT_DEGENERATE, ENDS_EARLY, ONE_CHARACTER, SHORT_LOOP };

struct degenerate {
    enum degeneracy kind;
    size_t at;     /* the end token; the first token of the loop */
    size_t period; /* of the loop, in tokens */
};

/* Looks at n greedy ids; t may have no vocabulary (then only loops are seen). HONE_ERESOURCE. */
int degenerate_find(struct degenerate *d, const struct tokenizer *t, const int32_t *ids, size_t n, struct hone_error *e);
/* "ends at token 3", "one character from token 5 on", "repeats 4 tokens from token 9 on"; "" for NOT_DEGENERATE. Returns text.
 */
char *degenerate_text(const struct degenerate *d, char *text, size_t size);

#endif
