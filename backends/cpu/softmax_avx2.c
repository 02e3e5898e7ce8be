/* softmax_avx2.c: exponentials along rows over their sum (softmax.h). */
#include "backends/cpu/softmax.h"

const struct kernel cpu_softmax_avx2 = {.op = OP_SOFTMAX,
                                        .variant = FLOATS_VARIANT,
                                        .needs = FLOATS_NEEDS,
                                        .fits = softmax_fits,
                                        .scratch = softmax_scratch,
                                        .run = softmax_run};
