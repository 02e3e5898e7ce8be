/* view.cuh: a tensor as device code sees it: an address, four dimensions, four strides. And single values of the formats that
 * activations and KV caches have: f32, f16, bf16, q8_0; conversions give the bits that base/half.h gives.
 *
 * Kernels take views by value, so a launch carries all it needs and a captured graph holds no pointer into host memory. */
#ifndef BACKENDS_CUDA_VIEW_CUH
#define BACKENDS_CUDA_VIEW_CUH

#include "backends/cuda/cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct view {
    char *data; /* NULL: an absent source */
    int64_t ne[MAX_DIMS], nb[MAX_DIMS];
    int format; /* enum format_id */
};

static inline struct view view_of(const struct tensor *t)
{
    struct view v = {};
    for (int i = 0; i < MAX_DIMS && t; i++) {
        v.ne[i] = t->ne[i];
        v.nb[i] = (int64_t)t->nb[i];
    }
    if (t) {
        v.data = (char *)t->data;
        v.format = (int)t->format;
    }
    return v;
}

/* The address and every stride but the first are multiples of `bytes`, and values of a row lie one behind the other. */
static inline bool view_aligned(const struct tensor *t, size_t bytes)
{
    bool aligned = tensor_rows_contiguous(t) && (uintptr_t)t->data % bytes == 0;
    for (int i = 1; i < MAX_DIMS; i++)
        aligned = aligned && (t->ne[i] == 1 || t->nb[i] % bytes == 0);
    return aligned;
}

static inline int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

__device__ static inline char *view_row(const struct view &v, int64_t i1, int64_t i2, int64_t i3)
{
    return v.data + i1 * v.nb[1] + i2 * v.nb[2] + i3 * v.nb[3];
}

__device__ static inline float *view_f32(const struct view &v, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return (float *)(view_row(v, i1, i2, i3) + i0 * v.nb[0]);
}

__device__ static inline int32_t view_index(const struct view &v, int64_t i0, int64_t i1)
{
    return *(const int32_t *)(v.data + i0 * v.nb[0] + i1 * v.nb[1]);
}

/* Row number `row` of a tensor with v's dimensions. */
__device__ static inline void view_split(const struct view &v, int64_t row, int64_t i[3])
{
    if (row < INT32_MAX) { /* a division in 32 bits is several times as fast */
        uint32_t r = (uint32_t)row, n1 = (uint32_t)v.ne[1], n2 = (uint32_t)v.ne[2];
        i[0] = r % n1;
        i[1] = r / n1 % n2;
        i[2] = r / n1 / n2;
    } else {
        i[0] = row % v.ne[1];
        i[1] = row / v.ne[1] % v.ne[2];
        i[2] = row / v.ne[1] / v.ne[2];
    }
}

__device__ static inline float f32_of_f16(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

__device__ static inline float f32_of_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

__device__ static inline uint16_t f16_of_f32(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

__device__ static inline uint16_t bf16_of_f32(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* Formats of which load_value reads single values. */
static inline bool format_loads(enum format_id f)
{
    return f == FORMAT_F32 || f == FORMAT_F16 || f == FORMAT_BF16 || f == FORMAT_Q8_0;
}

/* Value i of a row of such a format; nb0 is the stride from block to block. */
__device__ static inline float load_value(int format, const char *row, int64_t nb0, int64_t i)
{
    switch (format) {
    case FORMAT_F32:
        return *(const float *)(row + i * nb0);
    case FORMAT_F16:
        return f32_of_f16(*(const uint16_t *)(row + i * nb0));
    case FORMAT_BF16:
        return f32_of_bf16(*(const uint16_t *)(row + i * nb0));
    default: {
        const char *block = row + i / 32 * nb0;
        return (float)*(const int8_t *)(block + 2 + i % 32) * f32_of_f16(*(const uint16_t *)block);
    }
    }
}

#endif
