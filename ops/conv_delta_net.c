/* conv_delta_net.c: the fused op conv_delta_net: a Gated DeltaNet layer from its convolution to its gated norm: ssm_conv_silu,
 * whose result has q, k and v as windows, and the gated_delta_net that reads them. src[0] x, src[1] weight and src[2] state of
 * the convolution; src[3] alpha, src[4] dt, src[5] a, src[6] b, src[7] state, src[8] sequences, src[9] slots, src[10] z,
 * src[11] w as gated_delta_net has them. Parts: those of both, in this order. Params: those of the rule. Its reference is its
 * parts. */
#include "ops/gated_delta_rule.h"

const struct op_desc op_conv_delta_net = {
    .name = "conv_delta_net",
    .fused = true,
    .min_src = 12,
    .max_src = 12,
    .params_size = sizeof(struct gated_delta_rule_params),
    .params = gated_delta_rule_param_list,
    .tolerance = 1e-9, /* that of gated_delta_net; the convolution before it errs by 1e-12 */
};
