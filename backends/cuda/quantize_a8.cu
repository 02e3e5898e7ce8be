/* quantize_a8.cu: rows of f32, at any strides, as A8: a warp a block of 32 values (a8.cuh). Bound, in decode, by its launch. */
#include "backends/cuda/a8.cuh"
#include "backends/cuda/product.h"

enum { WARPS = 8 };

struct quantize_args {
    const uint8_t *from;
    uint8_t *to;
    size_t from_nb[4], to_nb[4];
    uint32_t blocks, ne[3]; /* of 32 values in a row; rows along dimensions 1 to 3 */
    uint64_t all;           /* blocks of all rows */
};

static __global__ void __launch_bounds__(32 * WARPS) quantize_a8(const __grid_constant__ struct quantize_args a)
{
    uint64_t block = (uint64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    cuda_release();
    cuda_wait();
    if (block >= a.all)
        return;
    uint64_t row = block / a.blocks, at = block % a.blocks;
    size_t i1 = row % a.ne[0], i2 = row / a.ne[0] % a.ne[1], i3 = row / a.ne[0] / a.ne[1];
    const uint8_t *from = a.from + i1 * a.from_nb[1] + i2 * a.from_nb[2] + i3 * a.from_nb[3];
    uint8_t *to = a.to + i1 * a.to_nb[1] + i2 * a.to_nb[2] + i3 * a.to_nb[3];
    a8_store_1((struct block_a8 *)to + at, *(const float *)(from + (at * 32 + (threadIdx.x & 31)) * a.from_nb[0]));
}

int product_quantize(const struct exec *x, const struct tensor *from, const struct tensor *to)
{
    struct quantize_args a = {};
    a.from = (const uint8_t *)from->data;
    a.to = (uint8_t *)to->data;
    for (int i = 0; i < MAX_DIMS; i++) {
        a.from_nb[i] = from->nb[i];
        a.to_nb[i] = to->nb[i];
    }
    for (int i = 0; i < 3; i++)
        a.ne[i] = (uint32_t)from->ne[i + 1];
    a.blocks = (uint32_t)(from->ne[0] / 32);
    a.all = (uint64_t)a.blocks * (uint64_t)tensor_rows(from);
    return cuda_launch(x, quantize_a8, dim3((unsigned)((a.all + WARPS - 1) / WARPS)), dim3(32 * WARPS), 0, a);
}

static bool fits(const struct node *n, struct reason *r)
{
    if (n->out->format != FORMAT_A8)
        return fits_not(r, "the output is %s, not A8", format_get(n->out->format)->name);
    if (!tensor_rows_contiguous(n->out))
        return fits_not(r, "the blocks of an output row do not lie one behind the other");
    for (int i = 1; i < MAX_DIMS; i++)
        if (n->out->nb[i] % 8)
            return fits_not(r, "an output row begins at an odd place");
    if (tensor_elements(n->out) / 32 / WARPS > INT32_MAX)
        return fits_not(r, "more values than 2^39");
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    return product_quantize(x, n->src[0], n->out);
}

CUDA_KERNEL(quantize_a8) = {.op = OP_QUANTIZE, .variant = "a8", .needs = CUDA_SM90, .fits = fits, .run = run};
