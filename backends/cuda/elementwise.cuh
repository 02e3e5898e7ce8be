/* elementwise.cuh: the two kernels behind add, mul, scale, unary and glu. An op gives a functor of one or two values.
 *
 * Flat: all tensors contiguous (the second may be one row that repeats): vectors of four, a loop over the grid. Strided: rows
 * over the grid's y, elements over its x, any strides and any broadcast. Bound by bytes where there are many, by the launch in a decode
 * step. */
#ifndef BACKENDS_CUDA_ELEMENTWISE_CUH
#define BACKENDS_CUDA_ELEMENTWISE_CUH

#include "backends/cuda/view.cuh"

enum { ELEMENTWISE_THREADS = 256, ELEMENTWISE_BLOCKS = 132 * 16 };

/* repeat: vectors of b until it begins again. */
template <class F>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    elementwise_flat(F f, const float4 *a, const float4 *b, float4 *y, int64_t n, int64_t repeat)
{
    cuda_release();
    cuda_wait();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float4 u = a[i], v = u;
        if (F::two)
            v = b[repeat == n ? i : i % repeat];
        y[i] = make_float4(f(u.x, v.x), f(u.y, v.y), f(u.z, v.z), f(u.w, v.w));
    }
}

template <class F>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS) elementwise_strided(F f, struct view a, struct view b, struct view y, int64_t rows)
{
    cuda_release();
    cuda_wait();
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        int64_t i[3];
        view_split(y, row, i);
        const char *of_a = view_row(a, i[0], i[1], i[2]), *of_b = NULL;
        char *to = view_row(y, i[0], i[1], i[2]);
        if (F::two)
            of_b = view_row(b, i[0] % b.ne[1], i[1] % b.ne[2], i[2] % b.ne[3]);
        for (int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; j < y.ne[0]; j += (int64_t)gridDim.x * blockDim.x) {
            float u = *(const float *)(of_a + j * a.nb[0]), v = u;
            if (F::two)
                v = *(const float *)(of_b + (b.ne[0] == y.ne[0] ? j : j % b.ne[0]) * b.nb[0]);
            *(float *)(to + j * y.nb[0]) = f(u, v);
        }
    }
}

static inline bool elementwise_is_flat(const struct tensor *t)
{
    return tensor_contiguous(t) && (uintptr_t)t->data % sizeof(float4) == 0;
}

template <class F> static int elementwise_run(const struct exec *x, const struct node *n, F f)
{
    const struct tensor *a = n->src[0], *b = F::two ? n->src[1] : NULL, *y = n->out;
    int64_t total = tensor_elements(y), repeat = total / 4;
    if (total == 0)
        return 0;
    bool flat = total % 4 == 0 && elementwise_is_flat(a) && elementwise_is_flat(y);
    if (b && !tensor_same_shape(a, b)) {
        flat = flat && b->ne[0] == a->ne[0] && tensor_rows(b) == 1 && b->ne[0] % 4 == 0;
        repeat = b->ne[0] / 4;
    }
    if (flat && (!b || elementwise_is_flat(b))) {
        int64_t blocks = div_up(total / 4, ELEMENTWISE_THREADS);
        return cuda_launch(x, elementwise_flat<F>, dim3((unsigned)(blocks < ELEMENTWISE_BLOCKS ? blocks : (int64_t)ELEMENTWISE_BLOCKS)),
                           dim3(ELEMENTWISE_THREADS), 0, f, (const float4 *)a->data, (const float4 *)(b ? b->data : NULL),
                           (float4 *)y->data, total / 4, repeat);
    }
    int64_t rows = tensor_rows(y), blocks = div_up(y->ne[0], ELEMENTWISE_THREADS);
    int threads = y->ne[0] <= 64 ? 64 : ELEMENTWISE_THREADS;
    return cuda_launch(x, elementwise_strided<F>,
                       dim3((unsigned)(blocks < ELEMENTWISE_BLOCKS ? blocks : (int64_t)ELEMENTWISE_BLOCKS), (unsigned)(rows < 65535 ? rows : 65535)),
                       dim3((unsigned)threads), 0, f, view_of(a), view_of(b), view_of(y), rows);
}

#endif
