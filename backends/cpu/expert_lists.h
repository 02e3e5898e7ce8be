/* expert_lists.h: which tokens go to which expert: the pairs (place j, token t) of a mul_mat_id node, sorted by expert. Each worker sorts
 * them for itself, in two passes, which needs no meeting of the threads. */
#ifndef BACKENDS_CPU_EXPERT_LISTS_H
#define BACKENDS_CPU_EXPERT_LISTS_H

#include "backends/backend.h"

#include <string.h>

struct expert_lists {
    int32_t *start; /* [n_expert + 2]: pairs of expert e are order[start[e]] to order[start[e + 1] - 1]; behind the last one, those of none */
    int32_t *order; /* numbers j + n_used t */
    int32_t n_expert;
};

static inline size_t expert_lists_bytes(const struct node *n)
{
    return (sizeof(int32_t) * (size_t)(n->src[0]->ne[2] + 2 + n->out->ne[1] * n->out->ne[2]) + 63) / 64 * 64;
}

/* In `room`, of expert_lists_bytes. */
static inline struct expert_lists expert_lists_make(const struct node *n, void *room)
{
    const struct tensor *ids = n->src[2];
    int64_t used = ids->ne[0], pairs = used * ids->ne[1], n_expert = n->src[0]->ne[2];
    struct expert_lists l = {.start = room, .order = (int32_t *)room + n_expert + 2, .n_expert = (int32_t)n_expert};
    memset(l.start, 0, sizeof *l.start * (size_t)(n_expert + 2));
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t p = 0; p < pairs; p++) {
            int64_t id = tensor_read_index(ids, p % used, p / used);
            int32_t e = id >= 0 && id < n_expert ? (int32_t)id : l.n_expert;
            if (pass)
                l.order[l.start[e]++] = (int32_t)p;
            else
                l.start[e + 1]++;
        }
        for (int64_t e = 0; e < n_expert + 1 && !pass; e++)
            l.start[e + 1] += l.start[e];
    }
    memmove(l.start + 1, l.start, sizeof *l.start * (size_t)(n_expert + 1)); /* placing moved each start to its end */
    l.start[0] = 0;
    return l;
}

/* Rows of a pair: of X, and of the output. */
static inline const void *expert_input(const struct node *n, int32_t pair)
{
    const struct tensor *x = n->src[1];
    int64_t used = n->out->ne[1];
    return tensor_row(x, x->ne[1] == 1 ? 0 : pair % used, pair / used, 0);
}

static inline float *expert_output(const struct node *n, int32_t pair)
{
    return tensor_row(n->out, pair % n->out->ne[1], pair / n->out->ne[1], 0);
}

/* The bias of an expert, [m] one behind the other, or NULL. */
static inline const float *expert_bias(const struct node *n, int64_t expert)
{
    return n->n_src > 3 && n->src[3] ? tensor_row(n->src[3], expert, 0, 0) : NULL;
}

static inline bool expert_rows_fit(const struct node *n, struct reason *r)
{
    if (n->out->nb[0] != sizeof(float))
        return fits_not(r, "the elements of an output row do not lie one behind the other");
    if (n->n_src > 3 && n->src[3] && n->src[3]->nb[0] != sizeof(float))
        return fits_not(r, "the elements of a bias do not lie one behind the other");
    if (n->out->ne[1] * n->out->ne[2] > INT32_MAX)
        return fits_not(r, "more pairs of a token and an expert than 2^31");
    return true;
}

#endif
