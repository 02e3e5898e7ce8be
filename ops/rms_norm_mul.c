/* rms_norm_mul.c: the fused op rms_norm_mul: rms_norm and the mul by its weight. src[0] x [n, ...]; src[1] weight [n]. Params:
 * struct rms_norm_params. Its reference is its parts. */
#include "ops/rms_norm.h"
#include "ops/ops.h"

const struct op_desc op_rms_norm_mul = {
    .name = "rms_norm_mul",
    .fused = true,
    .min_src = 2,
    .max_src = 2,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    /* That of rms_norm: the sum of squares in f32 over a row, then two products. */
    .tolerance = 1e-11,
};
