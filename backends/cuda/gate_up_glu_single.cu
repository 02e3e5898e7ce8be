/* gate_up_glu_single.cu: gate and up with weights of single values, and their glu: gate_up_glu_s32.cu's launches. */
#include "backends/cuda/product.h"

static bool fits(const struct node *n, struct reason *r)
{
    return product_parts_fit(n, true, r) && product_linear(n->parts[2]->out, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_gate_up(x, n, NULL, product_run);
}

CUDA_KERNEL(gate_up_glu_single) = {.op = OP_GATE_UP_GLU, .variant = "single", .needs = CUDA_SM90, .fits = fits, .run = run};
