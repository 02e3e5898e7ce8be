/* glu.h: the body of glu: f(gate) * up. */
#ifndef BACKENDS_CPU_GLU_H
#define BACKENDS_CPU_GLU_H

#include "backends/cpu/elementwise.h"
#include "ops/glu.h"

#define X(NAME, name)                                                                                                          \
    INLINE vf glu_##name(const struct node *n, vf gate, vf up)                                                                 \
    {                                                                                                                          \
        (void)n;                                                                                                               \
        return v_unary(UNARY_##NAME, gate) * up;                                                                               \
    }
UNARY_KINDS(X)
#undef X

static inline int glu_run(const struct exec *x, const struct node *n)
{
    switch ((enum unary_kind)node_params(n, struct glu_params)->kind) {
#define X(NAME, name)                                                                                                          \
    case UNARY_##NAME:                                                                                                         \
        return elementwise_run(x, n, glu_##name);
        UNARY_KINDS(X)
#undef X
    case N_UNARY:
        break;
    }
    return HONE_EFAULT; /* the shape rule knows only these kinds */
}

#endif
