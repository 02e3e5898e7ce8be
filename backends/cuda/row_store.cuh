/* row_store.cuh: a warp writes a row of floats in one of the formats that a KV cache may have. Q8_0 as formats/q8_0.c packs it, bit
 * for bit. */
#ifndef BACKENDS_CUDA_ROW_STORE_CUH
#define BACKENDS_CUDA_ROW_STORE_CUH

#include "backends/cuda/view.cuh"

static inline bool format_stores(enum format_id f)
{
    return format_loads(f);
}

/* 32 values, one a lane, as a block of Q8_0 at `to`. */
__device__ static inline void warp_store_q8_0(char *to, float x)
{
    int lane = threadIdx.x % 32;
    uint32_t most = __reduce_max_sync(0xffffffffu, __float_as_uint(x) & 0x7fffffffu);
    float d = __uint_as_float(most) / 127, inverse = d != 0 ? 1 / d : 0;
    float v = fminf(fmaxf(x * inverse, -127), 127);
    int whole = (int)v; /* towards zero: adding 0.5 first would round 0.49999997 up */
    float rest = v - (float)whole;
    *(int8_t *)(to + 2 + lane) = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
    if (lane == 0)
        *(uint16_t *)to = most < 0x7f800000u ? f16_of_f32(fminf(d, 65504)) : 0x7e00;
}

/* Row `row` of n values, in shared memory. */
__device__ static inline void warp_store_row(int format, char *to, int64_t nb0, const float *row, int n)
{
    int lane = threadIdx.x % 32;
    switch (format) {
    case FORMAT_F32:
        for (int i = lane; i < n; i += 32)
            *(float *)(to + i * nb0) = row[i];
        break;
    case FORMAT_F16:
        for (int i = lane; i < n; i += 32)
            *(uint16_t *)(to + i * nb0) = f16_of_f32(row[i]);
        break;
    case FORMAT_BF16:
        for (int i = lane; i < n; i += 32)
            *(uint16_t *)(to + i * nb0) = bf16_of_f32(row[i]);
        break;
    default:
        for (int i = lane; i < n; i += 32)
            warp_store_q8_0(to + i / 32 * nb0, row[i]);
    }
}

#endif
