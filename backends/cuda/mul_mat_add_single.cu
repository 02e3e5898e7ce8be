/* mul_mat_add_single.cu: a product with weights of single values and the add of a residual: mul_mat_add_s32.cu's launch. */
#include "backends/cuda/product.h"

static bool fits(const struct node *n, struct reason *r)
{
    return product_parts_fit(n, true, r) && product_linear(n->src[2], r) && product_linear(n->out, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_add(x, n, product_run);
}

CUDA_KERNEL(mul_mat_add_single) = {
    .op = OP_MUL_MAT_ADD, .variant = "single", .needs = CUDA_SM90, .fits = fits, .run = run};
