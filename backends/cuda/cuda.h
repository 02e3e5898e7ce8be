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
 * is switched on): it calls cuda_wait() once in every thread, before the first access to anything that a node writes. Weights
 * and parameters may be read before. cuda_release() lets the next kernel begin early; what it orders is the start alone, since
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
/* Multiprocessors of device x->device, and the bytes of shared memory that a block of it may have. Read once. */
int cuda_units(int device);
size_t cuda_block_shared(int device);
/* Whether kernels may begin before the one before them has ended. */
bool cuda_overlap(void);
/* How fast the device reads its memory, measured now (read_rate.cu). 0 or a HONE_E code. */
int cuda_read_rate(int device, double *bytes_per_second);

#ifdef __cplusplus
} /* extern "C" */

/* Defines a kernel that C can see. */
#define CUDA_KERNEL(name)                                                                                                      \
    extern "C" {                                                                                                               \
    extern const struct kernel cuda_##name;                                                                                    \
    }                                                                                                                          \
    const struct kernel cuda_##name

/* Launches kernel<<<grid, block, shared>>>(args...) on x's stream. 0 or a HONE_E code. */
template <class... P, class... A>
static inline int cuda_launch(const struct exec *x, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return 0; /* an empty tensor */
    if (shared > 48 * 1024) {
        cudaError_t error =
            cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (error != cudaSuccess)
            return cuda_code(error);
    }
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = (cudaStream_t)x->stream;
    config.attrs = &early;
    config.numAttrs = cuda_overlap() ? 1 : 0;
    return cuda_code(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...));
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
