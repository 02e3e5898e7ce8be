/* norm.cu: the body of l2_norm, of rms_norm and of what rms_norm fuses into: the residual add before it, the mul by its weight
 * and the quantisation behind it.
 *
 * A row stays in registers between its two passes: four values a thread and step, all loads in flight before the first sum, one
 * barrier for the sum of squares. Rows of up to 512 (heads) go to a warp each, four warps a block; wider ones to one block
 * each, of up to 1024 threads. What is read at other strides, or is no multiple of four, takes the strided kernel, which reads
 * each value twice. In a decode step there is one row, and the time is the latency of one load and one barrier: few contiguous
 * rows take a kernel that knows nothing of strides, whose arguments are a few addresses: each line of 64 bytes of arguments is one
 * more wait for memory, and so is each division.
 * What a row's scale and results are, norm.cuh says. */
#include "backends/cuda/norm.h"

#include "backends/cuda/norm.cuh"

extern "C" {
#include "ops/l2_norm.h"
#include "ops/rms_norm.h"
}

enum { NORM_MOST = 16384 }; /* values of a row that lie in registers */

/* A node as steps. */
struct norm {
    const struct tensor *a, *b, *weight; /* b: added to a */
    const struct tensor *sum, *normed, *product, *quantized;
    float eps;
    bool mean; /* of the squares, not their sum */
};

static struct norm norm_of(const struct node *n)
{
    struct norm m = {};
    m.a = n->src[0];
    m.mean = n->op != OP_L2_NORM;
    m.eps = m.mean ? node_params(n, struct rms_norm_params)->eps : node_params(n, struct l2_norm_params)->eps;
    if (!n->n_parts)
        m.normed = n->out;
    for (int i = 0; i < n->n_parts; i++) {
        const struct node *part = n->parts[i];
        const struct tensor *left = node_leaves(n, part->out) ? part->out : NULL;
        if (part->op == OP_ADD) {
            m.b = n->src[1];
            m.sum = left;
        } else if (part->op == OP_RMS_NORM) {
            m.normed = left;
        } else if (part->op == OP_MUL) {
            m.weight = n->src[n->n_src - 1];
            m.product = left;
        } else {
            m.quantized = left;
        }
    }
    return m;
}

bool norm_fits(const struct node *n, struct reason *r)
{
    struct norm m = norm_of(n);
    int64_t width = m.a->ne[0];
    if (width > INT32_MAX / 4 || tensor_rows(m.a) > INT32_MAX)
        return fits_not(r, "%lld rows of %lld", (long long)tensor_rows(m.a), (long long)width);
    if (m.weight && (m.weight->ne[0] != width || m.weight->format != FORMAT_F32))
        return fits_not(r, "a weight of %lld along rows of %lld", (long long)m.weight->ne[0], (long long)width);
    if (m.quantized && (!tensor_rows_contiguous(m.quantized) || (m.quantized->format != FORMAT_A8 && m.quantized->format != FORMAT_F16 &&
                                                                m.quantized->format != FORMAT_BF16)))
        return fits_not(r, "a result in %s", format_get(m.quantized->format)->name);
    return true;
}

struct norm_task {
    struct view a, b, weight, sum, normed, product, quantized; /* data NULL: has no such step */
    int64_t rows;
    int width;
    float eps, divisor;
};

__device__ static inline char *norm_to(const struct view &v, const int64_t i[3])
{
    return v.data ? view_row(v, i[0], i[1], i[2]) : NULL;
}

