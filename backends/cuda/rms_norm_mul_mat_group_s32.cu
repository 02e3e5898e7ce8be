/* rms_norm_mul_mat_group_s32.cu: two to four products of one token under a norm. Each block norms and quantises the token for
 * itself while its weights are on their way (activation.cuh): a node of one block of threads, and the wait for it, fall away.
 */
#include "backends/cuda/product.cuh"

static bool fits(const struct node *n, struct reason *r)
{
    return product_norm_fits(n, r) && product_parts_fit(n, false, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_group(x, n, product_run);
}

CUDA_KERNEL(rms_norm_mul_mat_group_s32) = {.op = OP_RMS_NORM_MUL_MAT_GROUP,
                                           .variant = "s32",
                                           .needs = CUDA_SM90,
                                           .wants = {.layout_for = product_layout},
                                           .fits = fits,
                                           .run = run};
