/* rms_norm_gate_up_glu_quantize_s32.cu: gate and up of one token under a norm, and their glu as A8: see
 * rms_norm_mul_mat_group_s32.cu and gate_up_glu_quantize_s32.cu. */
#include "backends/cuda/product.cuh"

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *to = n->out;
    if (to->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", to->name, format_get(to->format)->name);
    return product_norm_fits(n, r) && product_parts_fit(n, false, r) && product_linear(n->parts[5]->out, r) &&
           product_linear(to, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_gate_up(x, n, n->out, product_run);
}

CUDA_KERNEL(rms_norm_gate_up_glu_quantize_s32) = {.op = OP_RMS_NORM_GATE_UP_GLU_QUANTIZE,
                                                  .variant = "s32",
                                                  .needs = CUDA_SM90,
                                                  .wants = {.layout_for = product_layout},
                                                  .fits = fits,
                                                  .run = run};
