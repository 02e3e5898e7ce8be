/* q4_0.cu: a CUDA kernel of one's own, to start from: mul_mat of a Q4_0 weight with f32 activations. See README.md.
 *
 *   out[i, t] = sum over k of W[k, i] X[k, t];   W [k, m] Q4_0 in file order, X [k, n] f32, out [m, n] f32
 *
 * A warp computes one output: lane l takes the blocks l, l + 32, ... of the row (18 bytes each: a binary16 scale d, then byte j
 * has value j in its low four bits and value j + 16 in its high four; a value is d * (bits - 8)). The lanes' sums are added in
 * a fixed order. File order is 2-byte aligned at best, which is what bounds it: hone's own kernels read a layout of 16-byte
 * pieces instead. A block of four warps computes four outputs of one row of X. */
#include "hone_cuda.h"

enum { WARPS = 4, BLOCK = 32, BLOCK_BYTES = 18 };

extern "C" __global__ void q4_0_warp(const struct hone_cuda_node node)
{
    const struct hone_cuda_tensor *w = &node.src[0], *x = &node.src[1], *out = &node.out;
    long long i = (long long)blockIdx.x * WARPS + threadIdx.x / 32, t = blockIdx.y;
    int lane = threadIdx.x % 32;
    if (i >= out->ne[0])
        return;
    const unsigned char *row = (const unsigned char *)hone_row(w, i, 0, 0);
    const float *values = (const float *)hone_row(x, t, 0, 0);
    float sum = 0;
    for (long long b = lane; b < w->ne[0] / BLOCK; b += 32) {
        const unsigned short *block = (const unsigned short *)(row + b * BLOCK_BYTES);
        const float *at = values + b * BLOCK;
        float part = 0;
        for (int j = 0; j < 8; j++) {
            unsigned codes = block[1 + j]; /* values 2j and 2j + 1, and those 16 further on */
            part += (float)((int)(codes & 15) - 8) * at[2 * j] + (float)((int)(codes >> 8 & 15) - 8) * at[2 * j + 1];
            part += (float)((int)(codes >> 4 & 15) - 8) * at[2 * j + 16] + (float)((int)(codes >> 12) - 8) * at[2 * j + 17];
        }
        sum += hone_half(block[0]) * part;
    }
    sum = hone_warp_sum(sum);
    if (lane == 0)
        ((float *)hone_row(out, t, 0, 0))[i] = sum;
}

HONE_CUDA_KERNELS = {
    {HONE_CUDA_KERNEL, .op = "mul_mat", .variant = "q4_0_warp", .function = "q4_0_warp", .formats = "q4_0 f32",
     .threads = WARPS * 32, .values = WARPS, .rows = 1, .k_multiple = BLOCK},
};
