/* conv_delta_net_quantize.c: the fused op conv_delta_net_quantize: conv_delta_net, and its result quantised as one row a token.
 * Sources and params of conv_delta_net; one part more. out is in the format of the last part. Its reference is its parts. */
#include "ops/gated_delta_rule.h"

const struct op_desc op_conv_delta_net_quantize = {
    .name = "conv_delta_net_quantize",
    .fused = true,
    .min_src = 12,
    .max_src = 12,
    .params_size = sizeof(struct gated_delta_rule_params),
    .params = gated_delta_rule_param_list,
    /* As rms_norm_mul_quantize: a value on the border of two 8-bit steps may fall on either side. */
    .tolerance = 1e-4,
};
