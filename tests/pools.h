/* pools.h: a pool for each number of threads that tests of kernels try; made and freed with the group of tests. */
#ifndef TESTS_POOLS_H
#define TESTS_POOLS_H

#include "base/threads.h"

#ifdef HONE_SANITIZED /* where it is for what lies beside a tensor: alone, and with more threads than there is work */
static const int thread_counts[] = {1, 7};
#else
static const int thread_counts[] = {1, 2, 3, 7};
#endif
enum { N_POOLS = sizeof thread_counts / sizeof *thread_counts, MOST_THREADS = 7 };
static struct pool *pools[N_POOLS];

static int start_pools(void **state)
{
    (void)state;
    for (int i = 0; i < N_POOLS; i++)
        pools[i] = pool_create(thread_counts[i], 0, NULL);
    return 0;
}

static int stop_pools(void **state)
{
    (void)state;
    for (int i = 0; i < N_POOLS; i++)
        pool_free(pools[i]);
    return 0;
}

#endif
