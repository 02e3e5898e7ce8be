/* collectives.c: what one all_reduce costs, for bench/collectives.sh: hone's between threads, hone's over MPI, and
 * MPI_Allreduce.
 *
 *   collectives local RANKS BYTES RUNS      ranks are threads
 *   mpirun -np RANKS collectives mpi|MPI_Allreduce BYTES RUNS
 *
 * Each run writes the part anew, meets the others, and takes the time of one sum on every rank; a run's time is that of its
 * slowest rank. Prints the median over the runs in ns. All three
 * write, meet and time alike, and each thread stays on a processor of its own, as mpirun's processes do. */
#include "base/clock.h"
#include "comm/comm.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HONE_MPI
#include <mpi.h>
#endif

struct rank {
    _Alignas(64) struct comm *comm; /* ranks write rc while others run: each has its own lines */
    int processor;                  /* to stay on; -1: mpirun says where */
    int64_t n;
    int runs, rc;
    bool theirs; /* MPI_Allreduce */
    double *ns;  /* of each run */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int sum_once(const struct rank *r, const float *x, float *sum)
{
#ifdef HONE_MPI
    if (r->theirs)
        return MPI_Allreduce(x, sum, (int)r->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : HONE_EFAULT;
#endif
    return comm_all_reduce(r->comm, NULL, x, sum, r->n, "bench");
}

static int meet(const struct rank *r)
{
#ifdef HONE_MPI
    if (r->theirs)
        return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : HONE_EFAULT;
#endif
    return comm_barrier(r->comm, NULL, "bench");
}

/* On the n-th of the processors that this process may use; on any where there are fewer. */
static void stay(int n)
{
    cpu_set_t mine, one;
    CPU_ZERO(&one);
    if (n < 0 || sched_getaffinity(0, sizeof mine, &mine))
        return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mine) && n-- == 0) {
            CPU_SET(i, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        }
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    stay(r->processor);
    float *room = aligned_alloc(64, ((size_t)r->n * 3 * sizeof(float) + 191) / 64 * 64), *x[2] = {room, room + r->n},
          *sum = room + 2 * r->n;
    r->rc = room ? 0 : HONE_ERESOURCE;
    for (int i = -r->runs / 10; i < r->runs && !r->rc; i++) { /* a tenth more to warm up */
        float *mine = x[i & 1];
        for (int64_t j = 0; j < r->n; j++)
            mine[j] = (float)(j + i);
        r->rc = meet(r);
        int64_t start = clock_ns();
        if (!r->rc)
            r->rc = sum_once(r, mine, sum);
        if (i >= 0)
            r->ns[i] = (double)(clock_ns() - start);
    }
    if (!r->rc && meet(r)) /* the room may be read until then */
        r->rc = HONE_EFAULT;
    free(room);
    return NULL;
}

/* all: [rank][run] */
static void report(const double *all, int ranks, int runs)
{
    double *slowest = calloc((size_t)runs, sizeof *slowest);
    for (int i = 0; i < runs && slowest; i++)
        for (int r = 0; r < ranks; r++)
            slowest[i] =
                all[(size_t)r * (size_t)runs + (size_t)i] > slowest[i] ? all[(size_t)r * (size_t)runs + (size_t)i] : slowest[i];
    if (!slowest)
        return;
    qsort(slowest, (size_t)runs, sizeof *slowest, by_value);
    printf("%.0f\n", slowest[runs / 2]);
    free(slowest);
}

static int local(int ranks, int64_t n, int runs)
{
    struct comm_params p = {.n_workers = 1, .poll = 100};
    struct comm *ends[COMM_MAX_RANKS];
    struct rank *list = aligned_alloc(64, (size_t)ranks * sizeof *list);
    pthread_t *threads = calloc((size_t)ranks, sizeof *threads);
    double *all = calloc((size_t)ranks * (size_t)runs, sizeof *all);
    struct hone_error e = {0};
    int rc = list && threads && all ? comm_local_create(ends, ranks, &p, &e) : HONE_ERESOURCE;
    for (int r = 0; r < ranks && !rc; r++) {
        list[r] = (struct rank){.comm = ends[r], .processor = r, .n = n, .runs = runs, .ns = all + (size_t)r * (size_t)runs};
        rc = pthread_create(&threads[r], NULL, rank_main, &list[r]);
    }
    for (int r = 0; r < ranks && !rc; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < ranks && !rc; r++)
        rc = list[r].rc;
    for (int r = 0; r < ranks && !rc; r++)
        comm_free(ends[r]);
    if (!rc)
        report(all, ranks, runs);
    free(list);
    free(threads);
    free(all);
    return rc;
}

static int over_mpi(bool theirs, int64_t n, int runs)
{
    struct comm_params p = {.n_workers = 1, .poll = 100};
    struct comm *c;
    struct hone_error e = {0};
    if (comm_mpi_create(&c, &p, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return e.code;
    }
    int ranks = comm_size(c);
    size_t bytes = (size_t)runs * sizeof(double);
    double *own = calloc((size_t)runs, sizeof *own), *all = calloc((size_t)ranks * (size_t)runs, sizeof *all);
    struct rank r = {.comm = c, .processor = -1, .n = n, .runs = runs, .theirs = theirs, .ns = own};
    if (own && all)
        rank_main(&r);
    int rc = own && all ? r.rc : HONE_ERESOURCE;
    if (!rc)
        rc = comm_all_gather(c, NULL, own, bytes, all, (size_t)ranks * bytes, "times");
    if (!rc && comm_rank(c) == 0)
        report(all, ranks, runs);
    fflush(stdout);
    comm_free(c);
    free(own);
    free(all);
    return rc;
}

int main(int argc, char **argv)
{
    bool is_local = argc == 5 && !strcmp(argv[1], "local");
    if (!is_local && argc != 4) {
        fprintf(stderr, "usage: collectives local RANKS BYTES RUNS | collectives mpi|MPI_Allreduce BYTES RUNS\n");
        return 2;
    }
    int ranks = is_local ? atoi(argv[2]) : 1, runs = atoi(argv[argc - 1]);
    int64_t n = atoll(argv[argc - 2]) / (int64_t)sizeof(float);
    if (ranks < 1 || ranks > COMM_MAX_RANKS || runs < 1 || runs > 10000000 || n < 1 || n > 1 << 28)
        return 2;
    return is_local ? local(ranks, n, runs) != 0 : over_mpi(!strcmp(argv[1], "MPI_Allreduce"), n, runs) != 0;
}
