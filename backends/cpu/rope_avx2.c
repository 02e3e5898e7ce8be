/* rope_avx2.c: rotary position embedding in all its forms (rope.h). */
#include "backends/cpu/rope.h"

const struct kernel cpu_rope_avx2 = {.op = OP_ROPE,
                                     .variant = FLOATS_VARIANT,
                                     .needs = FLOATS_NEEDS,
                                     .fits = rope_fits,
                                     .scratch = rope_scratch,
                                     .run = rope_run};
