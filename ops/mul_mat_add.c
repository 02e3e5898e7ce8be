/* mul_mat_add.c: the fused op mul_mat_add: a product and the add of a residual. src[0] W [k, m]; src[1] X [k, n]; src[2]
 * residual [m, n] f32. No params. Its reference is its parts. */
#include "ops/ops.h"

const struct op_desc op_mul_mat_add = {
    .name = "mul_mat_add",
    .fused = true,
    .min_src = 3,
    .max_src = 3,
    /* That of mul_mat. */
    .tolerance = 1e-10,
};
