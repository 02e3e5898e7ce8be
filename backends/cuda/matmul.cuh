/* matmul.cuh: prefill: a weight matrix in an s32 layout times many tokens of an A8 activation, on the tensor cores' 8-bit
 * integer products: the same numbers as in decode (matvec.cuh), so a prompt's length changes no rounding but the order of sums.
 *
 * A block makes 128 rows times 32, 64 or 128 tokens, 8 warps of 32 rows. It walks along k, 64 values a step: each thread
 * unpacks one group of one row to signed bytes in shared memory (with its scales as f32), while the activation's codes come by
 * asynchronous copies; both a step ahead, in two buffers. Then per 32 values a warp multiplies tiles of 16 x 8, and each
 * integer sum is scaled by row and token and added in f32.
 *
 * Scaling is the bound: 8 instructions for the 4 results of a lane a product, 12 with minima, so integers are never converted
 * (see mm_column). Half-precision products on unpacked weights need no scaling, but round weights and activations: their error
 * is beyond the op's tolerance.
 *
 * With lists of experts, a block's tokens are pairs of one expert (experts.cuh), and its rows of W that expert's. */
#ifndef BACKENDS_CUDA_MATMUL_CUH
#define BACKENDS_CUDA_MATMUL_CUH

#include "backends/cuda/product.cuh"
#include "backends/cuda/s32.cuh"

enum {
    MM_ROWS = 128,
    MM_GROUPS = 2,  /* of 32 values in a step */
    MM_STRIDE = 80, /* bytes of a row of codes in shared memory: 64 and 16, so that eight rows lie in different banks */
    MM_THREADS = 256,
    MM_MAGIC = 0x4b400000 /* the bits of 1.5 * 2^23 */
};

struct mm_lists {
    const int32_t *start; /* [n_expert + 1]; NULL: no experts */
    const int32_t *order; /* pairs, by expert */
    const float *bias;    /* a row an expert, or NULL */
    size_t bias_stride;
    int n_expert, per_row; /* pairs that read one row of X */
};

template <int BN> struct mm_shared {
    alignas(16) unsigned char a[2][MM_ROWS * MM_STRIDE], b[2][BN * MM_STRIDE];
    float2 scale[2][MM_GROUPS][2][MM_ROWS]; /* s and -1.5 * 2^23 s, of both halves */
    float min[2][MM_GROUPS][2][MM_ROWS];
    alignas(16) float2 head[2][MM_GROUPS][2][BN]; /* d, and d times the sum of codes (of each half) */
    int32_t x_row[BN], out_row[BN];
};

__device__ __forceinline__ uint32_t mm_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 8 bytes by an asynchronous copy; zeros if not `any`. */
__device__ __forceinline__ void mm_copy(void *to, const void *from, bool any)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(mm_address(to)), "l"(from), "r"(any ? 8 : 0) : "memory");
}

__device__ __forceinline__ void mm_copies_end(void)
{
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

/* Four matrices of 8 rows of 16 bytes: lane i has of each row i / 4, bytes 4 (i % 4) to 4 (i % 4) + 3. Lanes 8 m to 8 m + 7
 * give the addresses of the rows of matrix m. */
__device__ __forceinline__ void mm_load(uint32_t (&r)[4], const unsigned char *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mm_address(p))
                 : "memory");
}

/* 16 rows x 32 values times 32 values x 8 tokens, and MM_MAGIC. */
__device__ __forceinline__ void mm_product_32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"((int)MM_MAGIC));
}

/* 16 rows x 16 values times 16 values x 8 tokens, and MM_MAGIC. */
__device__ __forceinline__ void mm_product_16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"((int)MM_MAGIC));
}

/* Each byte less the format's offset. */
template <int OFFSET> __device__ __forceinline__ uint32_t mm_signed(uint32_t codes)
{
    if constexpr (OFFSET == 0)
        return codes;
    else
        return (codes + 0x01010101u * (128 - OFFSET)) ^ 0x80808080u; /* codes are below 128: no carry */
}

