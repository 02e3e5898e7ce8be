/* collective_norm.h: the body of all_reduce_add_rms_norm_mul, quantised or not: each worker sums its part of the partials and
 * the residual into the add's place, all meet, and norm.h goes on with rows that lie there. The meeting is the only thing
 * between, so a rank of one thread has none: its sum is still in the first-level cache when the norm reads it.
 *
 * Every worker summing whole rows for itself, as norm.h does with a residual in cache, would fetch each line from the other
 * ranks once a worker. */
#ifndef BACKENDS_CPU_COLLECTIVE_NORM_H
#define BACKENDS_CPU_COLLECTIVE_NORM_H

#include "backends/cpu/collective.h"
#include "backends/cpu/norm.h"

static inline const struct tensor *collective_norm_sum(const struct node *n)
{
    return n->parts[1]->out; /* parts: all_reduce, add, rms_norm, mul (, quantize) */
}

/* The node's norm, which starts from the sum. */
static inline struct norm collective_norm_of(const struct node *n)
{
    struct norm m = norm_of(n);
    m.a = collective_norm_sum(n);
    m.b = m.sum = NULL;
    return m;
}

static inline bool collective_norm_fits(const struct node *n, struct reason *r)
{
    const struct tensor *sum = collective_norm_sum(n);
    struct norm m = collective_norm_of(n);
    if (tensor_elements(n->src[1]) != tensor_elements(sum))
        return fits_not(r, "%s repeats", n->src[1]->name);
    return collective_plain(n->src[0], r) && collective_plain(n->src[1], r) && collective_plain(sum, r) &&
           collective_stays_inside(n, r) && norm_steps_fit(&m, r);
}

static inline size_t collective_norm_scratch(const struct node *n)
{
    struct norm m = collective_norm_of(n);
    return norm_steps_scratch(&m);
}

static inline int collective_norm_run(const struct exec *x, const struct node *n)
{
    struct norm m = collective_norm_of(n);
    struct partials p;
    int64_t lo, hi;
    int rc = partials_get(&p, x, n);
    worker_range(&x->worker, tensor_elements(m.a), COMM_GRAIN, &lo, &hi);
    if (!rc)
        comm_sum(p.all, p.n, lo, (const float *)n->src[1]->data + lo, (float *)m.a->data + lo, hi - lo);
    worker_barrier(&x->worker);
    return rc ? rc : norm_steps_run(x, &m);
}

/* Defines cpu_<op>_<isa>. */
#define COLLECTIVE_NORM_KERNEL(OP, name)                                                                                       \
    const struct kernel CPU_KERNEL_NAME(name) = {.op = OP_##OP,                                                                \
                                                 .variant = FLOATS_VARIANT,                                                    \
                                                 .needs = FLOATS_NEEDS,                                                        \
                                                 .fits = collective_norm_fits,                                                 \
                                                 .scratch = collective_norm_scratch,                                           \
                                                 .run = collective_norm_run}

#endif
