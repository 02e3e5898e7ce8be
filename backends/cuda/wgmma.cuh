/* wgmma.cuh: what a multiprocessor of sm_90a has beyond warps: products of a warpgroup (four warps, the first at a multiple of
 * four), copies in bulk that report to a barrier in shared memory. One function an instruction; apart, as ptx.cuh is, so that
 * tests can put their own in place (tests/emulated).
 *
 * A product runs while its warps go on. From wgmma_begin, which follows the last write to a register that it reads, until
 * a wgmma_wait that covers it, its registers are not touched; wgmma_hold keeps the compiler to that.
 *
 * The right operand lies in shared memory: 64 halves along k are a row of 128 bytes, rows lie one behind the other from an
 * address that is a multiple of 1024, and the 16-byte piece p of row r is at place p ^ r % 8 of its row (PTX ISA, 128-byte
 * swizzle). */
#ifndef BACKENDS_CUDA_WGMMA_CUH
#define BACKENDS_CUDA_WGMMA_CUH

#include "backends/cuda/cuda.h"

__device__ static __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- products */

struct wgmma_rows {
    uint64_t bits;
};

/* The rows from there on, 16 halves of each from number 16 `step`. */
__device__ static __forceinline__ struct wgmma_rows wgmma_rows_of(const void *rows, int step)
{
    uint64_t at = (shared_address(rows) + 32u * (uint32_t)step) >> 4 & 0x3fff;
    /* eight rows are 1024 bytes; swizzled by 128 */
    return {at | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62};
}

__device__ static __forceinline__ void wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ static __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all committed groups but the last `pending` are done. */
template <int pending> __device__ static __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int n> __device__ static __forceinline__ void wgmma_hold(float (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

__device__ static __forceinline__ void wgmma_hold(uint32_t (&a)[4])
{
    asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

#define WGMMA_4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_16(i) WGMMA_4(i), WGMMA_4(i + 4), WGMMA_4(i + 8), WGMMA_4(i + 12)
#define WGMMA_32(i) WGMMA_16(i), WGMMA_16(i + 16)

/* d = a b, or d += a b where `accumulate` is not 0: 64 rows x 16, times 16 x 256 or 128 rows of b, in f16. A warp has 16 rows
 * of a and d, in the fragments of mma.cuh: d[4 i] to d[4 i + 3] are columns 8 i to 8 i + 7. */
__device__ static __forceinline__ void wgmma_f16(float (&d)[128], const uint32_t (&a)[4], struct wgmma_rows b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
                 "{%128, %129, %130, %131}, %132, p, 1, 1, 0;\n}"
                 : WGMMA_32(0), WGMMA_32(32), WGMMA_32(64), WGMMA_32(96)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(accumulate)
                 : "memory");
}

__device__ static __forceinline__ void wgmma_f16(float (&d)[64], const uint32_t (&a)[4], struct wgmma_rows b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
                 : WGMMA_32(0), WGMMA_32(32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(accumulate)
                 : "memory");
}

#undef WGMMA_4
#undef WGMMA_16
#undef WGMMA_32

/* Registers of each of this warpgroup's threads from now on; a multiple of 8. All four warps call it. */
template <int n> __device__ static __forceinline__ void registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

template <int n> __device__ static __forceinline__ void registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

/* ---- barriers in shared memory: a phase ends when all arrivals, and all bytes that were announced, are there */

__device__ static __forceinline__ void barrier_init(uint64_t *b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}

/* Makes barriers known to copies; who uses them meets behind it. */
__device__ static __forceinline__ void barriers_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and announces bytes that copies will bring. */
__device__ static __forceinline__ void barrier_expect(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}

__device__ static __forceinline__ void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

/* Until the phase of this parity (the first has 0) is over. */
__device__ static __forceinline__ void barrier_wait(uint64_t *b, uint32_t parity)
{
    uint32_t over;
    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over)
                     : "r"(shared_address(b)), "r"(parity)
                     : "memory");
    while (!over);
}

/* `threads` threads of the block, whole warps, meet; id is 1 to 15. */
__device__ static __forceinline__ void part_barrier(int id, int threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- copies, of multiples of 16 bytes, that report to a barrier */

__device__ static __forceinline__ void bulk_copy(void *to, const void *from, int bytes, uint64_t *b)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(b))
        : "memory");
}

#endif
