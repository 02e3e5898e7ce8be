/* matmul_single.cuh: prefill with weights of single values (f16, bf16, f32) in rows and f32 activations, on the tensor cores'
 * tf32 products.
 *
 * A number in tf32 has 11 bits, as many as an f16, and the range of an f32: weights of f16 and bf16 are exact in it. An f32 is
 * the sum of two, but for 2^-22 of it, so an activation takes two products where one of rounded values would err by 1e-4, and
 * an f32 weight three. Sums are in f32: those of a step on the tensor cores, those of steps beside them (ms_step).
 *
 * A block makes 128 rows times 64 tokens, 8 warps of 32 x 32, 16 values of k a step; the next step's values are on their way,
 * in registers, while this one's are multiplied. Rows in shared memory are 20 words apart, so that the four words of eight rows
 * that a load takes lie in different banks. */
#ifndef BACKENDS_CUDA_MATMUL_SINGLE_CUH
#define BACKENDS_CUDA_MATMUL_SINGLE_CUH

#include "backends/cuda/activation.cuh"

enum { MS_ROWS = 128, MS_TOKENS = 64, MS_DEPTH = 16, MS_STRIDE = 20, MS_THREADS = 256 };

template <class S> struct ms_shared {
    static constexpr bool exact = S::values == 8;
    float a[MS_ROWS][MS_STRIDE], a_low[exact ? 1 : MS_ROWS][MS_STRIDE];
    float b[MS_TOKENS][MS_STRIDE], b_low[MS_TOKENS][MS_STRIDE];
};

__device__ __forceinline__ float ms_round(float x)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return __uint_as_float(r);
}

__device__ __forceinline__ void ms_split(float4 v, float *high, float *low)
{
    float4 h = make_float4(ms_round(v.x), ms_round(v.y), ms_round(v.z), ms_round(v.w));
    *(float4 *)high = h;
    *(float4 *)low = make_float4(ms_round(v.x - h.x), ms_round(v.y - h.y), ms_round(v.z - h.z), ms_round(v.w - h.w));
}

