/* threads.h: one persistent pool of threads, and what a kernel knows of the thread that it runs on.
 *
 * The caller of pool_run is thread 0 of the pool and works with the others. Workers spin for a while after their
 * last work and then sleep (see pool_create's poll). A kernel sees only a struct worker: which thread of how many, a
 * barrier, and scratch memory that was declared before the step. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct pool;
struct comm; /* comm/comm.h */

struct worker {
    int ith, nth;        /* this thread, of how many */
    struct pool *pool;   /* for worker_barrier; may be NULL when nth is 1 */
    void *scratch;       /* this thread's own scratch, aligned to 64 */
    size_t scratch_size; /* bytes */
    struct comm *comm;   /* this rank's end of its group, for collectives; NULL: it is alone */
};

typedef void pool_fn(void *arg, int ith, int nth);

/* n threads in all (n - 1 are started). poll 0 to 100, as in llama.cpp's --poll: how long an idle worker spins before
 * it sleeps; 0 sleeps at once, 50 spins for about a millisecond. NULL and *e on failure. */
struct pool *pool_create(int n, int poll, struct hone_error *e);
void pool_free(struct pool *p); /* p may be NULL */
int pool_size(const struct pool *p);

/* Runs fn(arg, ith, nth) on every thread of the pool and returns when all have returned. Not reentrant. */
void pool_run(struct pool *p, pool_fn *fn, void *arg);
/* Inside a pool_run, on every thread: waits until all have arrived. */
void pool_barrier(struct pool *p);

/* The same for a kernel; does nothing when the worker is alone. */
static inline void worker_barrier(const struct worker *w)
{
    if (w->nth > 1)
        pool_barrier(w->pool);
}

/* This worker's share [*lo, *hi) of n items, cut at multiples of grain: contiguous, in order, empty for late workers. */
static inline void worker_range(const struct worker *w, int64_t n, int64_t grain, int64_t *lo, int64_t *hi)
{
    int64_t units = (n + grain - 1) / grain;
    int64_t a = units * w->ith / w->nth * grain, b = units * (w->ith + 1) / w->nth * grain;
    *lo = a < n ? a : n;
    *hi = b < n ? b : n;
}

#endif
