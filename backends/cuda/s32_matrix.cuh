/* s32_matrix.cuh: a packed matrix of an s32 layout (formats/s32.h) as loads see it: its streams, in device memory (s32_matrix)
 * or, a stretch of them, in shared memory (s32_tile). The formats' loads (s32.cuh) are written once, over either. Where a load
 * goes is the matrix's affair; what lies there is the format's: at(block, bytes) is where a block begins in a stream of so many
 * bytes a block.
 *
 * Offsets are of 64 bits in device memory and of 32 in shared memory, where addresses have no more. */
#ifndef BACKENDS_CUDA_S32_MATRIX_CUH
#define BACKENDS_CUDA_S32_MATRIX_CUH

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define HD __host__ __device__ __forceinline__
#else
#define HD inline
#endif

struct words4 {
    uint32_t x, y, z, w;
};

/* ---- loads */

/* Of what no kernel writes; past the first-level cache, since a weight is read once. */
HD words4 load_16(const uint8_t *p)
{
    words4 v;
#ifdef __CUDA_ARCH__
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
#else
    memcpy(&v, p, sizeof v);
#endif
    return v;
}

struct words2 {
    uint32_t x, y;
};

HD words2 load_8(const uint8_t *p)
{
    words2 v;
#ifdef __CUDA_ARCH__
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
#else
    memcpy(&v, p, sizeof v);
#endif
    return v;
}

HD uint32_t load_4(const uint8_t *p)
{
    uint32_t v;
#ifdef __CUDA_ARCH__
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
#else
    memcpy(&v, p, sizeof v);
#endif
    return v;
}

HD uint32_t load_2(const uint8_t *p)
{
    uint16_t v;
#ifdef __CUDA_ARCH__
    asm("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
#else
    memcpy(&v, p, sizeof v);
#endif
    return v;
}

HD uint32_t load_1(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
    uint32_t v;
    asm("ld.global.nc.u8 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
#else
    return *p;
#endif
}

/* From shared memory. */
HD words4 tile_16(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
    uint4 v = *(const uint4 *)p;
    return {v.x, v.y, v.z, v.w};
#else
    words4 v;
    memcpy(&v, p, sizeof v);
    return v;
#endif
}

HD words2 tile_8(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
    uint2 v = *(const uint2 *)p;
    return {v.x, v.y};
#else
    words2 v;
    memcpy(&v, p, sizeof v);
    return v;
#endif
}

/* ---- matrices */

/* A packed matrix in device memory: where its streams begin. */
struct s32_matrix {
    const uint8_t *stream[4];
    static HD size_t at(uint32_t block, uint32_t bytes)
    {
        return (size_t)block * bytes;
    }
    HD words4 load_16(int i, size_t at) const
    {
        return ::load_16(stream[i] + at);
    }
    HD words2 load_8(int i, size_t at) const
    {
        return ::load_8(stream[i] + at);
    }
    HD uint32_t load_4(int i, size_t at) const
    {
        return ::load_4(stream[i] + at);
    }
    HD uint32_t load_2(int i, size_t at) const
    {
        return ::load_2(stream[i] + at);
    }
    HD uint32_t load_1(int i, size_t at) const
    {
        return ::load_1(stream[i] + at);
    }
};

/* A stretch of one that was brought elsewhere: shared memory. */
struct s32_tile {
    const uint8_t *stream[4];
    static HD uint32_t at(uint32_t block, uint32_t bytes)
    {
        return block * bytes;
    }
    HD words4 load_16(int i, uint32_t at) const
    {
        return tile_16(stream[i] + at);
    }
    HD words2 load_8(int i, uint32_t at) const
    {
        return tile_8(stream[i] + at);
    }
    HD uint32_t load_4(int i, uint32_t at) const
    {
        return *(const uint32_t *)(stream[i] + at);
    }
    HD uint32_t load_2(int i, uint32_t at) const
    {
        return *(const uint16_t *)(stream[i] + at);
    }
    HD uint32_t load_1(int i, uint32_t at) const
    {
        return stream[i][at];
    }
};

#endif
