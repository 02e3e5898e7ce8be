/* rms_norm_gate_up_glu_quantize.c: the fused op rms_norm_gate_up_glu_quantize: an activation under an rms_norm, multiplied with
 * its weight and quantised, and gate_up_glu_quantize of it. src[0] X [k, n] f32; src[1] weight of the norm [k] f32; src[2] W
 * gate [k, m]; src[3] W up [k, m]. out is in the format of the last part. Params of glu; those of the norm are its part's. Its
 * reference is its parts. */
#include "ops/glu.h"
#include "ops/ops.h"

const struct op_desc op_rms_norm_gate_up_glu_quantize = {
    .name = "rms_norm_gate_up_glu_quantize",
    .fused = true,
    .min_src = 4,
    .max_src = 4,
    .params_size = sizeof(struct glu_params),
    .params = glu_param_list,
    /* It quantises twice: see rms_norm_mul_quantize. */
    .tolerance = 2e-4,
};
