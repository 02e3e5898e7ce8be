/* link_ptx.cuh: loads and stores that other devices, and the host, take part in: one function each, apart from what uses them
 * so that tests can put their own in place (tests/emulated). All are of the whole system's scope: a partner may be on another
 * card. */
#ifndef BACKENDS_CUDA_LINK_PTX_CUH
#define BACKENDS_CUDA_LINK_PTX_CUH

#include "backends/cuda/cuda.h"

/* 16 bytes at once, of which each half arrives whole, in no order with anything else. */
__device__ static inline void link_store(void *to, uint64_t a, uint64_t b)
{
    asm volatile("st.relaxed.sys.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}

__device__ static inline void link_load(const void *from, uint64_t &a, uint64_t &b)
{
    asm volatile("ld.relaxed.sys.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}

/* Behind everything that this block has written and met at a barrier for. */
__device__ static inline void link_publish(uint64_t *to, uint64_t x)
{
    asm volatile("fence.acq_rel.sys; st.release.sys.b64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}

__device__ static inline uint64_t link_look(const uint64_t *from)
{
    uint64_t x;
    asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
    return x;
}

/* Of the host's memory. */
__device__ static inline bool link_stopped(const uint32_t *stop)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.b32 %0, [%1];" : "=r"(x) : "l"(stop) : "memory");
    return x != 0;
}

__device__ static inline void link_stop(uint32_t *stop)
{
    asm volatile("fence.acq_rel.sys; st.release.sys.b32 [%0], %1;" ::"l"(stop), "r"(1u) : "memory");
}

__device__ static inline uint64_t link_clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)::"memory");
    return t;
}

#endif
