/* link.c: what it takes to meet: the median of a small sum, and the slope from there to a large one. The ranks come together
 * before each, so that nobody's lateness is in it. Over more than two ranks the slope counts the bytes of all others, which
 * each rank has to get. */
#include "comm/comm.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 16, LARGE = 65536, RUNS = 201 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Two buffers take turns, and each is written anew: what is measured is the way of lines that another core, or process, has changed. */
static int time_size(struct comm *c, float *x[2], float *sum, int64_t n, double *median)
{
    double ns[RUNS];
    int rc = 0;
    for (int i = 0; i < RUNS && !rc; i++) {
        float *mine = x[i & 1];
        for (int64_t k = 0; k < n; k++)
            mine[k] = (float)(i + k);
        rc = comm_barrier(c, NULL, "link");
        int64_t start = clock_ns();
        if (!rc)
            rc = comm_all_reduce(c, NULL, mine, sum, n, "link");
        ns[i] = (double)(clock_ns() - start);
    }
    qsort(ns, RUNS, sizeof *ns, by_size);
    *median = ns[RUNS / 2];
    return rc;
}

int comm_link(struct comm *c, double *latency_ns, double *bytes_per_s, struct hone_error *e)
{
    float *x = calloc(3 * LARGE, sizeof *x), *both[2] = {x, x ? x + LARGE : NULL};
    double small = 0, large = 0;
    if (!x && !comm_error(c)->code)
        comm_abort(c, HONE_ERESOURCE, "no memory to measure a link");
    int rc = x ? time_size(c, both, x + 2 * LARGE, SMALL, &small) : HONE_ERESOURCE;
    if (!rc)
        rc = time_size(c, both, x + 2 * LARGE, LARGE, &large);
    int settled = comm_settle(c, "link"); /* x is about to go */
    free(x);
    if (rc || settled)
        return err_set(e, comm_error(c)->code, "link: %s", comm_error(c)->message);
    *latency_ns = small;
    *bytes_per_s = large > small ? (comm_size(c) - 1) * (double)(LARGE - SMALL) * sizeof(float) / (large - small) * 1e9 : 1e12;
    return 0;
}
