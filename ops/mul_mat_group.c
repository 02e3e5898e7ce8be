/* mul_mat_group.c: the fused op mul_mat_group: two to four products of one activation. src[0] W [k, m0]; src[1] X [k, n] f32
 * or quantised; src[2] to src[4] further weights [k, m1], [k, m2], [k, m3]. Part i computes parts[i]->out; all but the last are in also.
 * No params. Its reference is its parts. */
#include "ops/ops.h"

const struct op_desc op_mul_mat_group = {
    .name = "mul_mat_group",
    .fused = true,
    .min_src = 3,
    .max_src = 5,
    /* That of mul_mat. */
    .tolerance = 1e-10,
};
