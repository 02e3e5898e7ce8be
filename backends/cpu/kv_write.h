/* kv_write.h: the body of kv_write, and what rope_kv takes of it: rows of f32 into cells of a cache of any format that has a
 * pack.
 *
 * Cells are distinct (the engine hands each out once), so rows may be written in any order by any worker. */
#ifndef BACKENDS_CPU_KV_WRITE_H
#define BACKENDS_CPU_KV_WRITE_H

#include "backends/cpu/rows.h"

static inline void kv_write_row(const struct tensor *cache, const struct tensor *cells, int64_t head, int64_t token,
                                const float *row)
{
    int64_t cell = tensor_read_index(cells, token, 0);
    if (cell >= 0 && cell < cache->ne[1])
        row_write(cache, cell, head, 0, row);
}

static inline size_t kv_write_scratch(const struct node *n)
{
    return rows_room(n->src[0]);
}

static inline int kv_write_run(const struct exec *x, const struct node *n)
{
    char *at = x->worker.scratch;
    struct rows in = rows_of(n->src[0], &at);
    int64_t lo, hi, heads = n->src[0]->ne[1];
    worker_range(&x->worker, heads * n->src[0]->ne[2], 1, &lo, &hi);
    for (; lo < hi; lo++) {
        int64_t head = lo % heads, token = lo / heads;
        kv_write_row(n->src[1], n->src[2], head, token, row_read_at(&in, (const int64_t[3]){head, token, 0}));
    }
    return 0;
}

#endif
