/* rope_kv.c: the fused op rope_kv: rope of q and k, and the writes of k and v into their caches. src[0] q, src[1] k, src[2] v
 * (the rows of kv_write); src[3] positions; src[4] cells; src[5] k cache, src[6] v cache; src[7] frequency factors or NULL.
 * Parts: rope q, rope k, kv_write k, kv_write v. The turned q is in also. Params: struct rope_params. Its reference is its
 * parts. */
#include "ops/rope.h"
#include "ops/ops.h"

const struct op_desc op_rope_kv = {
    .name = "rope_kv",
    .fused = true,
    .min_src = 7,
    .max_src = 8,
    .params_size = sizeof(struct rope_params),
    .params = rope_param_list,
    /* That of rope for q; a half-precision cache is compared in its own format, where a border value may fall on
     * either side (2^-22 of the square). */
    .tolerance = 1e-11,
};
