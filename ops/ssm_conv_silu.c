/* ssm_conv_silu.c: the fused op ssm_conv_silu: a convolution with a state and the activation behind it. Sources as ssm_conv has
 * them; parts: ssm_conv, unary (silu). No params. Its reference is its parts. */
#include "ops/ops.h"

const struct op_desc op_ssm_conv_silu = {
    .name = "ssm_conv_silu", .fused = true, .min_src = 5, .max_src = 5, .tolerance = 1e-11, /* that of unary */
};
