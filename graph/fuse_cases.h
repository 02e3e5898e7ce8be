/* fuse_cases.h: for each fusion small graphs in which it fires, so that kernels of fused nodes can be checked like those of any
 * op: a fused node has no cases of its own, it means its parts.
 *
 * A case is a graph that is built, not data: the caller gives every tensor of the fused node memory, and fills the leaves
 * (weights, inputs, states) as their specs say. */
#ifndef GRAPH_FUSE_CASES_H
#define GRAPH_FUSE_CASES_H

#include "graph/fuse.h"
#include "ops/cases.h"

enum { FUSE_MAX_LEAVES = 16 };

struct fuse_leaf {
    struct tensor *tensor; /* strides are set; data is not */
    struct case_src spec;  /* its format, shape and strides again, and what fills it */
};

struct fuse_case {
    const char *name; /* unique within the fusion */
    struct graph graph;
    struct node *fused; /* in the graph, in place of its parts */
    struct fuse_leaf leaves[FUSE_MAX_LEAVES];
    int n_leaves;
};

int fuse_n_cases(enum fusion_id f);
/* Builds case i of a fusion in an arena. HONE_EFAULT when the fusion does not fire: the pattern and its cases have come apart.
 */
int fuse_case_build(struct fuse_case *c, enum fusion_id f, int i, struct arena *arena, struct hone_error *e);

#endif
