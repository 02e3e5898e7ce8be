/* kv_write_avx2.c: rows of new tokens into their cells, in the cache's format (kv_write.h). */
#include "backends/cpu/kv_write.h"

const struct kernel cpu_kv_write_avx2 = {
    .op = OP_KV_WRITE, .variant = FLOATS_VARIANT, .needs = FLOATS_NEEDS, .scratch = kv_write_scratch, .run = kv_write_run};
