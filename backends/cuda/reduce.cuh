/* reduce.cuh: sums and maxima over a warp and over a block, in an order that depends on nothing but the number of threads.
 *
 * A warp adds by butterflies, so every lane has the result; a block writes one value a warp, and every warp adds those again:
 * one barrier, and all threads have the result. */
#ifndef BACKENDS_CUDA_REDUCE_CUH
#define BACKENDS_CUDA_REDUCE_CUH

#include "backends/cuda/cuda.h"

enum { WARP = 32 };

template <class T> __device__ static inline T warp_sum(T x)
{
#pragma unroll
    for (int d = WARP / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ static inline float warp_max(float x)
{
#pragma unroll
    for (int d = WARP / 2; d; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* Of a one-dimensional block of whole warps. `room` holds 32 values and is free again after the next barrier. */
template <class T> __device__ static inline T block_sum(T x, T *room)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = blockDim.x / WARP;
    x = warp_sum(x);
    if (lane == 0)
        room[warp] = x;
    __syncthreads();
    return warp_sum(lane < n ? room[lane] : (T)0);
}

__device__ static inline float block_max(float x, float *room)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = blockDim.x / WARP;
    x = warp_max(x);
    if (lane == 0)
        room[warp] = x;
    __syncthreads();
    return warp_max(lane < n ? room[lane] : -INFINITY);
}

#endif
