/* mul_mat_any.cu: the matrix product that takes everything: any formats in file order, any strides, batches that share
 * matrices. What has a kernel of its own is slower here.
 *
 * A block makes 64 rows times 64 tokens, 16 values of k at a time, which its threads unpack value by value into shared memory;
 * a thread has 4 x 4 sums in f32. Rows of few tokens leave most of a tile empty: what is slow in decode belongs in an s32
 * layout. */
#include "backends/cuda/product.h"
#include "backends/cuda/unpack.cuh"

enum { TILE = 64, DEPTH = 16, THREADS = 256 };

struct any_side {
    const uint8_t *data;
    struct unpack_row row;
    size_t nb[4];
    int64_t rows;
};

struct any_args {
    struct any_side w, x;
    uint8_t *out;
    size_t out_nb[4];
    int64_t k;
    uint32_t batches_2, shared_2, shared_3; /* batches along dimension 2, and how many of them read one matrix */
};

static __device__ void any_load(const struct any_side &s, const uint8_t *batch, int64_t first, int64_t at, int64_t k,
                                float (*to)[TILE + 1])
{
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        int d = i % DEPTH, r = i / DEPTH;
        bool in = first + r < s.rows && at + d < k;
        to[d][r] = in ? unpack_at(s.row, batch + (size_t)(first + r) * s.nb[1], at + d) : 0;
    }
}

static __global__ void __launch_bounds__(THREADS) mul_mat_any(const __grid_constant__ struct any_args a)
{
    __shared__ float w[DEPTH][TILE + 1], x[DEPTH][TILE + 1];
    uint32_t i2 = blockIdx.z % a.batches_2, i3 = blockIdx.z / a.batches_2;
    int64_t row = (int64_t)blockIdx.x * TILE, token = (int64_t)blockIdx.y * TILE;
    int r = threadIdx.x % 16, t = threadIdx.x / 16;
    float acc[4][4] = {};
    cuda_release();
    cuda_wait();
    const uint8_t *from_w = a.w.data + (i2 / a.shared_2) * a.w.nb[2] + (i3 / a.shared_3) * a.w.nb[3];
    const uint8_t *from_x = a.x.data + i2 * a.x.nb[2] + i3 * a.x.nb[3];
    for (int64_t at = 0; at < a.k; at += DEPTH) {
        any_load(a.w, from_w, row, at, a.k, w);
        any_load(a.x, from_x, token, at, a.k, x);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][j] += w[d][r + 16 * i] * x[d][t + 16 * j];
        __syncthreads();
    }
    uint8_t *out = a.out + i2 * a.out_nb[2] + i3 * a.out_nb[3];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (row + r + 16 * i < a.w.rows && token + t + 16 * j < a.x.rows)
                *(float *)(out + (size_t)(row + r + 16 * i) * a.out_nb[0] + (size_t)(token + t + 16 * j) * a.out_nb[1]) =
                    acc[i][j];
}

static struct any_side side_of(const struct tensor *t)
{
    struct any_side s = {};
    s.data = (const uint8_t *)t->data;
    s.row = unpack_row_of(t->format, t->nb[0]);
    for (int i = 0; i < MAX_DIMS; i++)
        s.nb[i] = t->nb[i];
    s.rows = t->ne[1];
    return s;
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *out = n->out;
    if ((out->ne[1] + TILE - 1) / TILE > 65535 || out->ne[2] * out->ne[3] > 65535 || (out->ne[0] + TILE - 1) / TILE > INT32_MAX)
        return fits_not(r, "more tiles or batches than a grid has");
    for (int i = 0; i < MAX_DIMS; i++)
        if (out->nb[i] % sizeof(float))
            return fits_not(r, "an element of the output lies at an odd place");
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    const struct tensor *w = n->src[0], *out = n->out;
    if (tensor_elements(out) == 0)
        return 0;
    struct any_args a = {};
    a.w = side_of(w);
    a.x = side_of(n->src[1]);
    a.out = (uint8_t *)out->data;
    for (int i = 0; i < MAX_DIMS; i++)
        a.out_nb[i] = out->nb[i];
    a.k = w->ne[0];
    a.batches_2 = (uint32_t)out->ne[2];
    a.shared_2 = (uint32_t)(out->ne[2] / w->ne[2]);
    a.shared_3 = (uint32_t)(out->ne[3] / w->ne[3]);
    dim3 grid((unsigned)((out->ne[0] + TILE - 1) / TILE), (unsigned)((out->ne[1] + TILE - 1) / TILE),
              (unsigned)(out->ne[2] * out->ne[3]));
    return cuda_launch(x, mul_mat_any, grid, dim3(THREADS), 0, a);
}

CUDA_KERNEL(mul_mat_any) = {.op = OP_MUL_MAT, .variant = "any", .needs = CUDA_SM90, .fits = fits, .run = run};
