/* sum_avx2.c: comm_sum with vectors of 8. */
#include "comm/sum.h"

void comm_sum_avx2(const struct comm_block *x, int n_ranks, int64_t at, const float *addend, float *y, int64_t n)
{
    sum_body(x, n_ranks, at, addend, y, n);
}
