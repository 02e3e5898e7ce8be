/* kv_write_simt.cu: rows into cells of a cache in F32, F16, BF16 or Q8_0; the body is in rope.cu. Cells are distinct (the engine hands
 * each out once), so rows are written in any order. */
#include "backends/cuda/rope.h"

static int run(const struct exec *x, const struct node *n)
{
    struct rope_rows rows = rope_rows_of(n->src[0], NULL, n->src[1], false);
    return rope_run(x, NULL, n->src[2], &rows, 1);
}

CUDA_KERNEL(kv_write_simt) = {.op = OP_KV_WRITE, .variant = "simt", .needs = CUDA_SM90, .fits = rope_write_fits, .run = run};
