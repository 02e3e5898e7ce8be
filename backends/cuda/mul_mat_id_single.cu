/* mul_mat_id_single.cu: products with experts whose weights are single values (f16, bf16, f32): a few pairs by rows, many by
 * the kernel of any format (experts.cuh). */
#include "backends/cuda/product.h"

static bool fits(const struct node *n, struct reason *r)
{
    if (n->out->ne[1] * n->out->ne[2] > 65535)
        return fits_not(r, "more pairs of a token and an expert than a grid has rows");
    return product_id_fits(n, true, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return tensor_elements(n->out) ? product_format(n->src[0]->format)->experts(x, n) : 0;
}

CUDA_KERNEL(mul_mat_id_single) = {.op = OP_MUL_MAT_ID, .variant = "single", .needs = CUDA_SM90, .fits = fits, .run = run};
