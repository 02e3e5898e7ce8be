/* sum.c: comm_sum on the widest vectors that this processor has. The bits are the same on all of them: additions in one order.
 */
#include "comm/sum.h"

#include "base/cpu.h"

void comm_sum(const struct comm_block *x, int n_ranks, int64_t at, const float *addend, float *y, int64_t n)
{
    unsigned features = cpu_features();
    if (features & CPU_AVX512)
        comm_sum_avx512(x, n_ranks, at, addend, y, n);
    else if (features & CPU_AVX2)
        comm_sum_avx2(x, n_ranks, at, addend, y, n);
    else
        sum_body(x, n_ranks, at, addend, y, n);
}
