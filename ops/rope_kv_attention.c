/* rope_kv_attention.c: the fused op rope_kv_attention: what lies between the products of q, k and v and that of the output:
 * norms of q and k, where a model has them, rope_kv, attention, and a gate, where the model has one. src[0] q, src[1] k, src[2]
 * v, before norms and rope; src[3] positions, src[4] cells, src[5] k cache, src[6] v cache, src[7] frequency factors or NULL;
 * src[8] sequences, src[9] map; src[10] and src[11] the norms' weights, or NULL; src[12], if there, the gate. Parts: rms_norm
 * and mul of q and of k, or none; rope q, rope k, kv_write k, kv_write v; attention; glu, or none. Params: those of the rope;
 * the others are the parts'. Its reference is its parts. */
#include "ops/rope.h"

const struct op_desc op_rope_kv_attention = {
    .name = "rope_kv_attention",
    .fused = true,
    .min_src = 12,
    .max_src = 13,
    .params_size = sizeof(struct rope_params),
    .params = rope_param_list,
    /* A new key and value go into a narrow cache between rope and attention: one value in some thousands falls on the other
     * side of a rounding border and is off by 2^-11 (f16), 2^-8 (bf16) or 1/254 (q8_0) of itself. */
    .tolerance = 1e-6,
};
