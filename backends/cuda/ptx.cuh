/* ptx.cuh: the warp-wide instructions of the tensor cores and of copies, one function each: what has no spelling in CUDA C. They are apart so
 * that tests can put their own in place (tests/emulated). */
#ifndef BACKENDS_CUDA_PTX_CUH
#define BACKENDS_CUDA_PTX_CUH

#include "backends/cuda/cuda.h"

/* c += a b, 16 x 8 x 16, of f16; of bf16. */
__device__ static __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ static __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The 8 x 8 halves that a warp holds (row lane / 4, a pair of columns a lane), transposed. */
__device__ static inline uint32_t transpose_8x8(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* Four 8 x 8 matrices of halves from shared memory; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ static inline void load_matrices(uint32_t (&r)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ static inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* 16 bytes to shared memory while the thread goes on; zeros where `from` is NULL (then `any` is some address that can be read). */
__device__ static inline void copy_16_async(void *to, const void *from, const void *any)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    int bytes = from ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(__cvta_generic_to_global(from ? from : any)), "r"(bytes) : "memory");
}

__device__ static inline void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All groups but the last `pending` have landed, for this thread. */
template <int pending> __device__ static inline void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* The line of 128 bytes at p into the second-level cache. */
__device__ static inline void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}

/* A barrier of the cluster in two halves: what threads wrote before they arrived, all see behind the wait. */
__device__ static inline void cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ static inline void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* ---- bulk copies, by the copy engine, and where they land: a barrier in shared memory that counts arrivals and bytes */

struct landing {
    uint64_t state;
};

/* A lap ends when so many copies were asked for and all their bytes have come. */
__device__ static inline void landing_init(struct landing *l, int copies)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(l)), "r"(copies) : "memory");
}

/* By the thread that did the inits, before the first copy. */
__device__ static inline void landings_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Asks for bytes (a multiple of 16, from and to addresses that are too) from device memory. */
__device__ static inline void landing_copy(struct landing *l, void *to, const void *from, uint32_t bytes)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(l);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(at)
                 : "memory");
}

/* Until the lap of this parity (the first is 0) has ended. */
__device__ static inline void landing_wait(struct landing *l, uint32_t parity)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(l), done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    while (!done);
}

/* Bytes (a multiple of 16) into the second-level cache. */
__device__ static inline void prefetch_bulk(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}

#endif
