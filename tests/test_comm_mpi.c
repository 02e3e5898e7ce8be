/* test_comm_mpi.c: a rank for tests/mpi_test.sh, which starts several under mpirun and looks at what they print and how they
 * end. Called by itself it tests what a process can know without mpirun.
 *
 *   test_comm_mpi sums [RANKS]      sums of all sizes, five times; prints one number that stands for all bits. With RANKS:
 * threads instead of processes test_comm_mpi hang|die|leave|differ RANK   that rank stops, is killed, exits, or brings another
 * size at the third collective */
#include "test.h"

#include "base/rng.h"
#include "comm/comm.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 5, LARGEST = 70001, LIMIT_MS = 2000 };

struct rank {
    struct comm *comm;
    uint64_t bits;
    int rc;
};

static void *sums(void *arg)
{
    static const int64_t sizes[] = {1, 7, 64, 1001, 5120, 16384, 16385, LARGEST};
    struct rank *r = arg;
    struct hone_error e = {0};
    float *x = malloc(2 * LARGEST * sizeof *x), *sum = x + LARGEST;
    r->bits = 14695981039346656037u;
    r->rc = comm_self_test(r->comm, &e);
    for (int repeat = 0; repeat < REPEATS && !r->rc; repeat++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !r->rc; i++) {
            struct rng rng = rng_seed((uint64_t)comm_rank(r->comm) * 100 + i);
            for (int64_t j = 0; j < sizes[i]; j++)
                x[j] = (float)rng_normal(&rng);
            r->rc = comm_all_reduce(r->comm, NULL, x, sum, sizes[i], "sums");
            for (int64_t j = 0; j < sizes[i] && !r->rc; j++) {
                uint32_t word;
                memcpy(&word, &sum[j], sizeof word);
                r->bits = (r->bits ^ word) * 1099511628211u;
            }
            int settled = comm_settle(r->comm, "sums"); /* x is written next */
            r->rc = r->rc ? r->rc : settled;
        }
    free(x);
    return NULL;
}

static int sums_of_threads(int n)
{
    struct comm_params p = {.n_workers = 1, .poll = 1};
    struct comm *ends[16];
    struct rank ranks[16] = {{0}};
    pthread_t threads[16];
    struct hone_error e = {0};
    if (n < 1 || n > 16 || comm_local_create(ends, n, &p, &e))
        return 2;
    for (int i = 0; i < n; i++) {
        ranks[i].comm = ends[i];
        pthread_create(&threads[i], NULL, sums, &ranks[i]);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++) {
        comm_free(ends[i]);
        if (ranks[i].rc || ranks[i].bits != ranks[0].bits)
            return 1;
    }
    printf("bits %016llx\n", (unsigned long long)ranks[0].bits);
    return 0;
}

static int fail_over_mpi(struct comm *c, const char *what, int who)
{
    float x[5120] = {1}, sum[5120];
    int rc = 0;
    for (int i = 0; i < 5 && !rc; i++) {
        int64_t n = 5120;
        if (i == 3 && comm_rank(c) == who) {
            if (!strcmp(what, "hang"))
                raise(SIGSTOP);
            else if (!strcmp(what, "die"))
                raise(SIGKILL);
            else if (!strcmp(what, "leave"))
                _exit(3);
            else if (!strcmp(what, "differ"))
                n = 7;
        }
        rc = comm_all_reduce(c, NULL, x, sum, n, "ffn_down-3");
    }
    return rc;
}

static int rank_main(int argc, char **argv)
{
    struct comm_params p = {.n_workers = 1, .poll = 1, .limit_ms = LIMIT_MS};
    struct rank r = {0};
    struct hone_error e = {0};
    if (!strcmp(argv[1], "sums") && argc > 2)
        return sums_of_threads(atoi(argv[2]));
    int rc = comm_mpi_create(&r.comm, &p, &e);
    if (rc) {
        fprintf(stderr, "%s\n", e.message);
        return -rc;
    }
    if (!strcmp(argv[1], "sums")) {
        sums(&r);
        rc = r.rc;
        if (!rc)
            rc = comm_same(r.comm, r.bits, "the sums' bits");
        if (!rc && comm_rank(r.comm) == 0)
            printf("bits %016llx\n", (unsigned long long)r.bits);
    } else {
        rc = fail_over_mpi(r.comm, argv[1], argc > 2 ? atoi(argv[2]) : 0);
    }
    if (rc)
        fprintf(stderr, "error: %s\n", comm_error(r.comm)->message);
    fflush(stdout);
    comm_free(r.comm);
    return -rc;
}

static void test_alone(void **unused)
{
    (void)unused;
    struct comm *c;
    struct comm_params p = {.n_workers = 1};
    struct hone_error e = {0};
    assert_int_equal(comm_mpi_create(&c, &p, &e), HONE_EUSAGE);
    assert_null(c);
    assert_non_null(strstr(e.message, comm_mpi_built() ? "not started by mpirun" : "this build has no MPI"));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return rank_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