/* A group of one row to its place in shared memory; what lies behind the row's end is zero. */
template <class F, int BN>
__device__ __forceinline__ void mm_store_a(mm_shared<BN> &s, int buffer, const typename F::raw &raw, uint32_t u, bool any,
                                           int row, int g)
{
    uint32_t c[8] = {0};
    float scale[2] = {0, 0}, min[2] = {0, 0};
    if (any) {
        F::codes(raw, c);
        F::scales(raw, u, scale, min);
#pragma unroll
        for (int i = 0; i < 8; i++)
            c[i] = mm_signed<F::offset>(c[i]);
    }
    uint4 *to = (uint4 *)(s.a[buffer] + row * MM_STRIDE + g * 32);
    to[0] = make_uint4(c[0], c[1], c[2], c[3]);
    to[1] = make_uint4(c[4], c[5], c[6], c[7]);
#pragma unroll
    for (int h = 0; h < (F::halves ? 2 : 1); h++) {
        s.scale[buffer][g][h][row] = make_float2(scale[h], -12582912.0f * scale[h]);
        if constexpr (F::mins)
            s.min[buffer][g][h][row] = min[h];
    }
}

/* Starts the copies of the codes of groups [first, first + MM_GROUPS) of the block's tokens. */
template <int BN>
__device__ __forceinline__ void mm_fetch_b(const struct product_args &a, mm_shared<BN> &s, int buffer, uint32_t first)
{
    const int piece = threadIdx.x % 8, g = piece / 4;
    const bool any = first + g < a.groups;
    const uint8_t *from = a.x + (any ? (size_t)(first + g) * 40 + 8 + piece % 4 * 8 : 0);
#pragma unroll
    for (int t = threadIdx.x / 8; t < BN; t += MM_THREADS / 8)
        mm_copy(s.b[buffer] + t * MM_STRIDE + piece * 8, from + (size_t)s.x_row[t] * a.x_stride, any);
}

/* The head of a token's block, for threads below MM_GROUPS * BN: token threadIdx.x / MM_GROUPS. */
template <int BN>
__device__ __forceinline__ uint2 mm_fetch_head(const struct product_args &a, const mm_shared<BN> &s, uint32_t g)
{
    if (threadIdx.x >= MM_GROUPS * BN || g >= a.groups)
        return make_uint2(0, 0);
    return __ldcg((const uint2 *)(a.x + (size_t)s.x_row[threadIdx.x / MM_GROUPS] * a.x_stride + (size_t)g * 40));
}

template <class F, int BN> __device__ __forceinline__ void mm_store_head(mm_shared<BN> &s, int buffer, uint2 head)
{
    if (threadIdx.x >= MM_GROUPS * BN)
        return;
    float d = __uint_as_float(head.x);
    int g = threadIdx.x % MM_GROUPS, t = threadIdx.x / MM_GROUPS, sum[2] = {(int)(int16_t)head.y, (int)head.y >> 16};
    s.head[buffer][g][0][t] = make_float2(d, d * (float)(F::halves ? sum[0] : sum[0] + sum[1]));
    if constexpr (F::halves && F::mins)
        s.head[buffer][g][1][t] = make_float2(d, d * (float)sum[1]);
}

/* What a warp holds of its 32 rows for one group: codes, as the products want them, and scales of rows i and i + 8 of a tile.
 */
struct mm_rows {
    uint32_t code[2][4];
    float2 scale[2][2][2]; /* [tile][half][row] */
    float min[2][2][2];
};

template <class F, int BN>
__device__ __forceinline__ void mm_load_rows(mm_rows &w, const mm_shared<BN> &s, int buffer, int g, int rows)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        int row = rows + 16 * m;
        mm_load(w.code[m], s.a[buffer] + (row + (lane & 15)) * MM_STRIDE + g * 32 + (lane >> 4) * 16);
