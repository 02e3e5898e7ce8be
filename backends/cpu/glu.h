/* glu.h: the body of glu: f(gate) * up, with limits and a shift where the node has them. */
#ifndef BACKENDS_CPU_GLU_H
#define BACKENDS_CPU_GLU_H

#include "backends/cpu/elementwise.h"
#include "ops/glu.h"

#define X(NAME, name)                                                                                                          \
    INLINE vf glu_##name(const struct node *n, vf gate, vf up)                                                                 \
    {                                                                                                                          \
        (void)n;                                                                                                               \
        return v_unary(UNARY_##NAME, gate) * up;                                                                               \
    }                                                                                                                          \
    INLINE vf glu_limited_##name(const struct node *n, vf gate, vf up)                                                         \
    {                                                                                                                          \
        const struct glu_params *p = node_params(n, struct glu_params);                                                        \
        vf limit = v_all(p->limit > 0 ? p->limit : INFINITY);                                                                  \
        up = v_max(v_min(up, limit), -limit);                                                                                  \
        return v_unary(UNARY_##NAME, v_min(gate, limit)) * (up + v_all(p->shift));                                             \
    }
UNARY_KINDS(X)
#undef X

static inline int glu_run(const struct exec *x, const struct node *n)
{
    bool plain = glu_is_plain(node_params(n, struct glu_params));
    switch ((enum unary_kind)node_params(n, struct glu_params)->kind) {
#define X(NAME, name)                                                                                                          \
    case UNARY_##NAME:                                                                                                         \
        return plain ? elementwise_run(x, n, glu_##name) : elementwise_run(x, n, glu_limited_##name);
        UNARY_KINDS(X)
#undef X
    case N_UNARY:
        break;
    }
    return HONE_EFAULT; /* the shape rule knows only these kinds */
}

#endif
