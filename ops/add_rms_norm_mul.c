/* add_rms_norm_mul.c: the fused op add_rms_norm_mul: the residual add, rms_norm of the sum, and the mul by the weight. src[0],
 * src[1] summands of one shape; src[2] weight [n]. The sum is in also where others read it. Params: struct rms_norm_params.
 * Its reference is its parts. */
#include "ops/rms_norm.h"
#include "ops/ops.h"

const struct op_desc op_add_rms_norm_mul = {
    .name = "add_rms_norm_mul",
    .fused = true,
    .min_src = 3,
    .max_src = 3,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    /* That of rms_norm_mul; the add rounds once more. */
    .tolerance = 1e-11,
};
