/* rope.h: what rope, kv_write and rope_kv share: rows (heads of tokens) that are turned, or not, and written as values, into a
 * cache, or both. One body in rope.cu. */
#ifndef BACKENDS_CUDA_ROPE_H
#define BACKENDS_CUDA_ROPE_H

#include "backends/cuda/view.cuh"

extern "C" {
#include "ops/rope.h"
}

/* Heads of one kind. */
struct rope_rows {
    struct view in, out, cache; /* out, cache: data NULL where the rows do not go there */
    int heads;
    bool turns;
};

bool rope_fits(const struct node *rope, struct reason *r);
bool rope_write_fits(const struct node *kv_write, struct reason *r);
struct rope_rows rope_rows_of(const struct tensor *in, const struct tensor *out, const struct tensor *cache, bool turns);
/* rope: the node whose angles are taken, or NULL; cells: of caches, or NULL. The tokens of all kinds are the same. */
int rope_run(const struct exec *x, const struct node *rope, const struct tensor *cells, const struct rope_rows *kinds, int n_kinds);

#endif
