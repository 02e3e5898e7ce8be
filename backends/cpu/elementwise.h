/* elementwise.h: the body of the ops that compute each output value from the values at its place: glu, unary, add, mul, scale.
 *
 * One loop walks the pieces of a worker's share; the op gives the function of a vector, which is inlined; of glu and unary
 * there is a loop for each kind of function. The second source may repeat along every dimension: within a row
 * it is taken in segments as long as its own row, and a single value is spread first. Bound by the bytes of a row in cache;
 * exponentials by arithmetic (glu: 15 instructions a vector). */
#ifndef BACKENDS_CPU_ELEMENTWISE_H
#define BACKENDS_CPU_ELEMENTWISE_H

#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "ops/scale.h"

enum { ELEMENTWISE_GRAIN = 256 };

/* V values of the output from V values of each source; b is zeros where there is no second source. */
typedef vf elementwise_fn(const struct node *n, vf a, vf b);

static inline bool elementwise_fits(const struct node *n, struct reason *r)
{
    return tensor_rows_contiguous(n->out) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

static inline size_t elementwise_scratch(const struct node *n)
{
    return rows_room(n->src[0]) + (n->n_src > 1 && n->src[1] ? rows_room(n->src[1]) : 0);
}

/* y[0 .. n) from as many of a and, if there is one, of b. */
INLINE void elementwise_span(const struct node *node, elementwise_fn *fn, const float *a, const float *b, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + V <= n; i += V)
        v_store(y + i, fn(node, v_load(a + i), b ? v_load(b + i) : v_zero()));
    if (i < n)
        v_store_first(y + i, fn(node, v_load_first(a + i, n - i), b ? v_load_first(b + i, n - i) : v_zero()), n - i);
}

/* The same where b is one value. */
INLINE void elementwise_spread(const struct node *node, elementwise_fn *fn, const float *a, vf b, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + V <= n; i += V)
        v_store(y + i, fn(node, v_load(a + i), b));
    if (i < n)
        v_store_first(y + i, fn(node, v_load_first(a + i, n - i), b), n - i);
}

INLINE void elementwise_piece(const struct node *node, elementwise_fn *fn, const struct piece *p, const float *a,
                              const float *b, int64_t n_b, float *y)
{
    if (n_b == 0) {
        elementwise_span(node, fn, a + p->lo, NULL, y + p->lo, p->hi - p->lo);
    } else if (n_b == 1) {
        elementwise_spread(node, fn, a + p->lo, v_all(v_lane_0(v_load_first(b, 1))), y + p->lo, p->hi - p->lo);
    } else {
        for (int64_t i = p->lo, end; i < p->hi; i = end) {
            end = i - i % n_b + n_b < p->hi ? i - i % n_b + n_b : p->hi;
            elementwise_span(node, fn, a + i, b + i % n_b, y + i, end - i);
        }
    }
}

INLINE int elementwise_run(const struct exec *x, const struct node *n, elementwise_fn *fn)
{
    const struct tensor *second = n->n_src > 1 ? n->src[1] : NULL;
    char *at = x->worker.scratch;
    struct rows a = rows_of(n->src[0], &at), b = {0}, out = rows_to(n->out);
    if (second)
        b = rows_of(second, &at);
    struct share share = share_of(&x->worker, tensor_rows(n->out), n->out->ne[0], ELEMENTWISE_GRAIN);
    struct piece p;
    while (share_next(&share, &p)) {
        const float *row_a = row_read(&a, p.row), *row_b = second ? row_read_repeated(&b, n->out, p.row) : NULL;
        elementwise_piece(n, fn, &p, row_a, row_b, second ? second->ne[0] : 0, row_address(&out, p.row));
    }
    return 0;
}

/* Defines cpu_<op>_<isa>. */
#define ELEMENTWISE_KERNEL(OP, name, run_fn)                                                                                   \
    const struct kernel CPU_KERNEL_NAME(name) = {.op = OP_##OP,                                                                \
                                                 .variant = FLOATS_VARIANT,                                                    \
                                                 .needs = FLOATS_NEEDS,                                                        \
                                                 .fits = elementwise_fits,                                                     \
                                                 .scratch = elementwise_scratch,                                               \
                                                 .run = run_fn}

/* The same for an op that is one function. */
#define ELEMENTWISE_KERNEL_OF(OP, name, fn)                                                                                    \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        return elementwise_run(x, n, fn);                                                                                      \
    }                                                                                                                          \
    ELEMENTWISE_KERNEL(OP, name, run)

INLINE vf elementwise_add(const struct node *n, vf a, vf b)
{
    (void)n;
    return a + b;
}

INLINE vf elementwise_mul(const struct node *n, vf a, vf b)
{
    (void)n;
    return a * b;
}

INLINE vf elementwise_scale(const struct node *n, vf a, vf b)
{
    const struct scale_params *p = node_params(n, struct scale_params);
    (void)b;
    return v_fma(a, v_all(p->scale), v_all(p->bias));
}

#endif
