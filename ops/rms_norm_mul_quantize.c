/* rms_norm_mul_quantize.c: the fused op rms_norm_mul_quantize: rms_norm_mul, and its result quantised. Sources and params of
 * rms_norm_mul. out is in the format of the last part. Its reference is its parts. */
#include "ops/rms_norm.h"
#include "ops/ops.h"

const struct op_desc op_rms_norm_mul_quantize = {
    .name = "rms_norm_mul_quantize",
    .fused = true,
    .min_src = 2,
    .max_src = 2,
    .params_size = sizeof(struct rms_norm_params),
    .params = rms_norm_param_list,
    /* One step of an 8-bit format is 1/127 of a block's largest value; a value on the border of two steps may fall
     * on either side when the sum of squares is rounded otherwise, and a whole step in every hundredth value is
     * 1e-5. */
    .tolerance = 1e-4,
};
