/* expert_sum_avx512.c: what a token's experts gave, by their weights (expert_sum.h). */
#include "backends/cpu/expert_sum.h"

const struct kernel cpu_expert_sum_avx512 = {.op = OP_EXPERT_SUM,
                                        .variant = FLOATS_VARIANT,
                                        .needs = FLOATS_NEEDS,
                                        .fits = expert_sum_fits,
                                        .scratch = expert_sum_scratch,
                                        .run = expert_sum_run};
