/* merger.h: the loop that both tokenizer models share: of all neighbours that may join, join the best pair, until none may.
 * Private to the tokenizer. */
#ifndef MODEL_MERGER_H
#define MODEL_MERGER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MERGER_NEVER UINT32_MAX /* a rank: this pair does not join */

struct symbol {
    int32_t id;         /* of the token that it is; the model's own meaning below 0 */
    uint32_t at, size;  /* bytes of the word */
    int32_t prev, next; /* neighbours, -1 at the ends */
    uint32_t rank;      /* of joining this one and the next; the lowest joins first, of equals the leftmost */
    int32_t joined;     /* what they become */
};

/* Sets left->rank and left->joined for the pair. */
typedef void merger_join_fn(const void *context, struct symbol *left, const struct symbol *right);

/* A zeroed one is empty and usable. */
struct merger {
    struct symbol *symbols;
    size_t n, cap;
    uint64_t *heap;
    size_t heap_n, heap_cap;
};

void merger_free(struct merger *m);
/* Forgets the last word and makes room for at most n symbols (n < INT32_MAX). */
int merger_reset(struct merger *m, size_t n, struct hone_error *e);
static inline void merger_add(struct merger *m, int32_t id, size_t at, size_t size)
{
    m->symbols[m->n] = (struct symbol){.id = id, .at = (uint32_t)at, .size = (uint32_t)size, .prev = (int32_t)m->n - 1};
    m->n++;
}
/* Joins what joins. The result is the chain from symbols[0] along `next`. */
void merger_run(struct merger *m, merger_join_fn *join, const void *context);

#endif
