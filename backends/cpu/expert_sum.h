/* expert_sum.h: the body of expert_sum: the outputs of a token's experts by their weights, expert by expert into the output row, which
 * stays in the cache. Bound by the bytes of x. */
#ifndef BACKENDS_CPU_EXPERT_SUM_H
#define BACKENDS_CPU_EXPERT_SUM_H

#include "backends/cpu/floats.h"
#include "backends/cpu/rows.h"

enum { EXPERT_SUM_GRAIN = 256 };

static inline bool expert_sum_fits(const struct node *n, struct reason *r)
{
    return tensor_rows_contiguous(n->out) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

static inline size_t expert_sum_scratch(const struct node *n)
{
    return rows_room(n->src[0]);
}

static inline void expert_sum_add(const float *x, float weight, bool first, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += V) {
        vf a = v_load_up_to(x + i, n - i), sum = first ? v_zero() : v_load_up_to(y + i, n - i);
        v_store_up_to(y + i, v_fma(v_all(weight), a, sum), n - i);
    }
}

static inline int expert_sum_run(const struct exec *x, const struct node *n)
{
    const struct tensor *weights = n->src[1];
    char *at = x->worker.scratch;
    struct rows in = rows_of(n->src[0], &at), out = rows_to(n->out);
    struct share s = share_of(&x->worker, n->out->ne[1], n->out->ne[0], EXPERT_SUM_GRAIN);
    struct piece p;
    int64_t used = n->src[0]->ne[1];
    while (share_next(&s, &p))
        for (int64_t j = 0; j < used; j++) {
            float weight;
            memcpy(&weight, (const char *)tensor_row(weights, p.row, 0, 0) + (size_t)j * weights->nb[0], sizeof weight);
            expert_sum_add(row_read(&in, p.row * used + j) + p.lo, weight, j == 0, (float *)row_address(&out, p.row) + p.lo, p.hi - p.lo);
        }
    return 0;
}

#endif
