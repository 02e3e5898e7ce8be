/* sum.h: the body of comm_sum, compiled once an instruction set. A chunk of sums stays in registers while the ranks' blocks
 * pass by, so each value is read once and written once. What bounds it are the lines that must come from another core's cache
 * (20 KB are 320 of them), so the instruction set matters less than that many loads are under way at a time. */
#ifndef COMM_SUM_H
#define COMM_SUM_H

#include "comm/comm.h"

/* A cache line of values. Vectors by name: left to itself the compiler kept the chunk in memory and summed the blocks of four
 * ranks and more value by value. */
typedef float sum_line __attribute__((vector_size(64), aligned(4), may_alias));

enum { SUM_LINE = 16, SUM_LINES = 4, SUM_CHUNK = SUM_LINES * SUM_LINE, SUM_AHEAD = 512 }; /* values, but SUM_LINES */

static inline void sum_body(const struct comm_block *x, int n_ranks, int64_t at, const float *addend, float *restrict y,
                            int64_t n)
{
    int64_t j = 0;
    for (; j + SUM_CHUNK <= n; j += SUM_CHUNK) {
        const float *p = (const float *)x[0].data + at + j;
        sum_line a = *(const sum_line *)p, b = *(const sum_line *)(p + SUM_LINE);
        sum_line c = *(const sum_line *)(p + 2 * SUM_LINE), d = *(const sum_line *)(p + 3 * SUM_LINE);
        for (int r = 1; r <= n_ranks; r++) {
            if (r == n_ranks && !addend)
                break;
            p = r < n_ranks ? (const float *)x[r].data + at + j : addend + j;
            if (n - j > SUM_AHEAD) /* another core's lines are some 100 ns away; a chunk's loads are too few to hide that */
                for (int i = 0; i < SUM_CHUNK; i += SUM_LINE)
                    __builtin_prefetch(p + SUM_AHEAD + i, 0, 2);
            a += *(const sum_line *)p;
            b += *(const sum_line *)(p + SUM_LINE);
            c += *(const sum_line *)(p + 2 * SUM_LINE);
            d += *(const sum_line *)(p + 3 * SUM_LINE);
        }
        *(sum_line *)(y + j) = a;
        *(sum_line *)(y + j + SUM_LINE) = b;
        *(sum_line *)(y + j + 2 * SUM_LINE) = c;
        *(sum_line *)(y + j + 3 * SUM_LINE) = d;
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
