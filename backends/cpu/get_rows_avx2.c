/* get_rows_avx2.c: rows of a table of any format and layout (get_rows.h). */
#include "backends/cpu/get_rows.h"

const struct kernel cpu_get_rows_avx2 = {.op = OP_GET_ROWS,
                                         .variant = FLOATS_VARIANT,
                                         .needs = FLOATS_NEEDS,
                                         .wants.any_layout = true,
                                         .fits = get_rows_fits,
                                         .scratch = get_rows_scratch,
                                         .run = get_rows_run};
