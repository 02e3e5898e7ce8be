/* materialise.h: bringing about what the chosen kernels want: packed weights, quantised activations. */
#ifndef GRAPH_MATERIALISE_H
#define GRAPH_MATERIALISE_H

#include "graph/plan.h"

/* A weight's layout, as the plan's nodes want it. */
struct claim {
    struct tensor *weight;
    const struct layout *layout; /* NULL: rows */
    const struct node *by;
    int place; /* at which it is read so */
};

/* What a plan in the making knows. */
struct plan_state {
    struct plan *plan;
    const struct plan_options *options;
    struct claim *claims; /* of the graph's arena */
    int n_claims, cap_claims;
    bool activations_made; /* no quantize node is added any more: a kernel that wants its activation quantised finds it so or does not fit */
    bool copies_made; /* between places: a copy node whose ends lie apart is one */
};

/* Where n runs. */
const struct backend *plan_backend(const struct plan_state *s, const struct node *n);
int plan_device(const struct plan_state *s, const struct node *n);

/* A weight that may change its layout. One row is a matrix too: a kernel that wants its weights packed would read it as packed
 * whether somebody packed it or not. */
static inline bool weight_is_matrix(const struct tensor *t)
{
    return t->kind == TENSOR_WEIGHT && !t->base;
}

const struct claim *claim_find(const struct plan_state *s, const struct tensor *weight, int place);
int claim_add(struct plan_state *s, struct tensor *weight, const struct layout *layout, const struct node *by, struct hone_error *e);

/* Packs what is claimed. Where memory does not suffice the weight stays as it is, and the nodes that wanted it are an error. */
int materialise_weights(struct plan_state *s, struct hone_error *e);
/* Adds a quantize node before the first reader of each activation that is wanted quantised, one a format and place, shared by all its
 * readers; the readers' (and their parts') src[1] becomes its output. The steps are stale afterwards. */
int materialise_activations(struct plan_state *s, struct hone_error *e);

#endif
