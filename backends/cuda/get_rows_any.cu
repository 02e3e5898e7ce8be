/* get_rows_any.cu: rows of a table in file order or in its format's s32 layout, as f32; of any format and strides. A thread a
 * value in file order, a thread a group of 32 in s32: a decode step reads one row, so its launch is what it costs. */
#include "backends/cuda/product.h"
#include "backends/cuda/unpack.cuh"

enum { THREADS = 256 };

struct rows_args {
    const uint8_t *table;
    struct s32_matrix packed;
    struct unpack_row row;
    size_t nb[4], out_nb[2], ids_step;
    int64_t ne[3], rows, width;
    const uint8_t *ids;
    uint8_t *out;
};

static __device__ int64_t rows_id(const struct rows_args &a)
{
    int64_t id = *(const int32_t *)(a.ids + (size_t)blockIdx.y * a.ids_step);
    return id >= 0 && id < a.rows ? id : -1;
}

static __global__ void __launch_bounds__(THREADS) get_rows(const __grid_constant__ struct rows_args a)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    cuda_release();
    cuda_wait();
    if (i >= a.width)
        return;
    int64_t id = rows_id(a);
    float v = 0;
    if (id >= 0)
        v = unpack_at(a.row,
                      a.table + (size_t)(id % a.ne[0]) * a.nb[1] + (size_t)(id / a.ne[0] % a.ne[1]) * a.nb[2] +
                          (size_t)(id / a.ne[0] / a.ne[1]) * a.nb[3],
                      i);
    *(float *)(a.out + (size_t)i * a.out_nb[0] + (size_t)blockIdx.y * a.out_nb[1]) = v;
}

template <class F> static __global__ void __launch_bounds__(THREADS) get_rows_s32(const __grid_constant__ struct rows_args a)
{
    int64_t g = (int64_t)blockIdx.x * THREADS + threadIdx.x, groups = a.width / 32;
    cuda_release();
    cuda_wait();
    if (g >= groups)
        return;
    int64_t id = rows_id(a);
    float y[32];
    uint32_t u = (uint32_t)(id * groups + g);
    if (id >= 0)
        s32_values<F>(F::load(a.packed, u), u, y);
    uint8_t *out = a.out + (size_t)(32 * g) * a.out_nb[0] + (size_t)blockIdx.y * a.out_nb[1];
#pragma unroll
    for (int i = 0; i < 32; i++)
        *(float *)(out + (size_t)i * a.out_nb[0]) = id >= 0 ? y[i] : 0;
}

static bool fits(const struct node *n, struct reason *r)
{
    if (n->out->ne[1] > 65535)
        return fits_not(r, "more rows than a grid has");
    if (n->out->nb[0] % sizeof(float) || n->out->nb[1] % sizeof(float) || n->src[1]->nb[0] % sizeof(float))
        return fits_not(r, "an element lies at an odd place");
    if (n->src[0]->ne[0] / 32 > UINT32_MAX / (tensor_rows(n->src[0]) + 1))
        return fits_not(r, "the table has more than 2^37 values");
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    const struct tensor *table = n->src[0], *ids = n->src[1], *out = n->out;
    struct rows_args a = {};
    a.table = (const uint8_t *)table->data;
    a.row = unpack_row_of(table->format, table->nb[0]);
    for (int i = 0; i < MAX_DIMS; i++)
        a.nb[i] = table->nb[i];
    for (int i = 0; i < 3; i++)
        a.ne[i] = table->ne[i + 1];
    a.rows = tensor_rows(table);
    a.width = out->ne[0];
    a.out = (uint8_t *)out->data;
    a.out_nb[0] = out->nb[0];
    a.out_nb[1] = out->nb[1];
    a.ids = (const uint8_t *)ids->data;
    a.ids_step = ids->nb[0];
    unsigned rows = (unsigned)out->ne[1];
    if (!table->layout)
        return cuda_launch(x, get_rows, dim3((unsigned)((a.width + THREADS - 1) / THREADS), rows), dim3(THREADS), 0, a);
    if (table->layout != product_layout(table->format))
        return cuda_fault("get_rows: %.60s has the layout %s, which no device kernel reads", table->name, table->layout->name);
    a.packed = product_weight(table);
    dim3 grid((unsigned)((a.width / 32 + THREADS - 1) / THREADS), rows);
    switch (table->format) {
#define X(ID, id)                                                                                                              \
    case FORMAT_##ID:                                                                                                          \
        return cuda_launch(x, get_rows_s32<s32_##id>, grid, dim3(THREADS), 0, a);
        S32_FORMATS(X)
#undef X
    default:
        return 0;
    }
}

CUDA_KERNEL(get_rows_any) = {
    .op = OP_GET_ROWS, .variant = "any", .needs = CUDA_SM90, .wants = {.any_layout = true}, .fits = fits, .run = run};
