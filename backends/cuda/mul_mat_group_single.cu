/* mul_mat_group_single.cu: products of one f32 activation with weights of single values (f16, bf16, f32):
 * mul_mat_group_s32.cu's launches. */
#include "backends/cuda/product.h"

static bool fits(const struct node *n, struct reason *r)
{
    return product_parts_fit(n, true, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_group(x, n, product_run);
}

CUDA_KERNEL(mul_mat_group_single) = {
    .op = OP_MUL_MAT_GROUP, .variant = "single", .needs = CUDA_SM90, .fits = fits, .run = run};
