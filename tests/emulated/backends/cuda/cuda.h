/* cuda.h, emulated: stands in for backends/cuda/cuda.h and the CUDA language, so that kernels compile as C++ and run on the host, where
 * a check needs no GPU. tests/cuda_emulated_test.sh puts this folder first in the include path.
 *
 * A thread of a block is a fiber (emulated.cc). What makes threads meet, barriers, shuffles and votes, lets the others go on until all of
 * the warp, block or cluster are there; everything between runs as plain code, so wrong indices, lanes and fragments give wrong
 * results here as there. What it cannot show: races within a warp, memory order, speed. Warps must be whole: an operation of a warp
 * that lacks lanes aborts, and so does a deadlock. */
#ifndef TESTS_EMULATED_CUDA_H
#define TESTS_EMULATED_CUDA_H

#include <functional>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define _Alignas(n)    alignas(n)
#define _Noreturn      __attribute__((noreturn))
#define _Static_assert static_assert
#define restrict       __restrict__
extern "C" {
#include "backends/backend.h"
#include "formats/blocks.h"
#include "formats/layouts.h"
}

/* ---- the language; __shared__ is replaced before the compiler sees it (cuda_emulated_test.sh) */

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
#define MAKE_2(type, of)                                                                                                       \
    static inline type make_##type(of x, of y)                                                                                 \
    {                                                                                                                          \
        return {x, y};                                                                                                         \
    }
#define MAKE_4(type, of)                                                                                                       \
    static inline type make_##type(of x, of y, of z, of w)                                                                     \
    {                                                                                                                          \
        return {x, y, z, w};                                                                                                   \
    }
MAKE_2(float2, float)
MAKE_2(int2, int)
MAKE_2(uint2, unsigned)
MAKE_4(float4, float)
MAKE_4(uint4, unsigned)
MAKE_4(ushort4, unsigned short)

#define MIN_MAX(type)                                                                                                          \
    static inline type min(type a, type b)                                                                                     \
    {                                                                                                                          \
        return a < b ? a : b;                                                                                                  \
    }                                                                                                                          \
    static inline type max(type a, type b)                                                                                     \
    {                                                                                                                          \
        return a > b ? a : b;                                                                                                  \
    }
MIN_MAX(int)
MIN_MAX(unsigned)
MIN_MAX(unsigned long)

/* ---- threads that meet (emulated.cc) */

void emulated_launch(const std::function<void()> &kernel, dim3 grid, dim3 block, size_t shared, unsigned cluster);
/* What is launched between them runs at the same time, but for launches on one stream (of the exec), which follow each other. */
void emulated_together(void);
extern void *emulated_stream;
void emulated_apart(void);
void emulated_yield(void); /* lets the other threads go on */
void *emulated_shared(void); /* the block's dynamic shared memory */
void emulated_block_barrier(void);
void emulated_cluster_barrier(void);
unsigned emulated_cluster_size(void);
void *emulated_peer(void *p, unsigned rank); /* what p, in dynamic shared memory, is in the cluster's block `rank` */
int emulated_lane(void);
/* Gives what every lane of the warp brings: [32], good until the next but one. */
const uint64_t *emulated_exchange(uint64_t mine);
struct six {
    uint32_t word[6];
};
const struct six *emulated_exchange_six(const struct six *mine);

template <class T> static inline T emulated_from(T x, int lane)
{
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    memcpy(&x, &emulated_exchange(bits)[lane], sizeof x);
    return x;
}
template <class T> static inline T __shfl_sync(unsigned, T x, int lane)
{
    return emulated_from(x, lane % 32);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int bits)
{
    return emulated_from(x, emulated_lane() ^ bits);
}
static inline unsigned __ballot_sync(unsigned, bool mine)
{
    const uint64_t *all = emulated_exchange(mine);
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        votes |= (unsigned)all[i] << i;
    return votes;
}
static inline bool __any_sync(unsigned mask, bool mine)
{
    return __ballot_sync(mask, mine) != 0;
}
static inline unsigned __reduce_max_sync(unsigned, unsigned mine)
{
    const uint64_t *all = emulated_exchange(mine);
    unsigned most = 0;
    for (int i = 0; i < 32; i++)
        most = max(most, (unsigned)all[i]);
    return most;
}
static inline void __syncwarp(void)
{
    emulated_exchange(0);
}
static inline void __syncthreads(void)
{
    emulated_block_barrier();
}

/* A part of a block, by its number; and who waits for what is not a meeting: looks again when others went on, and says when it changes
 * what others wait for. */
void emulated_part_barrier(int id, int threads);
void emulated_look_again(void);
void emulated_changed(void);

/* ---- memory: one level of it */

template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline void __stcg(T *p, T x)
{
    *p = x;
}
static inline void __threadfence(void)
{
}

/* ---- arithmetic */

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int __float2int_rn(float x)
{
    return (int)nearbyintf(x);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return r;
}
/* Four signed bytes of each. */
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}
#define __expf(x) expf(x) /* the C library has one of that name */
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}

/* ---- the runtime, as far as kernels' files use it */

enum { CUDA_SM90 = 1u << 0 };
/* ---- backends/cuda/cuda.h itself */

struct cuda_late {
    uint32_t stop, block;
    uint64_t where;
};
enum { CUDA_LATE_MS = 20000 };
extern struct cuda_late emulated_late;
struct cuda_waiting {
    struct cuda_late *late;
    uint64_t where;
};
static inline struct cuda_waiting cuda_waiting_at(const struct exec *, const char *name)
{
    return {&emulated_late, (uint64_t)(uintptr_t)name};
}
static inline bool cuda_overlap(const struct exec *)
{
    return false;
}
static inline int cuda_units(int) /* few, so that each has many rows */
{
    return 3;
}
static inline void cuda_wait(void)
{
}
static inline void cuda_release(void)
{
}
#define CUDA_KERNEL(name)                                                                                                      \
    extern "C" {                                                                                                               \
    extern const struct kernel cuda_##name;                                                                                    \
    }                                                                                                                          \
    const struct kernel cuda_##name
static inline int cuda_fault(const char *, ...)
{
    return HONE_EFAULT;
}
template <class... P, class... A>
static inline int cuda_launch_cluster(const struct exec *x, void (*kernel)(P...), dim3 grid, dim3 block, unsigned cluster, size_t shared, A... args)
{
    emulated_stream = x->stream;
    if (grid.x && grid.y && grid.z)
        emulated_launch([=] { kernel(static_cast<P>(args)...); }, grid, block, shared, cluster);
    return emulated_late.stop ? HONE_EFAULT : 0;
}
template <class... P, class... A>
static inline int cuda_launch(const struct exec *x, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    return cuda_launch_cluster(x, kernel, grid, block, 1, shared, args...);
}

#endif
