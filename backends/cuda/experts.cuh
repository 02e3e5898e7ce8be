/* experts.cuh: mul_mat_id on s32 layouts. Pairs of a token and one of its experts: a few are done one by one, each by rows
 * (matvec.cuh) on its expert's stretch of the packed weight; many are sorted by expert first (mul_mat_id_s32.cu) and done by
 * tiles (matmul.cuh), so that an expert's weights are read once for all that was sent there. Which expert it is, is read on the
 * device: the launches are the same for every choice of experts. */
#ifndef BACKENDS_CUDA_EXPERTS_CUH
#define BACKENDS_CUDA_EXPERTS_CUH

#include "backends/cuda/matmul.cuh"
#include "backends/cuda/matmul_single.cuh"
#include "backends/cuda/stream.cuh"

enum { EXPERTS_BY_ROWS = 32 /* pairs */ };

struct expert_args {
    const uint8_t *ids; /* i32 of pair j + used t: at j strides[0] + t strides[1] */
    size_t strides[2];  /* bytes */
    const float *bias;  /* or NULL */
    size_t bias_stride; /* floats */
    int n_expert, used, per_row, pairs;
};

extern "C" {
/* Sorts n's pairs into x->shared: see mm_lists. Pairs of no expert get their rows of zeros here. */
int experts_any(const struct exec *x, const struct node *n); /* by the kernel of any format */
int experts_sort(const struct exec *x, const struct node *n, const struct expert_args *e, struct mm_lists *l);
size_t experts_shared(const struct node *n);
void experts_args_of(const struct node *n, struct product_args *a, struct expert_args *e);
}

__device__ __forceinline__ int expert_of(const struct expert_args &e, int pair)
{
    int id = *(const int32_t *)(e.ids + (size_t)(pair % e.used) * e.strides[0] + (size_t)(pair / e.used) * e.strides[1]);
    return id >= 0 && id < e.n_expert ? id : -1;
}

template <class F, int R, int U>
__device__ __forceinline__ void expert_pass(const struct product_args &a, const struct expert_args &e, int pair, int expert,
                                            uint32_t row, const activation<F> &x)
{
    float acc[R][1];
    const s32_matrix &w = a.matrix[0].weight;
    mv_rows<F, 1, R, U, false>(w, w, (uint32_t)expert * a.rows + row, a.groups, x, threadIdx.x & 31, 32, acc, [] {});
    if ((threadIdx.x & 31) == 0)
#pragma unroll
        for (int r = 0; r < R; r++)
            product_store(a.matrix[0], row + r, pair,
                          acc[r][0] + (e.bias ? e.bias[(size_t)expert * e.bias_stride + row + r] : 0));
}

/* A column of blocks a pair. */
template <class F>
__global__ void __launch_bounds__(32 * PRODUCT_WARPS, mv_resident<F, 1>)
    matvec_experts(const __grid_constant__ struct product_args a, const __grid_constant__ struct expert_args e)
{
    extern __shared__ __align__(16) unsigned char shared[];
    constexpr int WIDE = F::wide;
    uint32_t slots = gridDim.x * PRODUCT_WARPS, slot = blockIdx.x * PRODUCT_WARPS + (threadIdx.x >> 5);
    uint32_t row = (uint32_t)((uint64_t)a.rows * slot / slots), last = (uint32_t)((uint64_t)a.rows * (slot + 1) / slots);
    int pair = (int)blockIdx.y;
    cuda_release();
    cuda_wait();
    int expert = expert_of(e, pair);
    if (expert < 0) {
        for (uint32_t r = row + (threadIdx.x & 31); r < last; r += 32)
            product_store(a.matrix[0], r, pair, 0);
        return;
    }
    activation<F> x;
    x.template stage<1>(a.x + (size_t)(pair / e.per_row) * a.x_stride, 0, 1, a.groups, shared);
    __syncthreads();
    while (row < last) {
        uint32_t n = last - row;
        if (WIDE >= 4 && n >= 4) {
            expert_pass<F, WIDE, 1>(a, e, pair, expert, row, x);
            n = WIDE;
        } else if (n >= 2) {
            expert_pass<F, 2, WIDE / 2>(a, e, pair, expert, row, x);
            n = 2;
        } else {
            expert_pass<F, 1, WIDE>(a, e, pair, expert, row, x);
        }
        row += n;
    }
}

