/* mlp.c: the fused op mlp: a whole MLP: gate and up, their glu, its quantisation, down, and the add of a residual where one
 * follows. src[0] W gate [k, f]; src[1] X [k, n]; src[2] W up [k, f]; src[3] W down [f, m]; src[4] residual [m, n] f32 or absent.
 * Params of glu. Its reference is its parts. */
#include "ops/glu.h"
#include "ops/ops.h"

const struct op_desc op_mlp = {
    .name = "mlp",
    .fused = true,
    .min_src = 4,
    .max_src = 5,
    .params_size = sizeof(struct glu_params),
    .params = glu_param_list,
    /* That of gate_up_glu_quantize, whose result it multiplies: a product passes a relative error on. */
    .tolerance = 1e-4,
};
