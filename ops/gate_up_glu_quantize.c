/* gate_up_glu_quantize.c: the fused op gate_up_glu_quantize: gate_up_glu, and its result quantised. Sources and params of
 * gate_up_glu. out is in the format of the last part. Its reference is its parts. */
#include "ops/glu.h"
#include "ops/ops.h"

const struct op_desc op_gate_up_glu_quantize = {
    .name = "gate_up_glu_quantize",
    .fused = true,
    .min_src = 3,
    .max_src = 3,
    .params_size = sizeof(struct glu_params),
    .params = glu_param_list,
    /* As for rms_norm_mul_quantize. */
    .tolerance = 1e-4,
};
