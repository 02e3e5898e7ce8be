/* read_rate.cu: how fast the device reads its memory when it does nothing else: the roof over every kernel that streams
 * weights.
 *
 * Every thread reads 16 bytes at a time, four loads in flight, with a stride of the whole grid, over a block many times larger
 * than the caches. The best of several passes counts: a roof is what can be had. */
#include "backends/cuda/cuda.h"

enum { THREADS = 512, BLOCKS_A_UNIT = 4, PASSES = 6 };

static __global__ void __launch_bounds__(THREADS) read_all(const uint4 *p, size_t n, unsigned *out)
{
    size_t stride = (size_t)gridDim.x * blockDim.x, i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (; i + 3 * stride < n; i += 4 * stride) {
        uint4 a = p[i], b = p[i + stride], c = p[i + 2 * stride], d = p[i + 3 * stride];
        sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    if (sum == 0x5bd1e995u) /* never; but the compiler cannot know */
        *out = sum;
}

/* The time of one pass in ms; a negative one: *error says why there is none. */
static float pass(const uint4 *block, size_t n, unsigned *out, int units, cudaEvent_t from, cudaEvent_t to, cudaError_t *error)
{
    float ms = -1;
    *error = cudaEventRecord(from, 0);
    read_all<<<units * BLOCKS_A_UNIT, THREADS>>>(block, n, out);
    if (*error == cudaSuccess)
        *error = cudaGetLastError();
    if (*error == cudaSuccess)
        *error = cudaEventRecord(to, 0);
    if (*error == cudaSuccess)
        *error = cudaEventSynchronize(to);
    if (*error == cudaSuccess)
        *error = cudaEventElapsedTime(&ms, from, to);
    return *error == cudaSuccess ? ms : -1;
}

extern "C" int cuda_read_rate(int device, double *bytes_per_second)
{
    size_t available = 0, total = 0;
    void *block = NULL;
    cudaEvent_t from = NULL, to = NULL;
    *bytes_per_second = 0;
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&available, &total);
    size_t bytes = available / 2 < (size_t)4 << 30 ? available / 2 / 4096 * 4096 : (size_t)4 << 30;
    if (error == cudaSuccess)
        error = cudaMalloc(&block, bytes + 256);
    if (error == cudaSuccess)
        error = cudaMemset(block, 0x5a, bytes);
    if (error == cudaSuccess)
        error = cudaEventCreate(&from);
    if (error == cudaSuccess)
        error = cudaEventCreate(&to);
    for (int i = 0; i < PASSES && error == cudaSuccess; i++) {
        float ms =
            pass((const uint4 *)block, bytes / 16, (unsigned *)((char *)block + bytes), cuda_units(device), from, to, &error);
        double rate = ms > 0 ? (double)bytes / ms * 1e3 : 0;
        if (i > 0 && rate > *bytes_per_second)
            *bytes_per_second = rate;
    }
    if (from)
        cudaEventDestroy(from);
    if (to)
        cudaEventDestroy(to);
    if (block)
        cudaFree(block);
    return cuda_code(error);
}