/* Rows of whole vectors of four, up to 4 THREADS STEPS values. */
template <int THREADS, int STEPS>
static __global__ void __launch_bounds__(THREADS == WARP ? 128 : THREADS) norm_vectors(const __grid_constant__ struct norm_task p)
{
    __shared__ float room[32];
    __shared__ double room_double[32];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, i[3];
    if (row >= p.rows) /* a whole warp, of those that have a row each */
        return;
    view_split(p.a, row, i);
    const float4 *a = (const float4 *)norm_to(p.a, i), *b = (const float4 *)norm_to(p.b, i);
    int chunks = p.width / 4;
    float4 x[STEPS], w[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int c = threadIdx.x + s * THREADS;
        w[s] = p.weight.data && c < chunks ? ((const float4 *)p.weight.data)[c] : make_float4(1, 1, 1, 1);
    }
    cuda_release();
    cuda_wait();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int c = threadIdx.x + s * THREADS;
        x[s] = c < chunks ? a[c] : make_float4(0, 0, 0, 0);
    }
    if (b) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            int c = threadIdx.x + s * THREADS;
            float4 y = c < chunks ? b[c] : make_float4(0, 0, 0, 0);
            x[s] = make_float4(x[s].x + y.x, x[s].y + y.y, x[s].z + y.z, x[s].w + y.w);
        }
    }
    float scale = norm_scale<false, THREADS>(x, p.divisor, p.eps, room, room_double);
    struct norm_results to = {(float4 *)norm_to(p.sum, i), (float4 *)norm_to(p.normed, i), (float4 *)norm_to(p.product, i),
                              norm_to(p.quantized, i), p.quantized.format};
    norm_leave<THREADS>(to, chunks, x, w, scale);
}

/* A few rows, all tensors contiguous: everything is at the row's number times the width. */
struct norm_row_task {
    const float4 *a, *b, *weight; /* NULL: has no such step */
    float4 *sum, *normed, *product;
    char *quantized; /* A8 */
    int chunks;      /* vectors of four in a row */
    float eps, share; /* of the sum of squares: 1 / width, or 1 */
};

/* A block a row: STEPS vectors a thread, all asked for at once; the weight's before the row is there. */
template <int THREADS, int STEPS> static __global__ void __launch_bounds__(THREADS) norm_row(const __grid_constant__ struct norm_row_task p)
{
    __shared__ float room[32];
    __shared__ double room_double[32];
    const int first = blockIdx.x * p.chunks;
    float4 x[STEPS], w[STEPS];
    cuda_release();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int c = threadIdx.x + s * THREADS;
        w[s] = p.weight && c < p.chunks ? p.weight[c] : make_float4(1, 1, 1, 1);
    }
    cuda_wait();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int c = threadIdx.x + s * THREADS;
        x[s] = c < p.chunks ? p.a[first + c] : make_float4(0, 0, 0, 0);
    }
    if (p.b) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            int c = threadIdx.x + s * THREADS;
            float4 y = c < p.chunks ? p.b[first + c] : make_float4(0, 0, 0, 0);
            x[s] = make_float4(x[s].x + y.x, x[s].y + y.y, x[s].z + y.z, x[s].w + y.w);
        }
    }
    float scale = norm_scale<true, THREADS>(x, p.share, p.eps, room, room_double);
    struct norm_results to = {p.sum ? p.sum + first : NULL, p.normed ? p.normed + first : NULL, p.product ? p.product + first : NULL,
                              p.quantized ? p.quantized + (size_t)first / 8 * sizeof(struct block_a8) : NULL, FORMAT_A8};
    norm_leave<THREADS>(to, p.chunks, x, w, scale);
}

__device__ static inline float norm_value(const char *a, const char *b, const struct norm_task &p, int j)
{
    float x = *(const float *)(a + j * p.a.nb[0]);
    return b ? x + *(const float *)(b + j * p.b.nb[0]) : x;
}

