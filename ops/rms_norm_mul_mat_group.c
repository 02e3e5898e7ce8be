/* rms_norm_mul_mat_group.c: the fused op rms_norm_mul_mat_group: an activation under an rms_norm, multiplied with its weight,
 * quantised, and two to four products of it. src[0] X [k, n] f32; src[1] weight of the norm [k] f32; src[2] to src[5] W [k, m0]
 * and so on. The last parts compute the products' outputs; all but the last are in also. Params of rms_norm. Its reference is
 * its parts. */
#include "ops/ops.h"
#include "ops/rms_norm.h"

const struct op_desc op_rms_norm_mul_mat_group = {
    .name = "rms_norm_mul_mat_group",
    .fused = true,
    .min_src = 4,
    .max_src = 6,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    /* That of rms_norm_mul_quantize, whose result it multiplies: a product passes a relative error on. */
    .tolerance = 1e-4,
};
