/* added.h: finds added tokens (control, unknown and user-defined) in a text. Private to the tokenizer. */
#ifndef MODEL_ADDED_H
#define MODEL_ADDED_H

#include "model/vocab.h"

struct added {
    int32_t *ids; /* by text, in byte order */
    int32_t n;
    uint8_t begins[256]; /* bit 0: a user-defined token begins with this byte; bit 1: any added token does */
};

int added_build(struct added *d, struct arena *a, const struct vocab *v, struct hone_error *e);
/* The first added token in text[at, n): 1 with its place and id (the longest, where several begin at one place), else 0.
 * Control and unknown tokens count only with `special`. */
int added_find(const struct added *d, const struct vocab *v, const char *text, size_t at, size_t n, bool special, size_t *begin,
               int32_t *id);

#endif
