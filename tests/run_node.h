/* run_node.h: a node on one kernel or on its reference, with each number of threads that tests of kernels try. What a kernel
 * may use beside its operands is poisoned before. */
#ifndef TESTS_RUN_NODE_H
#define TESTS_RUN_NODE_H

#include "tests/pools.h"
#include "tests/test.h"

#include "backends/backend.h"

#include <stdlib.h>
#include <string.h>

struct node_run {
    const struct kernel *kernel; /* NULL: the reference */
    const struct node *node;
    struct pool *pool;
    char *scratch, *shared;
    size_t stride;
};

static void run_worker(void *arg, int ith, int nth)
{
    const struct node_run *r = arg;
    struct exec x = {.worker = {ith, nth, r->pool, r->scratch + (size_t)ith * r->stride, r->stride}, .shared = r->shared};
    if (r->kernel)
        assert_int_equal(r->kernel->run(&x, r->node), 0);
    else
        node_reference(r->node, &x.worker);
}

/* k NULL: the reference; with thread_counts[pool] threads. */
static void run_node(const struct kernel *k, const struct node *n, int pool)
{
    struct node_run r = {.kernel = k, .node = n, .pool = pools[pool]};
    size_t scratch = k ? (k->scratch ? k->scratch(n) : 0) : node_scratch(n), shared = k && k->shared ? k->shared(n) : 0;
    r.stride = (scratch + 63) / 64 * 64;
    r.scratch = aligned_alloc(64, r.stride * MOST_THREADS + 64);
    r.shared = aligned_alloc(64, (shared + 127) / 64 * 64);
    assert_true(r.scratch && r.shared);
    memset(r.scratch, 0xff, r.stride * MOST_THREADS);
    memset(r.shared, 0xff, shared);
    pool_run(r.pool, run_worker, &r);
    free(r.scratch);
    free(r.shared);
}

#endif
