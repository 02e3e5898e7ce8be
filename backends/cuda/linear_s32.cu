/* linear_s32.cu: an f32 activation quantised and multiplied, and a residual added where one follows. One token is quantised by
 * every block for itself, while it brings it into shared memory: that repeats some microseconds' work of one multiprocessor on
 * all of them at once, and saves a launch. More tokens are quantised first. */
#include "backends/cuda/product.cuh"

enum { MOST_ALONE = 8192 /* values of a row that a block quantises for itself */ };

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *quantized = n->parts[0]->out, *x = n->src[1];
    if (quantized->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", quantized->name, format_get(quantized->format)->name);
    if (n->n_src == 3 && !product_linear(n->src[2], r))
        return false;
    return product_linear(x, r) && product_linear(n->out, r) && product_parts_fit(n, false, r);
}

void product_args_of_linear(const struct node *n, struct product_args *a)
{
    const struct node *product = n->parts[1];
    product_args_of(product, a);
    struct product_matrix *m = &a->matrix[0];
    if (n->n_src == 3) {
        if (node_leaves(n, product->out)) {
            m->alone = m->out;
            m->alone_stride = m->out_stride;
        }
        m->out = (float *)n->out->data;
        m->out_stride = n->out->nb[1] / sizeof(float);
        m->add = (const float *)n->src[2]->data;
        m->add_stride = n->src[2]->nb[1] / sizeof(float);
    }
}

static int run(const struct exec *x, const struct node *n)
{
    struct product_args a;
    product_args_of_linear(n, &a);
    int rc = 0;
    if (a.tokens == 1 && n->src[1]->ne[0] <= MOST_ALONE && n->src[1]->offset % 16 == 0 && !node_leaves(n, n->parts[0]->out)) {
        a.from_f32 = true;
        a.x = (const uint8_t *)n->src[1]->data;
    } else {
        rc = product_quantize(x, n->src[1], n->parts[0]->out);
    }
    return rc ? rc : product_run(x, &a, n->src[0]->format);
}

CUDA_KERNEL(linear_s32) = {
    .op = OP_LINEAR, .variant = "s32", .needs = CUDA_SM90, .wants = {.layout_for = product_layout}, .fits = fits, .run = run};
