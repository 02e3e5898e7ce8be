/* add_rms_norm_mul_quantize.c: the fused op add_rms_norm_mul_quantize: add_rms_norm_mul, and its result quantised. Sources and
 * params of add_rms_norm_mul. out is in the format of the last part. Its reference is its parts. */
#include "ops/rms_norm.h"
#include "ops/ops.h"

const struct op_desc op_add_rms_norm_mul_quantize = {
    .name = "add_rms_norm_mul_quantize",
    .fused = true,
    .min_src = 3,
    .max_src = 3,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    /* As for rms_norm_mul_quantize. */
    .tolerance = 1e-4,
};
