/* threads.c: the pool. A run is published by one generation counter, ended by one countdown; a barrier is a counter that the
 * last arrival resets. All three are spun on first, because between the nodes of a decode step a futex call costs more
 * than the work (about 5 us against 0.2 us on two cores); after poll's budget a waiter sleeps on the futex of that word.
 * A mutex with a condition variable lost for the same reason. */
#include "base/threads.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Spins between two offers of the processor to whoever else is ready: about 20 us. A barrier on a busy machine otherwise waits out
 * the spinner's time slice before the thread that it waits for may run (measured beside seven compilers: SmolLM2 at 1 token/s instead
 * of 15). On an idle machine the call returns at once. */
enum { YIELD_EVERY = 512 };

#define CACHE_LINE _Alignas(64)

/* A word that some threads wait on: spinning, then sleeping. */
struct event {
    CACHE_LINE atomic_uint value;
    atomic_uint sleepers;
};

struct pool {
    struct event start;   /* generation of the current run */
    struct event arrived; /* generation of the barrier */
    struct event finished;
    CACHE_LINE atomic_int waiting; /* threads inside the barrier */
    CACHE_LINE atomic_int running; /* workers that have not returned from fn */
    int n;
    long spins;
    pool_fn *fn;
    void *arg;
    bool stop;
    pthread_t *threads;
    struct seat *seats;
};

struct seat {
    struct pool *pool;
    int ith;
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns once the word differs from old. */
static void event_wait(struct event *ev, unsigned old, long spins)
{
    for (long i = 0; i < spins; i++) {
        if (atomic_load_explicit(&ev->value, memory_order_acquire) != old)
            return;
        cpu_relax();
        if (i % YIELD_EVERY == YIELD_EVERY - 1)
            sched_yield();
    }
    atomic_fetch_add(&ev->sleepers, 1);
    while (atomic_load(&ev->value) == old)
        syscall(SYS_futex, &ev->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&ev->sleepers, 1);
}

static void event_signal(struct event *ev)
{
    atomic_fetch_add(&ev->value, 1); /* sequentially consistent with the sleepers' own order: nobody is missed */
    if (atomic_load(&ev->sleepers))
        syscall(SYS_futex, &ev->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *p)
{
    if (p->n == 1)
        return;
    unsigned generation = atomic_load(&p->arrived.value);
    if (atomic_fetch_add(&p->waiting, 1) == p->n - 1) {
        atomic_store(&p->waiting, 0);
        event_signal(&p->arrived);
    } else {
        event_wait(&p->arrived, generation, p->spins);
    }
}

static void *worker_main(void *arg)
{
    struct seat *seat = arg;
    struct pool *p = seat->pool;
    for (unsigned generation = 0;; generation++) {
        event_wait(&p->start, generation, p->spins);
        if (p->stop)
            return NULL;
        p->fn(p->arg, seat->ith, p->n);
        if (atomic_fetch_sub(&p->running, 1) == 1)
            event_signal(&p->finished);
    }
}

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    if (p->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    unsigned generation = atomic_load(&p->finished.value);
    p->fn = fn;
    p->arg = arg;
    atomic_store(&p->running, p->n - 1);
    event_signal(&p->start);
    fn(arg, 0, p->n);
    event_wait(&p->finished, generation, p->spins);
}

int pool_size(const struct pool *p)
{
    return p->n;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    p->stop = true;
    event_signal(&p->start);
    for (int i = 1; i < p->n; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    free(p->seats);
    free(p);
}

struct pool *pool_create(int n, int poll, struct hone_error *e)
{
    if (n < 1 || n > 1024 || poll < 0 || poll > 100) {
        err_set(e, HONE_EUSAGE, "a pool of %d threads with poll %d: 1 to 1024 threads, poll 0 to 100", n, poll);
        return NULL;
    }
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    struct seat *seats = calloc((size_t)n, sizeof *seats);
    if (!p || !threads || !seats) {
        free(p);
        free(threads);
        free(seats);
        err_set(e, HONE_ERESOURCE, "no memory for a pool of %d threads", n);
        return NULL;
    }
    memset(p, 0, sizeof *p);
    p->n = 1;
    p->threads = threads;
    p->seats = seats;
    /* One pause is 10 to 140 cycles by the processor's model; 50 * 500 of them are about a millisecond on ours. */
    p->spins = (long)poll * 500;
    for (int i = 1; i < n; i++)
        seats[i] = (struct seat){p, i};
    for (; p->n < n; p->n++) {
        int rc = pthread_create(&threads[p->n], NULL, worker_main, &seats[p->n]);
        if (rc) {
            err_set(e, HONE_ERESOURCE, "cannot start thread %d of %d: %s", p->n + 1, n, strerror(rc));
            pool_free(p);
            return NULL;
        }
    }
    return p;
}
