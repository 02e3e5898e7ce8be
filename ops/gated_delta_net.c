/* gated_delta_net.c: the fused op gated_delta_net: what a Gated DeltaNet layer does between its convolution and its output
 * projection. Parts, with the values that they leave to each other: beta = sigmoid(b); g = softplus(alpha + dt) a; q =
 * l2_norm(q); k = l2_norm(k); y = gated_delta_rule(q, k, v, g, beta, ...); out = silu(z) (rms_norm(y) w). src[0] q, src[1] k,
 * src[2] v as gated_delta_rule has them, before their norms; src[3] alpha f32, src[4] dt, src[5] a, src[6] b: shapes whose
 * elements in order are [n_v, n_tokens], of dt and a [n_v]; src[7] state, src[8] sequences, src[9] slots; src[10] z f32 [d_v,
 * n_v, n_tokens]; src[11] w f32 [d_v]. Params: those of the rule; the epsilons are its parts'. Its reference is its parts. */
#include "ops/gated_delta_rule.h"

const struct op_desc op_gated_delta_net = {
    .name = "gated_delta_net",
    .fused = true,
    .min_src = 12,
    .max_src = 12,
    .params_size = sizeof(struct gated_delta_rule_params),
    .params = gated_delta_rule_param_list,
    /* The rule's own: the gates' exponentials stand in exponents again (2e-6 of a decay), and the norm behind it scales a row of
     * small values up to one. */
    .tolerance = 1e-9,
};
