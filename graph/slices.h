/* slices.h: a rank's part of a weight.
 *
 * Rows of a matrix lie one behind the other in the file, so a run of rows is an address within the mapped file and costs
 * nothing. A part along k, or of several runs, is gathered: for as long as it takes to pack it, or, where nothing packs it, for
 * good. */
#ifndef GRAPH_SLICES_H
#define GRAPH_SLICES_H

#include "base/threads.h"
#include "graph/split.h"

struct slice {
    const struct tensor *whole;
    struct split split;
    void *gathered; /* the rows, where they had to be gathered and are kept; NULL: none */
    size_t bytes;   /* of the part, in file order */
};

/* Shapes t, a weight, as the part `split` of `whole`; s lives as long as t. Along axis 0 the split is aligned to the format's
 * block. */
void slice_init(struct tensor *t, struct slice *s, const struct tensor *whole, const struct split *split);
/* The part's rows in file order, in memory of its own (pages_free, s->bytes). HONE_ERESOURCE names the weight. pool may be
 * NULL. */
int slice_gather(const struct tensor *t, struct pool *pool, void **rows, struct hone_error *e);

#endif
