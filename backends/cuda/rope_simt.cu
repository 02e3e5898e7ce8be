/* rope_simt.cu: rope of any mode, up to 512 rotated dimensions; the body is in rope.cu. */
#include "backends/cuda/rope.h"

static int run(const struct exec *x, const struct node *n)
{
    struct rope_rows rows = rope_rows_of(n->src[0], n->out, NULL, true);
    return rope_run(x, n, NULL, &rows, 1);
}

CUDA_KERNEL(rope_simt) = {.op = OP_ROPE, .variant = "simt", .needs = CUDA_SM90, .fits = rope_fits, .run = run};