#pragma unroll
        for (int h = 0; h < (F::halves ? 2 : 1); h++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                w.scale[m][h][i] = s.scale[buffer][g][h][row + (lane >> 2) + 8 * i];
                if constexpr (F::mins)
                    w.min[m][h][i] = s.min[buffer][g][h][row + (lane >> 2) + 8 * i];
            }
    }
}

/* Products with 8 tokens, scaled and added. head[h]: {d, d sum} of tokens 2 (lane % 4) and the next. An integer sum c is read
 * as the float 1.5 * 2^23 + c, and fma of that with s and -1.5 * 2^23 s is s c, rounded once, since s has 20 bits at most. */
template <class F>
__device__ __forceinline__ void mm_column(const mm_rows &w, uint32_t b0, uint32_t b1, const float4 *head, float (*acc)[4])
{
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < (F::halves ? 2 : 1); h++) {
            int c[4];
            if constexpr (F::halves)
                mm_product_16(c, w.code[m][2 * h], w.code[m][2 * h + 1], h ? b1 : b0);
            else
                mm_product_32(c, w.code[m], b0, b1);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 s = w.scale[m][h][i / 2];
                acc[m][i] = fmaf(fmaf(__int_as_float(c[i]), s.x, s.y), i % 2 ? head[0].z : head[0].x, acc[m][i]);
                if constexpr (F::mins)
                    acc[m][i] = fmaf(w.min[m][h][i / 2], i % 2 ? head[h].w : head[h].y, acc[m][i]);
            }
        }
}

/* All of a warp's tiles over the step in the buffer. NT columns of 8 tokens; acc[column][tile of 16 rows][]. */
template <class F, int BN, int NT>
__device__ __forceinline__ void mm_step(const mm_shared<BN> &s, int buffer, int rows, int tokens, float (*acc)[2][4])
{
    const int lane = threadIdx.x & 31;
#pragma unroll 1 /* unrolled, it takes more registers than there are */
    for (int g = 0; g < MM_GROUPS; g++) {
        mm_rows w;
        mm_load_rows<F, BN>(w, s, buffer, g, rows);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            mm_load(b,
                    s.b[buffer] + (tokens + 8 * n + (lane & 7) + (lane >> 4) * 8) * MM_STRIDE + g * 32 + (lane >> 3 & 1) * 16);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float4 head[2];
#pragma unroll
                for (int h = 0; h < (F::halves && F::mins ? 2 : 1); h++)
                    head[h] = *(const float4 *)&s.head[buffer][g][h][tokens + 8 * (n + i) + 2 * (lane & 3)];
                mm_column<F>(w, b[2 * i], b[2 * i + 1], head, acc[n + i]);
            }
        }
    }
}

/* The tokens of this block, from rows of X to rows of the output; -1: none. Returns the expert, or -1: nothing to do. */
template <int BN>
__device__ __forceinline__ int mm_tokens(const struct product_args &a, const struct mm_lists &l, mm_shared<BN> &s)
{
    int expert = 0, first = (int)blockIdx.x * BN, end = a.tokens;
    if (l.start) {
        /* Expert e has the blocks from start[e] / BN + e on: at least as many as it needs, and each block is one expert's. */
        int low = 0, high = l.n_expert - 1, block = (int)blockIdx.x;
        while (low < high) {
            int middle = (low + high + 1) / 2;
            if (l.start[middle] / BN + middle <= block)
                low = middle;
            else
                high = middle - 1;
        }
        expert = low;
        first = l.start[low] + (block - (l.start[low] / BN + low)) * BN;
        end = l.start[low + 1];
    }
    if (first >= end)
        return -1;
    for (int t = threadIdx.x; t < BN; t += blockDim.x) {
        int at = first + t < end ? first + t : first, pair = l.start ? l.order[at] : at;
        s.x_row[t] = l.start ? pair / l.per_row : pair;
        s.out_row[t] = first + t < end ? pair : -1;
    }
    return expert;
}

