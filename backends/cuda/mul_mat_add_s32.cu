/* mul_mat_add_s32.cu: a product and the add of a residual, which is read where the sum is written. */
#include "backends/cuda/product.cuh"

static bool fits(const struct node *n, struct reason *r)
{
    return product_parts_fit(n, false, r) && product_linear(n->src[2], r) && product_linear(n->out, r);
}

int product_add(const struct exec *x, const struct node *n, product_runner *run)
{
    const struct tensor *product = n->parts[0]->out;
    struct product_args a;
    product_args_of(n->parts[0], &a);
    struct product_matrix *m = &a.matrix[0];
    if (node_leaves(n, product)) {
        m->alone = m->out;
        m->alone_stride = m->out_stride;
    }
    m->out = (float *)n->out->data;
    m->out_stride = n->out->nb[1] / sizeof(float);
    m->add = (const float *)n->src[2]->data;
    m->add_stride = n->src[2]->nb[1] / sizeof(float);
    return run(x, &a, n->src[0]->format);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_add(x, n, product_run);
}

CUDA_KERNEL(mul_mat_add_s32) = {.op = OP_MUL_MAT_ADD,
                                .variant = "s32",
                                .needs = CUDA_SM90,
                                .wants = {.layout_for = product_layout, .quantized = true, .activation = FORMAT_A8},
                                .fits = fits,
                                .run = run};