template <class F> static int experts_run(const struct exec *x, const struct node *n)
{
    struct product_args a;
    struct expert_args e;
    experts_args_of(n, &a, &e);
    if (e.pairs <= EXPERTS_BY_ROWS) {
        size_t shared = (size_t)a.groups * activation<F>::group_bytes;
        int blocks = cuda_units(x->device) * product_resident(shared, mv_resident<F, 1>) / (e.pairs ? e.pairs : 1);
        int needed = (int)((a.rows + PRODUCT_WARPS - 1) / PRODUCT_WARPS);
        blocks = blocks < 1 ? 1 : blocks < needed ? blocks : needed;
        return cuda_launch(x, matvec_experts<F>, dim3((unsigned)blocks, (unsigned)e.pairs), dim3(32 * PRODUCT_WARPS), shared, a,
                           e);
    }
    if constexpr (is_single<F>) {
        return experts_any(x, n);
    } else {
        struct mm_lists l;
        int rc = experts_sort(x, n, &e, &l);
        return rc ? rc : mm_launch<F, 64>(x, a, l, (uint32_t)(e.pairs / 64 + e.n_expert));
    }
}

/* The end of each mul_mat_<format>_s32.cu: the kernel of one product, and the table's row for the others. */
#define PRODUCT_FORMAT(ID, id)                                                                                                 \
    static int rows(const struct exec *x, const struct product_args *a, bool pair)                                             \
    {                                                                                                                          \
        return stream_run<s32_##id>(x, *a, pair);                                                                              \
    }                                                                                                                          \
    static int tiles(const struct exec *x, const struct product_args *a)                                                       \
    {                                                                                                                          \
        return mm_run<s32_##id>(x, a);                                                                                         \
    }                                                                                                                          \
    static int experts(const struct exec *x, const struct node *n)                                                             \
    {                                                                                                                          \
        return experts_run<s32_##id>(x, n);                                                                                    \
    }                                                                                                                          \
    extern "C" {                                                                                                               \
    extern const struct product_format product_##id;                                                                           \
    }                                                                                                                          \
    const struct product_format product_##id = {FORMAT_##ID, &layout_##id##_s32, 32, rows, tiles, experts};                    \
    static bool fits(const struct node *n, struct reason *r)                                                                   \
    {                                                                                                                          \
        if (n->src[0]->format != FORMAT_##ID)                                                                                  \
            return fits_not(r, "W is %s, not %s", format_get(n->src[0]->format)->name, format_get(FORMAT_##ID)->name);         \
        return product_fits(n, false, r);                                                                                      \
    }                                                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        struct product_args a;                                                                                                 \
        product_args_of(n, &a);                                                                                                \
        return product_run(x, &a, FORMAT_##ID);                                                                                \
    }                                                                                                                          \
    CUDA_KERNEL(mul_mat_##id##_s32) = {.op = OP_MUL_MAT,                                                                       \
                                       .variant = #id "_s32",                                                                  \
                                       .needs = CUDA_SM90,                                                                     \
                                       .wants = {.layout = &layout_##id##_s32, .quantized = true, .activation = FORMAT_A8},    \
                                       .fits = fits,                                                                           \
                                       .run = run,                                                                             \
                                       .writes_host = true}

/* The same for a format of single values. */
#define PRODUCT_SINGLE(ID, id)                                                                                                 \
    static int rows(const struct exec *x, const struct product_args *a, bool pair)                                             \
    {                                                                                                                          \
        return stream_run<single<rows_##id>>(x, *a, pair);                                                                     \
    }                                                                                                                          \
    static int tiles(const struct exec *x, const struct product_args *a)                                                       \
    {                                                                                                                          \
        return ms_run<rows_##id>(x, a);                                                                                        \
    }                                                                                                                          \
    static int experts(const struct exec *x, const struct node *n)                                                             \
    {                                                                                                                          \
        return experts_run<single<rows_##id>>(x, n);                                                                           \
    }                                                                                                                          \
    extern "C" {                                                                                                               \
    extern const struct product_format product_##id;                                                                           \
    }                                                                                                                          \
    const struct product_format product_##id = {FORMAT_##ID, NULL, rows_##id::values, rows, tiles, experts};                   \
    static bool fits(const struct node *n, struct reason *r)                                                                   \
    {                                                                                                                          \
        if (n->src[0]->format != FORMAT_##ID)                                                                                  \
            return fits_not(r, "W is %s, not %s", format_get(n->src[0]->format)->name, format_get(FORMAT_##ID)->name);         \
        return product_fits(n, true, r);                                                                                       \
    }                                                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        struct product_args a;                                                                                                 \
        product_args_of(n, &a);                                                                                                \
        return product_run(x, &a, FORMAT_##ID);                                                                                \
    }                                                                                                                          \
    CUDA_KERNEL(mul_mat_##id) = {                                                                                              \
        .op = OP_MUL_MAT, .variant = #id, .needs = CUDA_SM90, .fits = fits, .run = run, .writes_host = true}

#endif
