/* linear.c: the fused op linear: an f32 activation is quantised and multiplied, and a residual added where one follows. src[0] W
 * [k, m]; src[1] X [k, n] f32, read by nobody else in quantised form; src[2] residual [m, n] f32 or absent. No params. Its reference
 * is its parts. */
#include "ops/ops.h"

const struct op_desc op_linear = {
    .name = "linear",
    .fused = true,
    .min_src = 2,
    .max_src = 3,
    /* That of mul_mat: quantising gives the same codes in every kernel. */
    .tolerance = 1e-10,
};
