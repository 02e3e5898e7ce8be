/* unary.h: the body of unary: f(x). */
#ifndef BACKENDS_CPU_UNARY_H
#define BACKENDS_CPU_UNARY_H

#include "backends/cpu/elementwise.h"

#define X(NAME, name)                                                                                                          \
    INLINE vf unary_##name(const struct node *n, vf a, vf b)                                                                   \
    {                                                                                                                          \
        (void)n, (void)b;                                                                                                      \
        return v_unary(UNARY_##NAME, a);                                                                                       \
    }
UNARY_KINDS(X)
#undef X

static inline int unary_run(const struct exec *x, const struct node *n)
{
    switch ((enum unary_kind)node_params(n, struct unary_params)->kind) {
#define X(NAME, name)                                                                                                          \
    case UNARY_##NAME:                                                                                                         \
        return elementwise_run(x, n, unary_##name);
        UNARY_KINDS(X)
#undef X
    case N_UNARY:
        break;
    }
    return HONE_EFAULT; /* the shape rule knows only these kinds */
}

#endif
