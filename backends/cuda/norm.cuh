/* norm.cuh: what the kernels that norm a row share (norm.cu; all_reduce_norm.cu behind a sum of ranks): how a row's values lie
 * in the threads' registers, the sum of squares, the scale, what is written and in which formats, and how many threads a width
 * has.
 *
 * Fused with a collective or not, a norm gives the same bits: so all that could round otherwise, the order of the sum and the
 * operations of the scale, stands here once. Two rules for the scale are part of that: rows that are few multiply the sum by
 * 1 / width, and others divide by the width, which is one division more in kernels that have many (norm.cu says why there are
 * two kernels).
 *
 * The sum of squares is f32; one that overflows or comes near the lower end of f32 is taken again in double (norm.h of the CPU
 * has the same rule), so no row is refused for its values. */
#ifndef BACKENDS_CUDA_NORM_CUH
#define BACKENDS_CUDA_NORM_CUH

#include "backends/cuda/a8.cuh"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/view.cuh"

__device__ static inline float4 times(float4 x, float s)
{
    return make_float4(x.x * s, x.y * s, x.z * s, x.w * s);
}

__device__ static inline float4 times(float4 x, float4 s)
{
    return make_float4(x.x * s.x, x.y * s.y, x.z * s.z, x.w * s.w);
}

/* Threads that share a row: a warp (then several rows a block) or the block. */
template <int THREADS, class T> __device__ static inline T norm_sum(T x, T *room)
{
    return THREADS == WARP ? warp_sum(x) : block_sum(x, room);
}

template <class T, int STEPS> __device__ static inline T norm_squares(const float4 (&x)[STEPS])
{
    T sum = 0;
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        sum += ((T)x[s].x * x[s].x + (T)x[s].y * x[s].y) + ((T)x[s].z * x[s].z + (T)x[s].w * x[s].w);
    return sum;
}

__device__ static inline bool norm_doubtful(float squares)
{
    return !(squares > 1e-30f && squares < 1e38f);
}

/* From the sum of a row's squares: `of` is its share, 1 / width, or what it is divided by. */
template <bool SHARE> __device__ static inline float norm_scale(float squares, float of, float eps)
{
    return 1 / sqrtf(SHARE ? fmaf(squares, of, eps) : squares / of + eps);
}

template <bool SHARE> __device__ static inline float norm_scale(double squares, float of, float eps)
{
    return (float)(1 / sqrt((SHARE ? squares * (double)of : squares / (double)of) + (double)eps));
}

/* From the row itself, of which each of THREADS threads has STEPS vectors; rooms of 32 each, used by blocks of several warps.
 */
template <bool SHARE, int THREADS, int STEPS>
__device__ static inline float norm_scale(const float4 (&x)[STEPS], float of, float eps, float *room, double *room_double)
{
    float squares = norm_sum<THREADS>(norm_squares<float>(x), room);
    if (!norm_doubtful(squares)) /* the same for all threads of the row */
        return norm_scale<SHARE>(squares, of, eps);
    return norm_scale<SHARE>(norm_sum<THREADS>(norm_squares<double>(x), room_double), of, eps);
}

__device__ static inline void norm_store_half(int format, char *to, int chunk, float4 y)
{
    ushort4 h = format == FORMAT_F16 ? make_ushort4(f16_of_f32(y.x), f16_of_f32(y.y), f16_of_f32(y.z), f16_of_f32(y.w))
                                     : make_ushort4(bf16_of_f32(y.x), bf16_of_f32(y.y), bf16_of_f32(y.z), bf16_of_f32(y.w));
    ((ushort4 *)to)[chunk] = h;
}

/* Where a row's results begin; NULL: nobody wants them. */
struct norm_results {
    float4 *sum, *normed, *product;
    char *quantized;
    int format; /* of that: A8, f16 or bf16 */
};

/* Writes the row x, whose scale is known, and what its weight makes of it. */
template <int THREADS, int STEPS>
__device__ static inline void norm_leave(const struct norm_results &to, int chunks, const float4 (&x)[STEPS],
                                         const float4 (&weight)[STEPS], float scale)
{
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int c = (int)threadIdx.x + s * THREADS;
        bool has = c < chunks;
        float4 y = times(x[s], scale);
        if (to.sum && has)
            to.sum[c] = x[s];
        if (to.normed && has)
            to.normed[c] = y;
        y = times(y, weight[s]);
        if (to.product && has)
            to.product[c] = y;
        if (to.quantized && to.format == FORMAT_A8)
            a8_store_4(has ? (struct block_a8 *)to.quantized + c / 8 : NULL, y);
        else if (to.quantized && has)
            norm_store_half(to.format, to.quantized, c, y);
    }
}

/* ---- the host's side */

/* Rows so few that a block each is as good as anything, of contiguous tensors (NULL: absent): their scale goes by SHARE. */
static inline bool norm_few_rows(int64_t rows, int64_t width, const struct tensor *quantized, const struct tensor *const *all,
                                 int n)
{
    if (rows > 8 || width < 512 || (quantized && quantized->format != FORMAT_A8))
        return false;
    for (int i = 0; i < n; i++)
        if (all[i] && !tensor_contiguous(all[i]))
            return false;
    return true;
}

/* Calls launch.operator()<THREADS, STEPS>() with what a row of so many values, of at most MOST, is given. */
template <bool FEW, int MOST, class L> static int norm_by_width(int64_t width, const L &launch)
{
    if constexpr (!FEW) {
        if (width <= 128)
            return launch.template operator()<32, 1>();
        if (width <= 256)
            return launch.template operator()<32, 2>();
        if (width <= 512)
            return launch.template operator()<32, 4>();
    }
    if (width <= 1024)
        return launch.template operator()<256, 1>();
    if (width <= 2048)
        return launch.template operator()<512, 1>();
    if (width <= 4096)
        return launch.template operator()<512, 2>();
    if constexpr (FEW)
        if (width <= 5120)
            return launch.template operator()<640, 2>();
    if constexpr (MOST > 8192)
        if (width > 8192)
            return launch.template operator()<1024, 4>();
    return launch.template operator()<1024, 2>();
}

#endif
