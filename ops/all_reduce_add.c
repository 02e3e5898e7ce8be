/* all_reduce_add.c: the fused op all_reduce_add: an all_reduce and the add of a residual behind it. src[0] this rank's partial,
 * src[1] what is added, as many elements. Its reference is its parts. */
#include "ops/ops.h"

const struct op_desc op_all_reduce_add = {
    .name = "all_reduce_add",
    .fused = true,
    .min_src = 2,
    .max_src = 2,
    /* The add rounds once: see add. */
    .tolerance = 2e-14,
};
