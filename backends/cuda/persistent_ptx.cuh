/* persistent_ptx.cuh: what persistent.cuh waits by and asks for memory with: instructions that have no spelling in CUDA C. They are
 * apart so that tests can put their own in place (tests/emulated). */
#ifndef BACKENDS_CUDA_PERSISTENT_PTX_CUH
#define BACKENDS_CUDA_PERSISTENT_PTX_CUH

#include "backends/cuda/persistent.h"
#include "backends/cuda/ptx.cuh"

__device__ static inline uint64_t persist_clock(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Whether the lap of this parity has ended; it may take a while to say no. */
__device__ static inline bool landing_try(struct landing *l, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"((uint32_t)__cvta_generic_to_shared(l)), "r"(parity)
                 : "memory");
    return done;
}

/* So many bytes will come; and the one arrival that a lap has. */
__device__ static inline void landing_expect(struct landing *l, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(l)), "r"(bytes)
                 : "memory");
}

__device__ static inline void landing_fetch(struct landing *l, void *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(l))
                 : "memory");
}

__device__ static inline void landing_arrive(struct landing *l)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(l)) : "memory");
}

/* The warps that compute. */
__device__ static inline void persist_sync(void)
{
    asm volatile("bar.sync 1, %0;" ::"r"((int)PERSIST_WORKERS) : "memory");
}

__device__ static inline uint32_t load_acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__device__ static inline void add_release(uint32_t *p)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}

/* What it was before. */
__device__ static inline uint32_t add_acquire(uint32_t *p)
{
    uint32_t v;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* A word of the host's memory. */
__device__ static inline void persist_tell(uint32_t *to, uint32_t word)
{
    *(volatile uint32_t *)to = word;
    __threadfence_system();
}

#endif
