/* persistent_find.h: which nodes of a plan one kernel takes together, and as which phases (persistent.h). Plain C over nodes
 * alone, so that it is tested without a device. */
#ifndef BACKENDS_CUDA_PERSISTENT_FIND_H
#define BACKENDS_CUDA_PERSISTENT_FIND_H

#include "backends/backend.h"

/* A phase, by its nodes. */
struct persist_item {
    const struct node *norm;      /* what makes a product's activation; NULL: it is there as A8, or in attention's parts */
    const struct node *attention; /* this phase is it, where `product` is NULL; else it is the one before */
    const struct node *product;   /* mul_mat, mul_mat_add, mul_mat_group or gate_up_glu_quantize */
};

/* The matrices of a product, as its mul_mat nodes, and what stands behind them. */
struct persist_product {
    const struct node *matrix[4];
    int n;
    const struct tensor *add; /* a residual; NULL: none */
    const struct tensor *out; /* of a single matrix: where the sum goes */
    const struct node *glu;   /* of a pair: matrix[0] is its gate and matrix[1] its up; NULL: no pair */
    const struct tensor *quantized;
};
void persist_product_of(const struct node *n, struct persist_product *p);

/* Of n_all nodes in running order, of which those from `from` to `end` - 1 run together: the longest stretch of phases, in
 * items (room for as many as there are nodes). Returns how many phases; *first and *n: its nodes; *r why it ends where it does,
 * or "". */
int persist_find(const struct node *const *nodes, int n_all, int from, int end, struct persist_item *items, int *first, int *n,
                 struct reason *r);

#endif
