/* all_reduce_get_rows.c: the fused op all_reduce_get_rows: an all_reduce of which only some rows are wanted. src[0] this rank's
 * partial, src[1] ids i32 [k]; row ids[j] of the sum becomes row j. Its reference is its parts. */
#include "ops/ops.h"

const struct op_desc op_all_reduce_get_rows = {
    .name = "all_reduce_get_rows",
    .fused = true,
    .min_src = 2,
    .max_src = 2,
    /* The sum's bits are its meaning, and rows of f32 are copied. */
    .tolerance = 0,
};
