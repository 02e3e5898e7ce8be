/* gate_up_glu_quantize_s32.cu: gate_up_glu_s32.cu, and its result as A8 for the product that follows. In decode, where blocks
 * of 32 rows go out evenly over the multiprocessors, a block of threads makes (and quantises) 32; else rows are dealt out one
 * by one and quantising is a launch of its own. */
#include "backends/cuda/product.cuh"

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *to = n->parts[3]->out;
    if (to->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", to->name, format_get(to->format)->name);
    return product_parts_fit(n, false, r) && product_linear(n->parts[2]->out, r) && product_linear(to, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_gate_up(x, n, n->parts[3]->out, product_run);
}

CUDA_KERNEL(gate_up_glu_quantize_s32) = {.op = OP_GATE_UP_GLU_QUANTIZE,
                                         .variant = "s32",
                                         .needs = CUDA_SM90,
                                         .wants = {.layout_for = product_layout, .quantized = true, .activation = FORMAT_A8},
                                         .fits = fits,
                                         .run = run};
