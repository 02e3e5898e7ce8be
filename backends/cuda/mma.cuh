/* mma.cuh: the tensor cores' 16 x 8 x 16 product on halves, and f32 operands in two halves each.
 *
 * An f32 value is the sum of two f16 (22 bits) or two bf16 (16 bits): with a cache whose values are halves already, two
 * products give what one in f32 would, but for the last bits; one product of rounded operands would err by 1e-4, a hundred times the
 * op's tolerance. f16 has a short range: who splits scales a row by a power of two first (split_scale).
 *
 * Fragments (PTX ISA, mma.m16n8k16): with g = lane / 4 and c = lane % 4, A is {(g, 2c), (g + 8, 2c), (g, 2c + 8), (g + 8, 2c + 8)}, B is
 * {(2c, g), (2c + 8, g)}, each a pair of neighbours along k, and C is {(g, 2c), (g, 2c + 1), (g + 8, 2c), (g + 8, 2c + 1)}. */
#ifndef BACKENDS_CUDA_MMA_CUH
#define BACKENDS_CUDA_MMA_CUH

#include "backends/cuda/ptx.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The kind of half that operands are in. */
struct kind_f16 {
    __device__ static __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_f16(c, a, b0, b1);
    }
    /* x and y as pairs of their upper and lower halves; x lies in the low bits. */
    __device__ static inline void split(float x, float y, uint32_t *upper, uint32_t *lower)
    {
        __half2 h = __floats2half2_rn(x, y);
        float2 back = __half22float2(h);
        __half2 rest = __floats2half2_rn(x - back.x, y - back.y);
        *upper = *(uint32_t *)&h;
        *lower = *(uint32_t *)&rest;
    }
};

struct kind_bf16 {
    __device__ static __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_bf16(c, a, b0, b1);
    }
    __device__ static inline void split(float x, float y, uint32_t *upper, uint32_t *lower)
    {
        __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
        float2 back = __bfloat1622float2(h);
        __nv_bfloat162 rest = __floats2bfloat162_rn(x - back.x, y - back.y);
        *upper = *(uint32_t *)&h;
        *lower = *(uint32_t *)&rest;
    }
};

/* A power of two that brings a row whose largest |x| this is to [1, 2): multiply by its inverse before the split, by itself behind the
 * product. 1 where the row is zero, not finite, or at the ends of f32. */
__device__ static inline float split_scale(float absmax)
{
    uint32_t exponent = __float_as_uint(absmax) & 0x7f800000u;
    return exponent > 27u << 23 && exponent < 227u << 23 ? __uint_as_float(exponent) : 1;
}

/* Eight by eight f32 transposed across the warp: in, a lane has (g, 2c) and (g, 2c + 1); out, (2c, g) and (2c + 1, g). */
__device__ static inline void transpose_8x8(float *x, float *y)
{
    uint32_t a = __float_as_uint(*x), b = __float_as_uint(*y);
    uint32_t high = transpose_8x8(__byte_perm(a, b, 0x7632)), low = transpose_8x8(__byte_perm(a, b, 0x5410));
    *x = __uint_as_float(__byte_perm(low, high, 0x5410));
    *y = __uint_as_float(__byte_perm(low, high, 0x7632));
}

#endif
