/* collective.h: how a kernel of a collective gets at the other ranks' partials. It reads them where they lie (comm_share) and
 * sums as it goes on, each worker its part, so a fused kernel writes the sum only where it must. Bound by the lines that come
 * from other cores' caches. */
#ifndef BACKENDS_CPU_COLLECTIVE_H
#define BACKENDS_CPU_COLLECTIVE_H

#include "backends/backend.h"
#include "comm/comm.h"

#include <string.h>

/* All ranks' partials of a node; of a rank without a group its own. */
struct partials {
    struct comm_block alone;
    const struct comm_block *all;
    int n;
};

static inline int partials_get(struct partials *p, const struct exec *x, const struct node *n)
{
    struct comm *c = x->worker.comm;
    *p = (struct partials){{n->src[0]->data, tensor_nbytes(n->src[0])}, NULL, c ? comm_size(c) : 1};
    p->all = &p->alone;
    return c ? comm_share_even(c, &x->worker, p->alone.data, p->alone.bytes, n->out->name, &p->all) : 0;
}

/* What every kernel here asks of partial, sum and what stands beside it: f32 without gaps. */
static inline bool collective_plain(const struct tensor *t, struct reason *r)
{
    if (t->format != FORMAT_F32)
        return fits_not(r, "%s is %s, not f32", t->name, format_get(t->format)->name);
    return tensor_contiguous(t) || fits_not(r, "%s has gaps", t->name);
}

/* The fused node need not leave the sum itself. */
static inline bool collective_stays_inside(const struct node *n, struct reason *r)
{
    return !node_leaves(n, n->parts[0]->out) || fits_not(r, "%s is read elsewhere too", n->parts[0]->out->name);
}

#endif
