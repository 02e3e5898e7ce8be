/* link_ptx.cuh: loads and stores that other devices, the host or other blocks take part in: one function each, apart from what uses
 * them so that tests can put their own in place (tests/emulated). All but flags are of the whole system's scope: a partner may be
 * on another card. */
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

/* Whether a word of the host's memory is set. */
__device__ static inline bool link_is_set(const uint32_t *word)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.b32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
    return x != 0;
}

/* Behind all that this thread has written before. */
__device__ static inline void link_tell(uint32_t *to, uint32_t x)
{
    asm volatile("fence.acq_rel.sys; st.release.sys.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

__device__ static inline void link_stop(uint32_t *stop)
{
    link_tell(stop, 1);
}

__device__ static inline uint64_t link_clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)::"memory");
    return t;
}

/* ---- flags in memory of the device, from one of its blocks to another */

/* What this thread, and behind a barrier others, wrote before is seen by who has seen the flag. */
__device__ static inline void flag_set(uint32_t *flag)
{
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(flag)) : "memory");
}

__device__ static inline bool flag_look(const uint32_t *flag)
{
    uint32_t set;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(set) : "l"(__cvta_generic_to_global(flag)) : "memory");
    return set != 0;
}

#endif
