/* cuda.h: what every CUDA file of this folder includes: hone's contract (nodes, kernels, formats) made readable from C++, and
 * the few calls by which a kernel is launched and an error kept.
 *
 * A kernel of the backend is a file backends/cuda/<op>_<variant>.cu with the device code and, at its end,
 *     CUDA_KERNEL(<op>_<variant>) = {.op = OP_..., .variant = "<variant>", ..., .run = run};
 * and a row in kernels.def. Designated initialisers follow the order of struct kernel (C++20 asks for it). `fits` runs on the
 * host and looks at shapes only. `run` gets tensors whose data are addresses on the device, and does nothing but launch on
 * x->stream: it neither waits nor allocates, so that it can be captured. What it needs beside its tensors is x->shared
 * (kernel->shared(n) bytes of device memory, aligned to 256). A plan's first run is never captured: handles of libraries are
 * made there, once.
 *
 * Launch shapes depend on shapes of tensors alone. Positions, lengths, cells and slots are read on the device, so that one
 * captured graph serves every position. The same input gives the same bits: sums in a fixed order, no atomic float.
 *
 * Programmatic dependent launch. A kernel that is launched by cuda_launch may begin while the one before still runs (where that
 * is switched on): it calls cuda_wait() once in every thread, before the first access to anything that another node of the step
 * writes. Weights, parameters, the step's inputs, and a state that no other node writes may be read before: a step begins when
 * the one before it has ended. cuda_release() lets the next kernel begin early; what it orders is the start alone, since
 * cuda_wait() returns once the kernel before has ended. */
#ifndef BACKENDS_CUDA_CUDA_H
#define BACKENDS_CUDA_CUDA_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#include <cuda_runtime.h>
/* What C and C++ spell differently in hone's headers. */
#define _Alignas(n) alignas(n)
#define _Noreturn __attribute__((noreturn))
#define _Static_assert static_assert
#define restrict __restrict__
extern "C" {
#else
#include <cuda_runtime_api.h>
#endif

#include "backends/backend.h"
#include "formats/blocks.h"
#include "formats/layouts.h"

/* Feature bits, for kernel->needs. */
enum { CUDA_SM90 = 1u << 0 };

/* Keeps the error's text for the run loop's message (backend->why) and gives its HONE_E code: HONE_ERESOURCE for memory, else
 * HONE_EFAULT; 0 for cudaSuccess. */
int cuda_code(cudaError_t error);
/* The same with a text of one's own, for what is no cudaError_t (cuBLAS). */
int cuda_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The text that was kept last on this thread. */
const char *cuda_why(void);
/* Whether this process has asked for a device: from then on its children cannot. */
bool cuda_started(void);
/* Multiprocessors of device x->device, and the bytes of shared memory that a block of it may have. Read once. */
int cuda_units(int device);
size_t cuda_block_shared(int device);
/* Whether this kernel may begin before the one before it has ended: in steps of few tokens. HONE_CUDA_OVERLAP=0 is never and =1
 * always: in long steps early blocks crowd on the multiprocessors that are free first, and products of many tokens take longer. */
bool cuda_overlap(const struct exec *x);
/* How fast the device reads its memory, measured now (read_rate.cu). 0 or a HONE_E code. */
int cuda_read_rate(int device, double *bytes_per_second);

/* What a block that waited for another one of its kernel, and for too long, has left in memory of the host (wait.cuh): one a
 * device, from its first stream on. Whoever synchronises is told, from then on for good: what such a kernel left is wrong. */
struct cuda_late {
    uint32_t stop;  /* set last: nobody waits on */
    uint32_t block; /* that did not come */
    uint64_t where; /* the address of the node's name */
};
enum { CUDA_LATE_MS = 20000 };
struct cuda_late *cuda_late(int device);
/* Lets kernel have as much dynamic shared memory as a block of the device, which is the current one, has beside what the kernel
 * declares. Asked once a kernel and device: ranks and threads launch the same kernel with different needs, and who lowered what
 * another has asked for would make its launch fail. */
int cuda_allow_shared(const void *kernel, int device);

/* As a kernel's argument: who waits, and where it tells of it. */
struct cuda_waiting {
    struct cuda_late *late;
    uint64_t where;
};
static inline struct cuda_waiting cuda_waiting_at(const struct exec *x, const char *name)
{
    struct cuda_waiting w = {cuda_late(x->device), (uint64_t)(uintptr_t)name};
    return w;
}

#ifdef __cplusplus
} /* extern "C" */

/* Defines a kernel that C can see. */
#define CUDA_KERNEL(name)                                                                                                      \
    extern "C" {                                                                                                               \
    extern const struct kernel cuda_##name;                                                                                    \
    }                                                                                                                          \
    const struct kernel cuda_##name

/* Launches kernel<<<grid, block, shared>>>(args...) on x's stream, in clusters of so many blocks along the grid's x. 0 or a HONE_E
 * code. More than 48 KB of shared memory must be asked for, and what a kernel declares counts; none declares more than 40. */
template <class... P, class... A>
static inline int cuda_launch_cluster(const struct exec *x, void (*kernel)(P...), dim3 grid, dim3 block, unsigned cluster, size_t shared, A... args)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return 0; /* an empty tensor */
    int rc = shared > 8 * 1024 ? cuda_allow_shared((const void *)kernel, x->device) : 0;
    if (rc)
        return rc;
    cudaLaunchAttribute attributes[3] = {};
    unsigned n = 0;
    if (cluster > 1) {
        attributes[n].id = cudaLaunchAttributeClusterDimension;
        attributes[n].val.clusterDim.x = cluster;
        attributes[n].val.clusterDim.y = attributes[n].val.clusterDim.z = 1;
        n++;
    }
    if (cuda_overlap(x)) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n].val.programmaticStreamSerializationAllowed = 1;
        n++;
        /* A multiprocessor divides its memory between cache and shared memory anew only when it is empty. */
        attributes[n].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        attributes[n].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
        n++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = (cudaStream_t)x->stream;
    config.attrs = attributes;
    config.numAttrs = n;
    return cuda_code(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...));
}

/* The same without clusters. */
template <class... P, class... A>
static inline int cuda_launch(const struct exec *x, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    return cuda_launch_cluster(x, kernel, grid, block, 1, shared, args...);
}

#ifdef __CUDACC__
__device__ static inline void cuda_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}
__device__ static inline void cuda_release(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}
#endif
#endif
#endif
