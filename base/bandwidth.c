/* bandwidth.c: reads that the compiler cannot drop: sums of 64-bit words in independent lanes. One kernel walks one stream a
 * thread, the second four streams at once, the third one stream with the lines some kilobytes ahead asked for by name: which is
 * fastest depends on the prefetchers of the machine, and a roof that a good kernel passes is no roof. On two cores of a
 * Sapphire Rapids server under KVM they read 15.3, 16.1 and 15.7 GB/s (medians of 18 rounds, beside other work). */
#include "base/bandwidth.h"

#include "base/clock.h"
#include "base/mmap.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(HONE_SANITIZED)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

enum {
    LANES = 32,
    LINE = 8,
    AHEAD = 512
}; /* 64-bit words: a step, which is four cache lines; a line; how far ahead the third kernel asks */

enum read_kernel { ONE_STREAM, FOUR_STREAMS, PREFETCHED, N_KERNELS };

struct bandwidth {
    struct pool *pool;
    uint64_t *data;
    size_t size, words; /* bytes in all, words a thread */
    enum read_kernel kernel;
    atomic_ullong sum;
};

WIDEST static uint64_t sum_streams(const uint64_t *p, size_t words, int streams)
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

WIDEST static uint64_t sum_prefetched(const uint64_t *p, size_t words)
{
    uint64_t lanes[LANES] = {0}, sum = 0;
    for (size_t i = 0; i + LANES <= words; i += LANES) {
        const uint64_t *ahead = p + (i + AHEAD + LANES <= words ? i + AHEAD : i);
        for (int j = 0; j < LANES; j += LINE)
            __builtin_prefetch(ahead + j);
        for (int j = 0; j < LANES; j++)
            lanes[j] += p[i + (size_t)j];
    }
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

static void touch(void *arg, int ith, int nth)
{
    struct bandwidth *b = arg;
    (void)nth;
    memset(b->data + (size_t)ith * b->words, ith + 1, b->words * 8);
}

static void read_all(void *arg, int ith, int nth)
{
    struct bandwidth *b = arg;
    const uint64_t *p = b->data + (size_t)ith * b->words;
    (void)nth;
    atomic_fetch_add(&b->sum, b->kernel == PREFETCHED ? sum_prefetched(p, b->words)
                                                      : sum_streams(p, b->words, b->kernel == FOUR_STREAMS ? 4 : 1));
}

int bandwidth_open(struct bandwidth **out, int n_threads, struct hone_error *e)
{
    struct hone_error own = {0};
    size_t size = (size_t)1 << 30, available = pages_available();
    while (available && size > available / 4)
        size /= 2;
    struct bandwidth *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b)
        return err_set(e, HONE_ERESOURCE, "no memory to measure reading with");
    b->pool = pool_create(n_threads, 50, &own);
    b->size = size;
    b->words = size / 8 / (size_t)(n_threads > 0 ? n_threads : 1) / (4 * LANES) * (4 * LANES);
    b->data = b->pool && b->words ? pages_alloc(size) : NULL;
    if (!b->data) {
        int rc = own.code ? err_set(e, own.code, "%s", own.message)
                          : err_set(e, HONE_ERESOURCE, "no memory to measure reading with");
        bandwidth_close(b);
        return rc;
    }
    pool_run(b->pool, touch, b);
    *out = b;
    return 0;
}

double bandwidth_round(struct bandwidth *b)
{
    double best = 0;
    for (int k = 0; k < N_KERNELS; k++) {
        b->kernel = (enum read_kernel)k;
        int64_t start = clock_ns();
        pool_run(b->pool, read_all, b);
        int64_t ns = clock_ns() - start;
        double rate = (double)b->words * 8 * pool_size(b->pool) / ((double)(ns > 0 ? ns : 1) / 1e9);
        if (rate > best)
            best = rate;
    }
    return best;
}

size_t bandwidth_bytes(const struct bandwidth *b)
{
    return b->words * 8 * (size_t)pool_size(b->pool);
}

void bandwidth_close(struct bandwidth *b)
{
    if (!b)
        return;
    pages_free(b->data, b->size);
    pool_free(b->pool);
    free(b);
}

int bandwidth_read(int n_threads, double *bytes_per_second, struct hone_error *e)
{
    struct bandwidth *b;
    *bytes_per_second = 0;
    int rc = bandwidth_open(&b, n_threads, e);
    for (int i = 0; i < 3 && !rc; i++) {
        double rate = bandwidth_round(b);
        if (rate > *bytes_per_second)
            *bytes_per_second = rate;
    }
    if (!rc)
        bandwidth_close(b);
    return rc;
}
