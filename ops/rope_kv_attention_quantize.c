/* rope_kv_attention_quantize.c: the fused op rope_kv_attention_quantize: rope_kv_attention, and its result quantised as one row
 * a token. Sources and params of rope_kv_attention; one part more. out is in the format of the last part. Its reference is its
 * parts. */
#include "ops/rope.h"

const struct op_desc op_rope_kv_attention_quantize = {
    .name = "rope_kv_attention_quantize",
    .fused = true,
    .min_src = 12,
    .max_src = 13,
    .params_size = sizeof(struct rope_params),
    .params = rope_param_list,
    /* As rms_norm_mul_quantize: a value on the border of two 8-bit steps may fall on either side. */
    .tolerance = 1e-4,
};
