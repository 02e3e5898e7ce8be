/* glu.h: params of glu: out = f(gate') * (up' + shift), elementwise; f32.
 * src[0] gate [n, ...], src[1] up of the same shape. SwiGLU is silu, GeGLU is gelu. With a limit L > 0: gate' = min(gate, L), up' = up
 * clamped to +-L; gpt-oss is gelu_quick with limit 7 and shift 1 (OpenAI, gpt-oss model card, arXiv 2508.10925). */
#ifndef OPS_GLU_H
#define OPS_GLU_H

#include "ops/ops.h"
#include "ops/unary.h"

struct glu_params {
    int32_t kind; /* enum unary_kind */
    float limit, shift; /* 0: none */
};
/* The function alone, which is what fused kernels know. */
static inline bool glu_is_plain(const struct glu_params *p)
{
    return p->limit == 0 && p->shift == 0;
}
extern const struct op_param glu_param_list[];

#endif
