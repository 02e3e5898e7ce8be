/* cuda_fp16.h, emulated: the halves of both kinds, by base/half.h. */
#ifndef TESTS_EMULATED_CUDA_FP16_H
#define TESTS_EMULATED_CUDA_FP16_H

#include "backends/cuda/cuda.h"
#include "base/half.h"

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half2 {
    uint16_t x, y;
};
struct __nv_bfloat162 {
    uint16_t x, y;
};

static inline float __half2float(__half h)
{
    return f32_from_f16(h.bits);
}
static inline __half __float2half_rn(float x)
{
    return {f16_from_f32(x)};
}
static inline __half __ushort_as_half(uint16_t bits)
{
    return {bits};
}
static inline uint16_t __half_as_ushort(__half h)
{
    return h.bits;
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {bf16_from_f32(x)};
}
static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.bits;
}
static inline __half2 __floats2half2_rn(float x, float y)
{
    return {f16_from_f32(x), f16_from_f32(y)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {bf16_from_f32(x), bf16_from_f32(y)};
}
static inline float2 __half22float2(__half2 h)
{
    return {f32_from_f16(h.x), f32_from_f16(h.y)};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 h)
{
    return {f32_from_bf16(h.x), f32_from_bf16(h.y)};
}
static inline __half2 __hsub2(__half2 a, __half2 b)
{
    float2 x = __half22float2(a), y = __half22float2(b);
    return __floats2half2_rn(x.x - y.x, x.y - y.y);
}
static inline __half2 __hmul2(__half2 a, __half2 b)
{
    float2 x = __half22float2(a), y = __half22float2(b);
    return __floats2half2_rn(x.x * y.x, x.y * y.y);
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) /* a product of two has 22 bits: the sum alone rounds twice */
{
    float2 x = __half22float2(a), y = __half22float2(b), z = __half22float2(c);
    return __floats2half2_rn(x.x * y.x + z.x, x.y * y.y + z.y);
}

#endif
