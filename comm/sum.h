/* sum.h: the body of comm_sum, compiled once an instruction set. A chunk of sums stays in registers while the ranks' blocks
 * pass by, so each value is read once and written once. What bounds it are the lines that must come from another core's cache
 * (20 KB are 320 of them), so the instruction set matters less than that many loads are under way at a time. */
#ifndef COMM_SUM_H
#define COMM_SUM_H

#include "comm/comm.h"

enum { SUM_CHUNK = 64 };

static inline void sum_body(const struct comm_block *x, int n_ranks, int64_t at, const float *addend, float *restrict y,
                            int64_t n)
{
    int64_t j = 0;
    for (; j + SUM_CHUNK <= n; j += SUM_CHUNK) {
        float sum[SUM_CHUNK];
        const float *p = (const float *)x[0].data + at + j;
        for (int i = 0; i < SUM_CHUNK; i++)
            sum[i] = p[i];
        for (int r = 1; r < n_ranks; r++) {
            p = (const float *)x[r].data + at + j;
            for (int i = 0; i < SUM_CHUNK; i++)
                sum[i] += p[i];
        }
        if (addend)
            for (int i = 0; i < SUM_CHUNK; i++)
                sum[i] += addend[j + i];
        for (int i = 0; i < SUM_CHUNK; i++)
            y[j + i] = sum[i];
    }
    for (; j < n; j++) {
        float sum = ((const float *)x[0].data)[at + j];
        for (int r = 1; r < n_ranks; r++)
            sum += ((const float *)x[r].data)[at + j];
        y[j] = addend ? sum + addend[j] : sum;
    }
}

typedef void sum_fn(const struct comm_block *x, int n_ranks, int64_t at, const float *addend, float *y, int64_t n);
sum_fn comm_sum_avx2, comm_sum_avx512;

#endif
