/* bandwidth.c: reads that the compiler cannot drop: sums of 64-bit words in independent lanes. One kernel walks one stream a
 * thread, the other four streams at once: which is faster depends on the prefetchers of the machine. */
#include "base/bandwidth.h"

#include "base/clock.h"
#include "base/mmap.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(HONE_SANITIZED)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

enum { LANES = 32 }; /* 64-bit words a step: four cache lines */

struct job {
    uint64_t *data;
    size_t words; /* a thread */
    int streams;
    atomic_ullong sum;
};

WIDEST static uint64_t sum_words(const uint64_t *p, size_t words, int streams)
{
    uint64_t lanes[LANES] = {0}, sum = 0;
    size_t piece = words / (size_t)streams / LANES * LANES;
    for (size_t i = 0; i < piece; i += LANES)
        for (int s = 0; s < streams; s++)
            for (int j = 0; j < LANES; j++)
                lanes[j] += p[(size_t)s * piece + i + (size_t)j];
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

static void touch(void *arg, int ith, int nth)
{
    struct job *job = arg;
    (void)nth;
    memset(job->data + (size_t)ith * job->words, ith + 1, job->words * 8);
}

static void read_all(void *arg, int ith, int nth)
{
    struct job *job = arg;
    (void)nth;
    atomic_fetch_add(&job->sum, sum_words(job->data + (size_t)ith * job->words, job->words, job->streams));
}

int bandwidth_read(int n_threads, double *bytes_per_second, struct hone_error *e)
{
    size_t size = (size_t)1 << 30, available = pages_available();
    while (available && size > available / 4)
        size /= 2;
    struct job job = {.words = size / 8 / (size_t)(n_threads > 0 ? n_threads : 1) / (4 * LANES) * (4 * LANES)};
    struct pool *pool = pool_create(n_threads, 50, e);
    if (!pool)
        return e ? e->code : HONE_ERESOURCE;
    job.data = pages_alloc(size);
    int rc = job.data && job.words ? 0 : err_set(e, HONE_ERESOURCE, "no memory to measure reading with");
    *bytes_per_second = 0;
    if (!rc)
        pool_run(pool, touch, &job);
    for (int pass = 0; pass < 6 && !rc; pass++) {
        job.streams = pass % 2 ? 4 : 1;
        int64_t start = clock_ns();
        pool_run(pool, read_all, &job);
        double rate = (double)job.words * 8 * n_threads / ((double)(clock_ns() - start) / 1e9);
        if (rate > *bytes_per_second)
            *bytes_per_second = rate;
    }
    pages_free(job.data, size);
    pool_free(pool);
    return rc;
}
