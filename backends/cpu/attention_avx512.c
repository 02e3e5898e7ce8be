/* attention_avx512.c: attention over a KV cache of any format (attention.h). */
#include "backends/cpu/attention.h"

const struct kernel cpu_attention_avx512 = {.op = OP_ATTENTION,
                                            .variant = FLOATS_VARIANT,
                                            .needs = FLOATS_NEEDS,
                                            .fits = attention_fits,
                                            .scratch = attention_scratch,
                                            .shared = attention_shared,
                                            .run = attention_run};