template <class F, int BN>
__global__ void __launch_bounds__(MM_THREADS, 2)
    matmul(const __grid_constant__ struct product_args a, const __grid_constant__ struct mm_lists l)
{
    extern __shared__ __align__(16) unsigned char memory[];
    mm_shared<BN> &s = *(mm_shared<BN> *)memory;
    constexpr int NT = BN / 16; /* two warps side by side */
    uint32_t tile = blockIdx.y;
    const struct product_matrix &matrix = a.matrix[product_tile(a, MM_ROWS, &tile)];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, rows = warp % 4 * 32, tokens = warp / 4 * (BN / 2);
    cuda_release();
    cuda_wait();
    int expert = mm_tokens(a, l, s);
    if (expert < 0)
        return;
    __syncthreads();
    const int own = threadIdx.x / MM_GROUPS, g = threadIdx.x % MM_GROUPS;
    uint32_t row = tile * MM_ROWS + own;
    row = (row < matrix.rows ? row : matrix.rows - 1) + (uint32_t)expert * matrix.rows;
    const uint32_t unit = row * a.groups + g;
    typename F::raw raw;
    float acc[NT][2][4];
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[n][m][i] = 0;
    if (g < a.groups)
        raw = F::load(matrix.weight, unit);
    uint2 head = mm_fetch_head<BN>(a, s, g);
    mm_fetch_b<BN>(a, s, 0, 0);
    mm_store_a<F, BN>(s, 0, raw, unit, g < a.groups, own, g);
    mm_store_head<F, BN>(s, 0, head);
    mm_copies_end();
    __syncthreads();
    int buffer = 0;
    for (uint32_t at = 0; at < a.groups; at += MM_GROUPS, buffer ^= 1) {
        uint32_t next = at + MM_GROUPS;
        if (next < a.groups) {
            if (next + g < a.groups)
                raw = F::load(matrix.weight, unit + next);
            head = mm_fetch_head<BN>(a, s, next + g);
            mm_fetch_b<BN>(a, s, buffer ^ 1, next);
        }
        mm_step<F, BN, NT>(s, buffer, rows, tokens, acc);
        if (next < a.groups) {
            mm_store_a<F, BN>(s, buffer ^ 1, raw, unit + next, next + g < a.groups, own, g);
            mm_store_head<F, BN>(s, buffer ^ 1, head);
            mm_copies_end();
        }
        __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int out = s.out_row[tokens + 8 * n + 2 * (lane & 3) + i % 2];
                uint32_t r = tile * MM_ROWS + rows + 16 * m + (lane >> 2) + 8 * (i / 2);
                if (out >= 0 && r < matrix.rows)
                    product_store(matrix, r, out, acc[n][m][i] + (l.bias ? l.bias[(size_t)expert * l.bias_stride + r] : 0));
            }
}

/* ---- the host's side */

template <class F, int BN>
static int mm_launch(const struct exec *x, const struct product_args &a, const struct mm_lists &l, uint32_t tiles)
{
    dim3 grid(tiles, product_tiles(&a, MM_ROWS));
    return cuda_launch(x, matmul<F, BN>, grid, dim3(MM_THREADS), sizeof(mm_shared<BN>), a, l);
}

/* Blocks of 64 tokens where those of 128 would leave multiprocessors idle at the end, and of 32 where there are no more. */
template <class F> static int mm_run(const struct exec *x, const struct product_args *a)
{
    struct mm_lists none = {};
    int64_t at_once = 2 * (int64_t)cuda_units(x->device), rows = product_tiles(a, MM_ROWS);
    int64_t large = (rows * ((a->tokens + 127) / 128) + at_once - 1) / at_once;
    int64_t small = (rows * ((a->tokens + 63) / 64) + at_once - 1) / at_once;
    if (a->tokens <= 32)
        return mm_launch<F, 32>(x, *a, none, 1);
    if (a->tokens > 64 && large * 8 <= small * 5)
        return mm_launch<F, 128>(x, *a, none, (uint32_t)(a->tokens + 127) / 128);
    return mm_launch<F, 64>(x, *a, none, (uint32_t)(a->tokens + 63) / 64);
}

#endif
