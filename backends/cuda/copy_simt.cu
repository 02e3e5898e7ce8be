/* copy_simt.cu: copy within a device: rows between F32, F16, BF16 and Q8_0, i32 into i32, out of any strides. A block takes 1024
 * values of a row. Each thread converts one value; to Q8_0 a warp makes a block of its 32. Whole spans between memories
 * are copy_transfer's. */
#include "backends/cuda/row_store.cuh"

extern "C" {
#include "ops/copy.h"
}

enum { COPY_THREADS = 256, COPY_BLOCK = 1024 };

static __global__ void __launch_bounds__(COPY_THREADS) copy_rows(struct view x, struct view y, int64_t rows)
{
    cuda_release();
    cuda_wait();
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        int64_t i[3], end = ((int64_t)blockIdx.x + 1) * COPY_BLOCK;
        view_split(y, row, i);
        const char *from = view_row(x, i[0], i[1], i[2]);
        char *to = view_row(y, i[0], i[1], i[2]);
        end = end < y.ne[0] ? end : y.ne[0];
        for (int64_t j = (int64_t)blockIdx.x * COPY_BLOCK + threadIdx.x; j < end; j += COPY_THREADS) {
            if (x.format == FORMAT_I32) {
                *(int32_t *)(to + j * y.nb[0]) = *(const int32_t *)(from + j * x.nb[0]);
                continue;
            }
            float v = load_value(x.format, from, x.nb[0], j);
            if (y.format == FORMAT_F32)
                *(float *)(to + j * y.nb[0]) = v;
            else if (y.format == FORMAT_F16)
                *(uint16_t *)(to + j * y.nb[0]) = f16_of_f32(v);
            else if (y.format == FORMAT_BF16)
                *(uint16_t *)(to + j * y.nb[0]) = bf16_of_f32(v);
            else
                warp_store_q8_0(to + j / 32 * y.nb[0], v);
        }
    }
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[0], *y = n->out;
    if (x->layout)
        return fits_not(r, "%s is packed", x->name);
    if (x->format != FORMAT_I32 && (!format_loads(x->format) || !format_stores(y->format)))
        return fits_not(r, "from %s to %s", format_get(x->format)->name, format_get(y->format)->name);
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    int64_t rows = tensor_rows(n->out);
    return cuda_launch(x, copy_rows, dim3((unsigned)div_up(n->out->ne[0], COPY_BLOCK), (unsigned)(rows < 65535 ? rows : 65535)),
                       dim3(COPY_THREADS), 0, view_of(n->src[0]), view_of(n->out), rows);
}

CUDA_KERNEL(copy_simt) = {.op = OP_COPY, .variant = "simt", .needs = CUDA_SM90, .fits = fits, .run = run};
