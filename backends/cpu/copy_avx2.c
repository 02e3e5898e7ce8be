/* copy_avx2.c: rows in another format, out of views (copy.h). */
#include "backends/cpu/copy.h"

const struct kernel cpu_copy_avx2 = {.op = OP_COPY,
                                     .variant = FLOATS_VARIANT,
                                     .needs = FLOATS_NEEDS,
                                     .wants.any_layout = true,
                                     .fits = copy_fits,
                                     .scratch = copy_scratch,
                                     .run = copy_run};
