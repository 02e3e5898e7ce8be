/* rope_kv_avx512.c: rope of q and k and the writes of k and v, as one node (rope_kv.h). */
#include "backends/cpu/rope_kv.h"

const struct kernel cpu_rope_kv_avx512 = {.op = OP_ROPE_KV,
                                          .variant = FLOATS_VARIANT,
                                          .needs = FLOATS_NEEDS,
                                          .fits = rope_kv_fits,
                                          .scratch = rope_kv_scratch,
                                          .run = rope_kv_run};