/* c += 16 rows x 8 values times 8 values x 8 tokens. */
__device__ __forceinline__ void ms_product(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

/* A step's values, on their way. */
template <class S> struct ms_values {
    static constexpr int per_row = MS_DEPTH / S::values, loads = MS_ROWS * per_row / MS_THREADS;
    words4 w[loads];
    float4 x;
    __device__ __forceinline__ void fetch(const struct product_args &a, const struct product_matrix &m, uint32_t row,
                                          uint32_t token, uint32_t at)
    {
#pragma unroll
        for (int j = 0; j < loads; j++) {
            uint32_t i = threadIdx.x + j * MS_THREADS, g = at + i % per_row, of = row + i / per_row;
            w[j] = {0, 0, 0, 0};
            if (g < a.groups && of < m.rows)
                w[j] = load_16(m.weight.stream[0] + ((size_t)of * a.groups + g) * 16);
        }
        uint32_t quad = at * (S::values / 4) + threadIdx.x % 4, of = token + threadIdx.x / 4;
        x = make_float4(0, 0, 0, 0);
        if (quad < a.groups * (S::values / 4) && of < (uint32_t)a.tokens)
            x = __ldcg((const float4 *)(a.x + of * a.x_stride + (size_t)quad * 16));
    }
    __device__ __forceinline__ void store(ms_shared<S> &s) const
    {
#pragma unroll
        for (int j = 0; j < loads; j++) {
            int i = threadIdx.x + j * MS_THREADS, r = i / per_row, at = i % per_row * S::values;
            float v[S::values];
            S::unpack(w[j], v);
#pragma unroll
            for (int k = 0; k < S::values; k += 4) {
                float4 q = make_float4(v[k], v[k + 1], v[k + 2], v[k + 3]);
                if constexpr (ms_shared<S>::exact)
                    *(float4 *)&s.a[r][at + k] = q;
                else
                    ms_split(q, &s.a[r][at + k], &s.a_low[r][at + k]);
            }
        }
        int t = threadIdx.x / 4, at = threadIdx.x % 4 * 4;
        ms_split(x, &s.b[t][at], &s.b_low[t][at]);
    }
};

__device__ __forceinline__ void ms_load_rows(float (&a)[4], const float (*from)[MS_STRIDE], int row, int k)
{
    const int g = (threadIdx.x & 31) >> 2, c = threadIdx.x & 3;
    a[0] = from[row + g][k + c];
    a[1] = from[row + g + 8][k + c];
    a[2] = from[row + g][k + c + 4];
    a[3] = from[row + g + 8][k + c + 4];
}

__device__ __forceinline__ void ms_load_tokens(float (&b)[2], const float (*from)[MS_STRIDE], int token, int k)
{
    const int g = (threadIdx.x & 31) >> 2, c = threadIdx.x & 3;
    b[0] = from[token + g][k + c];
    b[1] = from[token + g][k + c + 4];
}

/* A step's products are summed apart, small ones first, and then added: the tensor cores cut each sum off instead of rounding
 * it, which over a long k adds up. */
template <class S> __device__ __forceinline__ void ms_step(const ms_shared<S> &s, int rows, int tokens, float (*acc)[2][4])
{
    constexpr int STEPS = MS_DEPTH / 8;
    constexpr bool exact = ms_shared<S>::exact;
    float a[STEPS][2][4], a_low[exact ? 1 : STEPS][2][4];
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
        for (int m = 0; m < 2; m++) {
            ms_load_rows(a[k][m], s.a, rows + 16 * m, 8 * k);
            if constexpr (!exact)
                ms_load_rows(a_low[k][m], s.a_low, rows + 16 * m, 8 * k);
        }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float sum[2][4] = {}, b[STEPS][2];
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            float b_low[2];
            ms_load_tokens(b[k], s.b, tokens + 8 * n, 8 * k);
            ms_load_tokens(b_low, s.b_low, tokens + 8 * n, 8 * k);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                ms_product(sum[m], a[k][m], b_low);
                if constexpr (!exact)
                    ms_product(sum[m], a_low[k][m], b[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int m = 0; m < 2; m++)
                ms_product(sum[m], a[k][m], b[k]);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[n][m][i] += sum[m][i];
    }
}

template <class S>
static __global__ void __launch_bounds__(MS_THREADS, 2) matmul_single(const __grid_constant__ struct product_args a)
{
    __shared__ __align__(16) ms_shared<S> s;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, rows = warp % 4 * 32, tokens = warp / 4 * 32;
    uint32_t tile = blockIdx.y;
    const struct product_matrix &matrix = a.matrix[product_tile(a, MS_ROWS, &tile)];
    const uint32_t row = tile * MS_ROWS, token = blockIdx.x * MS_TOKENS;
    float acc[4][2][4] = {};
    ms_values<S> next;
    cuda_release();
    cuda_wait();
    next.fetch(a, matrix, row, token, 0);
    for (uint32_t at = 0; at < a.groups; at += ms_values<S>::per_row) {
        __syncthreads();
        next.store(s);
        __syncthreads();
        if (at + ms_values<S>::per_row < a.groups)
            next.fetch(a, matrix, row, token, at + ms_values<S>::per_row);
        ms_step<S>(s, rows, tokens, acc);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t r = row + rows + 16 * m + (lane >> 2) + 8 * (i / 2),
                         t = token + tokens + 8 * n + 2 * (lane & 3) + i % 2;
                if (r < matrix.rows && t < (uint32_t)a.tokens)
                    product_store(matrix, r, (int)t, acc[n][m][i]);
            }
}

template <class S> static int ms_run(const struct exec *x, const struct product_args *a)
{
    dim3 grid((unsigned)(a->tokens + MS_TOKENS - 1) / MS_TOKENS, product_tiles(a, MS_ROWS));
    return cuda_launch(x, matmul_single<S>, grid, dim3(MS_THREADS), 0, *a);
}

#endif
