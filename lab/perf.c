/* perf.c: timing as the run loop times: all threads meet, the clock is read, they run the kernel and meet again.
 *
 * Cold means that every line of the node's memory was flushed from all caches before (clflush; elsewhere a sweep over more
 * memory than any cache holds). Rotating copies of the weights, the usual way, needs gigabytes on a machine with 260 MB of
 * shared cache, and never gets a norm's few kilobytes cold. Warm is the other end; an activation in a real step is warm and a
 * weight cold, so a decode product is near the cold figure and a norm near the warm one.
 *
 * The median of up to 50 runs within a tenth of a second, and of 5 in any case. A device is timed by its own clock, cold behind a write
 * over more memory than its caches hold. */
#include "lab/perf.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "lab/on_device.h"
#include "lab/stats.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { FEWEST = 5, MOST = 50, BUDGET_NS = 100000000, LINE = 64 };

struct stopwatch {
    struct specimen *s;
    struct arrangement a;
    const struct kernel *kernel;
    struct pool *pool;
    char *scratch;
    size_t stride;
    struct comm *comm; /* the group of a node that meets other ranks: of made-up ones, whose blocks lie in memory */
    bool cold;
    double samples[MOST];
    int n;
    bool over; /* written by thread 0 before a meeting, read behind it */
    atomic_int code;
};

/* Worker ith's share of a region: all flush, for who waited meanwhile would have to be woken. */
#if defined(__x86_64__)
static void flush_share(const struct region *r, int ith, int nth)
{
    for (size_t i = (size_t)ith * LINE; i < r->size; i += (size_t)nth * LINE)
        _mm_clflush(r->bytes + i);
}

static void flush_all(struct stopwatch *w, int ith, int nth)
{
    for (int i = 0; i < w->s->n_regions; i++)
        flush_share(&w->s->regions[i], ith, nth);
    for (int i = 0; i < w->a.n_regions; i++)
        flush_share(&w->a.regions[i], ith, nth);
    _mm_mfence();
}
#else
static void flush_all(struct stopwatch *w, int ith, int nth)
{
    enum { SWEEP = 512 << 20 };
    static unsigned char *sweep;
    (void)w, (void)nth;
    if (!sweep && ith == 0)
        sweep = calloc(SWEEP, 1);
    for (size_t i = 0; sweep && ith == 0 && i < SWEEP; i += LINE)
        sweep[i]++;
}
#endif

static void time_worker(void *arg, int ith, int nth)
{
    struct stopwatch *w = arg;
    struct exec x = {.worker = {ith, nth, w->pool, w->scratch + (size_t)ith * w->stride, w->stride, w->comm},
                     .shared = w->scratch + (size_t)nth * w->stride};
    int64_t begin = clock_ns();
    for (int i = 0; !w->over; i++) {
        if (w->cold)
            flush_all(w, ith, nth);
        worker_barrier(&x.worker);
        int64_t start = clock_ns();
        int code = w->kernel->run(&x, w->a.node);
        worker_barrier(&x.worker);
        if (code)
            atomic_store(&w->code, code);
        if (ith == 0) {
            int64_t end = clock_ns();
            if (i > 0) /* the first one finds the pool asleep */
                w->samples[w->n++] = (double)(end - start);
            w->over = atomic_load(&w->code) || w->n == MOST || (w->n >= FEWEST && end - begin > BUDGET_NS);
        }
        worker_barrier(&x.worker);
    }
}

static int time_runs(struct stopwatch *w, bool cold, double *median, struct hone_error *e)
{
    w->cold = cold;
    w->n = 0;
    w->over = false;
    pool_run(w->pool, time_worker, w);
    int code = atomic_load(&w->code);
    if (code)
        return err_set(e, code, "the kernel failed while it was timed: %s", err_meaning(code));
    *median = stats_median(w->samples, (size_t)w->n);
    return 0;
}

static int time_on_device(struct on_device *d, const struct kernel *k, bool cold, double *median, struct hone_error *e)
{
    double samples[MOST];
    int n = 0, rc = 0;
    int64_t begin = clock_ns(), ns;
    for (int i = 0; !rc && n < MOST && (n < FEWEST || clock_ns() - begin < BUDGET_NS); i++) {
        rc = on_device_time(d, k, cold, &ns, e);
        if (i > 0)
            samples[n++] = (double)ns;
    }
    if (!rc)
        *median = stats_median(samples, (size_t)n);
    return rc;
}

static int measure_on_device(struct perf_result *p, struct specimen *s, const struct backend *b, const struct kernel *k, struct hone_error *e)
{
    struct arrangement a;
    struct on_device d = {0};
    int rc = specimen_arrange(&a, s, k, NULL, e);
    if (rc)
        return rc;
    for (int i = 0; i < s->n_regions; i++)
        region_load(&s->regions[i], 0, REGION_NOTHING);
    for (int i = 0; i < a.n_regions; i++)
        region_load(&a.regions[i], 0, REGION_NOTHING);
    rc = on_device_open(&d, b, 0, s, &a, k->shared ? k->shared(a.node) : 0, e);
    if (!rc)
        rc = on_device_load(&d, e);
    if (!rc)
        rc = time_on_device(&d, k, true, &p->cold_ns, e);
    if (!rc)
        rc = time_on_device(&d, k, false, &p->warm_ns, e);
    if (!rc) {
        p->samples = FEWEST;
        p->threads = 1;
        p->cost = node_cost(a.node);
    }
    on_device_close(&d);
    arrangement_free(&a);
    return rc;
}

int perf_measure(struct perf_result *p, struct specimen *s, const struct backend *b, const struct kernel *k, struct pool *pool,
                 struct hone_error *e)
{
    if (!b->host)
        return measure_on_device(p, s, b, k, e);
    struct stopwatch w = {.s = s, .kernel = k, .pool = pool};
    int rc = specimen_arrange(&w.a, s, k, NULL, e);
    if (rc)
        return rc;
    w.stride = ((k->scratch ? k->scratch(w.a.node) : 0) + 127) / 64 * 64;
    w.scratch = aligned_alloc(64, w.stride * (size_t)pool_size(pool) + ((k->shared ? k->shared(w.a.node) : 0) + 63) / 64 * 64);
    if (!w.scratch)
        rc = err_set(e, HONE_ERESOURCE, "no memory for scratch");
    if (!rc)
        rc = specimen_group(&w.comm, w.a.node, pool, e);
    for (int i = 0; i < s->n_regions; i++)
        region_load(&s->regions[i], 0, REGION_NOTHING);
    for (int i = 0; i < w.a.n_regions; i++)
        region_load(&w.a.regions[i], 0, REGION_NOTHING);
    if (!rc)
        rc = time_runs(&w, true, &p->cold_ns, e);
    if (!rc)
        rc = time_runs(&w, false, &p->warm_ns, e);
    if (!rc) {
        p->samples = w.n;
        p->threads = pool_size(pool);
        p->cost = node_cost(w.a.node);
    }
    comm_free(w.comm);
    free(w.scratch);
    arrangement_free(&w.a);
    return rc;
}
