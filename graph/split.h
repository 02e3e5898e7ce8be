/* split.h: which part of a dimension a rank has, and what becomes of it through reshapes and views.
 *
 * A part is a list of pieces: some runs of indices of one axis of the whole tensor, ascending, disjoint, neighbours joined, so
 * that equal parts have equal lists. The rank's own tensor holds them one behind the other. One run a rank would do for heads
 * and feed-forward rows; matrices that hold q, k and v as one, and heads of V that are tiled over heads of K, need several. */
#ifndef GRAPH_SPLIT_H
#define GRAPH_SPLIT_H

#include "base/arena.h"
#include "ops/node.h"

struct piece {
    int64_t first, count;
};

struct split {
    int axis;
    int n_pieces;
    const struct piece *pieces;
    int64_t count; /* of all pieces: what the rank's tensor has along the axis */
};

/* Of the pieces given, in any order and overlapping: sorted and joined, in the arena's memory. False: out of memory. */
bool split_make(struct split *out, struct arena *a, int axis, const struct piece *pieces, int n);
/* Both together. */
bool split_union(struct split *out, struct arena *a, const struct split *x, const struct split *y);
bool split_equal(const struct split *x, const struct split *y);
/* (index * by + add) of every index of x along another axis: each becomes `by` neighbours. */
bool split_scale(struct split *out, struct arena *a, const struct split *x, int axis, int64_t by, int64_t add);
/* What of x lies in [first, first + n), counted from first, divided by `by`, along another axis. False also where a run is no
 * multiple of `by`, or nothing lies there. */
bool split_window(struct split *out, struct arena *a, const struct split *x, int axis, int64_t first, int64_t n, int64_t by);
/* How many indices of x are below `index`: where it lies in the rank's tensor. */
int64_t split_before(const struct split *x, int64_t index);
/* Every run begins and ends at a multiple of `grain`, or at the axis' end, `total`. */
bool split_aligned(const struct split *x, int64_t grain, int64_t total);

/* The same elements under another shape: from a split of `from` to that of `to`, both contiguous. False: it does not lie along
 * one axis there. */
bool split_reshape(struct split *out, struct arena *a, const struct split *x, const struct tensor *from,
                   const struct tensor *to);

/* How a view walks its source: of each of its dimensions which of the source's it follows, and by how many of its indices a
 * step. */
struct walk {
    int64_t start[MAX_DIMS]; /* by dimension of the source */
    int along[MAX_DIMS];     /* by dimension of the view; -1: it has one element there */
    int64_t step[MAX_DIMS];
};
/* offset: bytes from the source's first element. False where strides do not follow the source's dimensions. */
bool walk_read(struct walk *w, const struct tensor *source, const struct tensor *view, uint64_t offset);
/* From a split of the source to that of the view, and back. *whole: the view lies within what the rank has; then it has no
 * split. */
bool split_view(struct split *out, struct arena *a, const struct split *x, const struct walk *w, const struct tensor *view,
                bool *whole);
bool split_view_back(struct split *out, struct arena *a, const struct split *x, const struct walk *w,
                     const struct tensor *view);

#endif
