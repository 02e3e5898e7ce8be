/* all_reduce_add_rms_norm_mul_quantize.c: the fused op all_reduce_add_rms_norm_mul_quantize: an all_reduce and
 * add_rms_norm_mul_quantize of its sum. src[0] this rank's partial, src[1] what is added to the sum, src[2] weight [n]. Params:
 * struct rms_norm_params. Its reference is its parts. */
#include "ops/ops.h"
#include "ops/rms_norm.h"

const struct op_desc op_all_reduce_add_rms_norm_mul_quantize = {
    .name = "all_reduce_add_rms_norm_mul_quantize",
    .fused = true,
    .min_src = 3,
    .max_src = 3,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    /* That of add_rms_norm_mul_quantize: the sum's bits are its meaning. */
    .tolerance = 1e-4,
};
