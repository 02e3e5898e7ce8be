/* a8.cuh: 32 values as a block of A8 (formats/a8.c) by a group of lanes that hold them, so that a norm or an activation is
 * quantised while its values are still in registers. The same operations in the same order as the format's pack: the
 * same bits for the same values. */
#ifndef BACKENDS_CUDA_A8_CUH
#define BACKENDS_CUDA_A8_CUH

#include "backends/cuda/cuda.h"

struct a8_scale {
    float d, inverse;
};

/* From the largest |x| of the block, as bits: in their order a NaN is above infinity. */
__device__ static inline struct a8_scale a8_scale_of(uint32_t absmax)
{
    float d = __uint_as_float(absmax) / 127;
    bool finite = absmax < 0x7f800000u, zero = !finite || d < A8_SMALLEST;
    d = d < A8_LARGEST ? d : A8_LARGEST;
    struct a8_scale s = {!finite ? NAN : zero ? 0 : d, zero ? 0 : 1 / d};
    return s;
}

__device__ static inline int a8_code(struct a8_scale s, float x)
{
    return s.inverse == 0 ? 0 : __float2int_rn(fminf(fmaxf(x * s.inverse, -127), 127));
}

__device__ static inline uint32_t a8_bits(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* What lane i of eight neighbours, which holds values 4 i to 4 i + 3 of a block, has of it: its codes, the scale, and the sum of the
 * codes of its half. All lanes of the warp call it. */
struct a8_part {
    uint32_t codes;
    float d;
    int sum;
};

__device__ static inline struct a8_part a8_part_of(float4 x)
{
    uint32_t most = max(max(a8_bits(x.x), a8_bits(x.y)), max(a8_bits(x.z), a8_bits(x.w)));
#pragma unroll
    for (int d = 1; d < 8; d *= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    struct a8_scale s = a8_scale_of(most);
    int q[4] = {a8_code(s, x.x), a8_code(s, x.y), a8_code(s, x.z), a8_code(s, x.w)}, sum = q[0] + q[1] + q[2] + q[3];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    struct a8_part p = {(uint32_t)((q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16) | (uint32_t)(q[3] & 255) << 24, s.d, sum};
    return p;
}

/* Those whose `block` is NULL write nothing. */
__device__ static inline void a8_store_4(struct block_a8 *block, float4 x)
{
    int lane = threadIdx.x % 8;
    struct a8_part p = a8_part_of(x);
    if (!block)
        return;
    ((uint32_t *)block->qs)[lane] = p.codes;
    if (lane == 0)
        *(float *)block = p.d;
    if (lane % 4 == 0)
        ((int16_t *)block)[2 + lane / 4] = (int16_t)p.sum;
}

/* Lane i of the warp holds value i. */
__device__ static inline void a8_store_1(struct block_a8 *block, float x)
{
    int lane = threadIdx.x % 32;
    uint32_t most = __reduce_max_sync(0xffffffffu, a8_bits(x));
    struct a8_scale s = a8_scale_of(most);
    int q = a8_code(s, x), sum = q;
#pragma unroll
    for (int d = 1; d < 16; d *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (!block)
        return;
    block->qs[lane] = (int8_t)q;
    if (lane == 0)
        *(float *)block = s.d;
    if (lane % 16 == 0)
        ((int16_t *)block)[2 + lane / 16] = (int16_t)sum;
}

#endif