/* Any strides and width; a block a row. */
static __global__ void __launch_bounds__(256) norm_strided(const __grid_constant__ struct norm_task p)
{
    __shared__ float room[32];
    __shared__ double room_double[32];
    int64_t i[3];
    view_split(p.a, blockIdx.x, i);
    const char *a = norm_to(p.a, i), *b = norm_to(p.b, i);
    cuda_release();
    cuda_wait();
    float squares = 0;
    for (int j = threadIdx.x; j < p.width; j += blockDim.x) {
        float x = norm_value(a, b, p, j);
        squares += x * x;
    }
    squares = block_sum(squares, room);
    float scale = norm_scale<false>(squares, p.divisor, p.eps);
    if (norm_doubtful(squares)) {
        double again = 0;
        for (int j = threadIdx.x; j < p.width; j += blockDim.x) {
            double x = norm_value(a, b, p, j);
            again += x * x;
        }
        scale = norm_scale<false>(block_sum(again, room_double), p.divisor, p.eps);
    }
    char *sum = norm_to(p.sum, i), *normed = norm_to(p.normed, i), *product = norm_to(p.product, i), *quantized = norm_to(p.quantized, i);
    int end = (p.width + WARP - 1) / WARP * WARP;
    for (int j = threadIdx.x; j < end; j += blockDim.x) { /* warps stay whole: 32 neighbours are a block of A8 */
        bool has = j < p.width;
        float x = has ? norm_value(a, b, p, j) : 0, y = x * scale;
        if (sum && has)
            *(float *)(sum + j * p.sum.nb[0]) = x;
        if (normed && has)
            *(float *)(normed + j * p.normed.nb[0]) = y;
        if (p.weight.data && has)
            y *= *(const float *)(p.weight.data + j * p.weight.nb[0]);
        if (product && has)
            *(float *)(product + j * p.product.nb[0]) = y;
        if (quantized && p.quantized.format == FORMAT_A8)
            a8_store_1((struct block_a8 *)quantized + j / 32, y);
        else if (quantized && has)
            ((uint16_t *)quantized)[j] = p.quantized.format == FORMAT_F16 ? f16_of_f32(y) : bf16_of_f32(y);
    }
}

static bool norm_is_vectors(const struct norm *m, int64_t width)
{
    const struct tensor *f32[] = {m->a, m->b, m->weight, m->sum, m->normed, m->product};
    if (width % 4 != 0 || width > NORM_MOST || (m->quantized && !view_aligned(m->quantized, 8)))
        return false;
    for (const struct tensor *t : f32)
        if (t && !view_aligned(t, sizeof(float4)))
            return false;
    return true;
}

template <int THREADS, int STEPS> static int norm_launch(const struct exec *x, const struct norm_task &p)
{
    int rows = THREADS == WARP && p.rows > 132 ? 4 : 1; /* few rows: a multiprocessor each */
    return cuda_launch(x, norm_vectors<THREADS, STEPS>, dim3((unsigned)div_up(p.rows, rows)), dim3(THREADS, (unsigned)rows), 0, p);
}

template <int THREADS, int STEPS> static int norm_row_launch(const struct exec *x, const struct norm_row_task &p, int64_t rows)
{
    return cuda_launch(x, norm_row<THREADS, STEPS>, dim3((unsigned)rows), dim3(THREADS), 0, p);
}

static int norm_rows_run(const struct exec *x, const struct norm_task &of)
{
    struct norm_row_task p = {(const float4 *)of.a.data, (const float4 *)of.b.data, (const float4 *)of.weight.data, (float4 *)of.sum.data,
                              (float4 *)of.normed.data, (float4 *)of.product.data, of.quantized.data, of.width / 4, of.eps, 1 / of.divisor};
    return norm_by_width<true, NORM_MOST>(of.width, [&]<int THREADS, int STEPS>() { return norm_row_launch<THREADS, STEPS>(x, p, of.rows); });
}

int norm_run(const struct exec *x, const struct node *n)
{
    struct norm m = norm_of(n);
    const struct tensor *all[] = {m.a, m.b, m.sum, m.normed, m.product, m.quantized};
    struct norm_task p = {view_of(m.a), view_of(m.b), view_of(m.weight), view_of(m.sum), view_of(m.normed), view_of(m.product), view_of(m.quantized)};
    int64_t width = m.a->ne[0];
    p.rows = tensor_rows(m.a);
    p.width = (int)width;
    p.eps = m.eps;
    p.divisor = m.mean ? (float)width : 1;
    if (p.rows == 0 || width == 0)
        return 0;
    if (!norm_is_vectors(&m, width))
        return cuda_launch(x, norm_strided, dim3((unsigned)p.rows), dim3(256), 0, p);
    if (norm_few_rows(p.rows, width, m.quantized, all, sizeof all / sizeof *all))
        return norm_rows_run(x, p);
    return norm_by_width<false, NORM_MOST>(width, [&]<int THREADS, int STEPS>() { return norm_launch<THREADS, STEPS>(x, p); });
}
