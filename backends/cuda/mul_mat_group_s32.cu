/* mul_mat_group_s32.cu: two to four products of one activation. One launch for all weights of a format: launches by rows
 * and by tiles take up to four matrices. In prefill that fills the device where k and v have few rows. */
#include "backends/cuda/product.cuh"

static bool fits(const struct node *n, struct reason *r)
{
    return product_parts_fit(n, false, r);
}

int product_group(const struct exec *x, const struct node *n, product_runner *run)
{
    int rc = 0;
    bool done[PRODUCT_PARTS] = {};
    for (int i = 0; i < n->n_parts && !rc; i++) {
        if (done[i] || n->parts[i]->op != OP_MUL_MAT)
            continue;
        struct product_args a;
        enum format_id format = n->parts[i]->src[0]->format;
        product_args_of(n->parts[i], &a);
        product_norm(n, &a);
        for (int j = i + 1; j < n->n_parts; j++)
            if (n->parts[j]->src[0]->format == format) {
                product_args_add(n->parts[j], &a);
                done[j] = true;
            }
        rc = run(x, &a, format);
    }
    return rc;
}

static int run(const struct exec *x, const struct node *n)
{
    return product_group(x, n, product_run);
}

CUDA_KERNEL(mul_mat_group_s32) = {.op = OP_MUL_MAT_GROUP,
                                  .variant = "s32",
                                  .needs = CUDA_SM90,
                                  .wants = {.layout_for = product_layout, .quantized = true, .activation = FORMAT_A8},
                                  .fits = fits,
                                  .run = run};
