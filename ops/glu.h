/* glu.h: params of glu: out = f(gate) * up, elementwise; f32.
 * src[0] gate [n, ...], src[1] up of the same shape. SwiGLU is silu, GeGLU is gelu. */
#ifndef OPS_GLU_H
#define OPS_GLU_H

#include "ops/ops.h"
#include "ops/unary.h"

struct glu_params {
    int32_t kind; /* enum unary_kind */
};
extern const struct op_param glu_param_list[];

#endif
