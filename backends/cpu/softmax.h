/* softmax.h: the body of softmax: exp(s x + mask - max) / sum along rows, with an optional mask that repeats.
 *
 * A row belongs to one worker. Its scaled values are written to the output first, then their exponentials, then these over
 * their sum: three passes over a row in cache. A row in which nothing is left of -inf is all zeros. */
#ifndef BACKENDS_CPU_SOFTMAX_H
#define BACKENDS_CPU_SOFTMAX_H

#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "ops/softmax.h"

static inline bool softmax_fits(const struct node *n, struct reason *r)
{
    return tensor_rows_contiguous(n->out) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

static inline size_t softmax_scratch(const struct node *n)
{
    return rows_room(n->src[0]) + (n->n_src > 1 && n->src[1] ? rows_room(n->src[1]) : 0);
}

static inline void softmax_row(const float *x, const float *mask, float scale, float *y, int64_t n)
{
    vf most = v_all(-INFINITY), total = v_zero();
    for (int64_t i = 0; i < n; i += V) {
        vf s = v_load_up_to(x + i, n - i) * v_all(scale);
        if (mask)
            s = s + v_load_up_to(mask + i, n - i);
        v_store_up_to(y + i, s, n - i);
        most = v_max(most, i + V <= n ? s : v_select(v_first(n - i), s, v_all(-INFINITY)));
    }
    float max = v_largest(most);
    if (max == -INFINITY) {
        memset(y, 0, sizeof *y * (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i += V) {
        vf e = v_exp(v_load_up_to(y + i, n - i) - v_all(max));
        v_store_up_to(y + i, e, n - i);
        total = total + (i + V <= n ? e : v_select(v_first(n - i), e, v_zero()));
    }
    vf factor = v_all(1 / v_sum(total));
    for (int64_t i = 0; i < n; i += V)
        v_store_up_to(y + i, v_load_up_to(y + i, n - i) * factor, n - i);
}

static inline int softmax_run(const struct exec *x, const struct node *n)
{
    const struct tensor *mask = n->n_src > 1 ? n->src[1] : NULL;
    char *at = x->worker.scratch;
    struct rows in = rows_of(n->src[0], &at), masks = {0}, out = rows_to(n->out);
    int64_t lo, hi;
    if (mask)
        masks = rows_of(mask, &at);
    worker_range(&x->worker, tensor_rows(n->out), 1, &lo, &hi);
    for (; lo < hi; lo++)
        softmax_row(row_read(&in, lo), mask ? row_read_repeated(&masks, n->out, lo) : NULL,
                    node_params(n, struct softmax_params)->scale, row_address(&out, lo), n->out->ne[0]);
    return 0;
}

#endif
