/* test_comm.c: ranks that meet: the sums of every group size against the host's, the same bits on every repeat, ranks of
 * several threads, parts of different sizes, and what happens when a rank is late, leaves, gives up or stands at another node.
 */
#include "test.h"

#include "base/clock.h"
#include "base/rng.h"
#include "comm/comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HONE_SANITIZED
enum { REPEATS = 3, MOST_RANKS = 4 };
#else
enum { REPEATS = 20, MOST_RANKS = 8 };
#endif

/* ---- a rank is a thread */

struct member {
    struct comm *comm;
    void (*run)(struct member *m);
    int rank, size;
    struct pool *pool;
    int rc;
    uint64_t sum; /* what the rank saw, in one number */
    const void *arg;
};

static void *member_main(void *arg)
{
    struct member *m = arg;
    m->run(m);
    return NULL;
}

static void meet(struct member *members, int size, const struct comm_params *p, void (*run)(struct member *), const void *arg)
{
    struct comm *ends[COMM_MAX_RANKS];
    struct hone_error e = {0};
    pthread_t threads[COMM_MAX_RANKS];
    assert_int_equal(comm_local_create(ends, size, p, &e), 0);
    for (int r = 0; r < size; r++)
        members[r] = (struct member){.comm = ends[r], .run = run, .rank = r, .size = size, .arg = arg};
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

static const struct comm_params plain = {.n_workers = 1, .poll = 1, .limit_ms = 20000};

/* ---- sums */

static const int64_t sizes[] = {1, 3, 63, 64, 65, 576, 1001, 5120, 20001};
enum { N_SIZES = sizeof sizes / sizeof *sizes, LARGEST = 20001 };

static void fill(float *x, int64_t n, int rank, int repeat)
{
    struct rng r = rng_seed((uint64_t)n * 64 + (uint64_t)rank + 1000000u * (uint64_t)repeat);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&r) * (rng_below(&r, 8) ? 1.0f : 1e5f);
}

static uint64_t mixed(uint64_t h, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

static void sums(struct member *m)
{
    float *own[2], *sum = malloc(LARGEST * sizeof *sum), *want = malloc(LARGEST * sizeof *want),
                   *x = malloc(LARGEST * sizeof *x);
    own[0] = malloc(LARGEST * sizeof **own);
    own[1] = malloc(LARGEST * sizeof **own);
    for (int i = 0; i < N_SIZES && !m->rc; i++)
        for (int turn = 0; turn < 4 && !m->rc; turn++) { /* two buffers take turns, as the contract allows */
            int64_t n = sizes[i];
            fill(own[turn & 1], n, m->rank, turn);
            m->rc = comm_all_reduce(m->comm, NULL, own[turn & 1], sum, n, "sums");
            for (int r = 0; r < m->size; r++) {
                fill(x, n, r, turn);
                for (int64_t j = 0; j < n; j++)
                    want[j] = r ? want[j] + x[j] : x[j];
            }
            if (!m->rc && memcmp(sum, want, (size_t)n * sizeof *sum))
                m->rc = HONE_ECHECK;
            m->sum = mixed(m->sum, sum, n);
        }
    comm_settle(m->comm, "the end"); /* before the buffers go */
    free(own[0]);
    free(own[1]);
    free(sum);
    free(want);
    free(x);
    comm_free(m->comm);
}

static void test_sums(void **unused)
{
    (void)unused;
    struct member members[MOST_RANKS];
    for (int size = 1; size <= MOST_RANKS; size++) {
        uint64_t first = 0;
        for (int repeat = 0; repeat < (size < 5 ? REPEATS : 2); repeat++) {
            meet(members, size, &plain, sums, NULL);
            for (int r = 0; r < size; r++) {
                assert_int_equal(members[r].rc, 0);
                first = first ? first : members[r].sum;
                assert_true(members[r].sum == first); /* the same bits on every rank and every repeat */
            }
        }
    }
}

/* ---- ranks of several threads */

enum { WIDTH = 5003, ROUNDS = 40 };

struct crew {
    struct member *m;
    float own[2][WIDTH], sum[WIDTH];
    atomic_int rc;
};

static void crew_worker(void *arg, int ith, int nth)
{
    struct crew *c = arg;
    struct worker w = {.ith = ith, .nth = nth, .pool = c->m->pool, .comm = c->m->comm};
    for (int i = 0; i < ROUNDS; i++) {
        int64_t lo, hi;
        worker_range(&w, WIDTH, 1, &lo, &hi);
        for (int64_t j = lo; j < hi; j++)
            c->own[i & 1][j] = (float)((j + i) % 97) + (float)c->m->rank;
        worker_barrier(&w);
        int rc = 0;
        if (i % 5 == 4) { /* now and then one thread for all */
            if (ith == 0)
                rc = comm_all_reduce(c->m->comm, NULL, c->own[i & 1], c->sum, WIDTH, "alone");
        } else {
            rc = comm_all_reduce(c->m->comm, &w, c->own[i & 1], c->sum, WIDTH, "together");
        }
        worker_barrier(&w);
        for (int64_t j = lo; j < hi && !rc; j++) {
            float want = (float)(c->m->size * ((j + i) % 97)) + (float)(c->m->size * (c->m->size - 1) / 2);
            if (c->sum[j] != want)
                rc = HONE_ECHECK;
        }
        if (rc)
            atomic_store(&c->rc, rc);
        worker_barrier(&w);
    }
}

static void crews(struct member *m)
{
    struct hone_error e = {0};
    struct crew *c = calloc(1, sizeof *c);
    m->pool = pool_create(1 + m->rank % 3, 1, &e); /* ranks of 1, 2 and 3 threads */
    c->m = m;
    pool_run(m->pool, crew_worker, c);
    m->rc = atomic_load(&c->rc);
    comm_settle(m->comm, "the end");
    pool_free(m->pool);
    free(c);
    comm_free(m->comm);
}

static void test_crews(void **unused)
{
    (void)unused;
    struct member members[3];
    struct comm_params p = {.n_workers = 3, .poll = 1, .limit_ms = 20000};
    for (int size = 2; size <= 3; size++) {
        meet(members, size, &p, crews, NULL);
        for (int r = 0; r < size; r++)
            assert_int_equal(members[r].rc, 0);
    }
}

/* ---- gather, broadcast, agreement, the self-test */

static void others(struct member *m)
{
    struct hone_error e = {0};
    int32_t part[8], all[64], word = m->rank == m->size - 1 ? 4711 : 0;
    size_t n = (size_t)m->rank % 3, total = 0; /* parts of 0, 1 and 2 numbers */
    uint64_t bits = (uint64_t)1 << m->rank;
    for (int r = 0; r < m->size; r++)
        total += (size_t)r % 3;
    for (size_t i = 0; i < n; i++)
        part[i] = 100 * m->rank + (int32_t)i;
    m->rc = comm_self_test(m->comm, &e);
    m->rc = m->rc ? m->rc : comm_all_gather(m->comm, NULL, part, n * sizeof *part, all, total * sizeof *all, "gather");
    size_t at = 0;
    for (int r = 0; r < m->size && !m->rc; r++)
        for (size_t i = 0; i < (size_t)r % 3; i++)
            m->rc = all[at++] == 100 * r + (int32_t)i ? m->rc : HONE_ECHECK;
    m->rc = m->rc ? m->rc : comm_broadcast(m->comm, NULL, &word, sizeof word, m->size - 1, "broadcast");
    m->rc = m->rc ? m->rc : comm_agree(m->comm, &bits, "agree");
    m->rc = m->rc ? m->rc : comm_same(m->comm, 7, "same");
    m->rc = m->rc ? m->rc : comm_barrier(m->comm, NULL, "barrier");
    if (!m->rc && (word != 4711 || bits != ((uint64_t)1 << m->size) - 1))
        m->rc = HONE_ECHECK;
    comm_settle(m->comm, "the end");
    comm_free(m->comm);
}

static void test_others(void **unused)
{
    (void)unused;
    struct member members[MOST_RANKS];
    for (int size = 1; size <= 4; size++) {
        meet(members, size, &plain, others, NULL);
        for (int r = 0; r < size; r++)
            assert_int_equal(members[r].rc, 0);
    }
}

/* ---- what goes wrong */

struct mishap {
    const char *name;
    void (*run)(struct member *m); /* what rank 1 does instead of its second collective */
    int code;
    const char *message; /* what the others are told */
};

static char told[MOST_RANKS][sizeof(struct hone_error)];

static void is_late(struct member *m)
{
    struct timespec while_others_give_up = {0, 600000000};
    nanosleep(&while_others_give_up, NULL);
    (void)m;
}

static void gives_up(struct member *m)
{
    comm_abort(m->comm, HONE_ERESOURCE, "no memory for anything");
}

/* Not on a stack: a rank that fails ends while others may still read what it brought. */
static const float brought[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static void is_elsewhere(struct member *m)
{
    float sum[7];
    m->rc = comm_all_reduce(m->comm, NULL, brought, sum, 7, "elsewhere");
}

static void differs(struct member *m)
{
    m->rc = comm_same(m->comm, 8, "the plan");
}

static void does_the_same(struct member *m)
{
    m->rc = comm_same(m->comm, 7, "the plan");
}

static void meets_mishap(struct member *m)
{
    const struct mishap *mishap = m->arg;
    float sum[5];
    m->rc = comm_all_reduce(m->comm, NULL, brought, sum, 5, "attn_output-0");
    if (!m->rc && m->rank == 1)
        mishap->run(m);
    else if (!m->rc && mishap->run == differs)
        does_the_same(m);
    else if (!m->rc)
        m->rc = comm_all_reduce(m->comm, NULL, brought, sum, 5, "ffn_out-0");
    snprintf(told[m->rank], sizeof told[m->rank], "%s", comm_error(m->comm)->message);
    comm_free(m->comm);
}

static void test_mishaps(void **unused)
{
    (void)unused;
    static const struct mishap mishaps[] = {
        {"late", is_late, HONE_ERESOURCE, "waited 0.2 s at ffn_out-0 for rank 1, which is 1 collective behind"},
        {"gives up", gives_up, HONE_ERESOURCE, "rank 1 gave up: no memory for anything"},
        {"elsewhere", is_elsewhere, HONE_EFAULT, "the ranks are not at the same node"},
        {"differs", differs, HONE_ECHECK, "the plan: rank"},
    };
    struct comm_params p = {.n_workers = 1, .poll = 1, .limit_ms = 200};
    struct member members[3];
    for (size_t i = 0; i < sizeof mishaps / sizeof *mishaps; i++) {
        int64_t start = clock_ns();
        meet(members, 3, &p, meets_mishap, &mishaps[i]);
        for (int r = 0; r < 3; r++) {
            if (r == 1 && members[r].rc == 0)
                continue; /* it did not call again */
            assert_int_equal(members[r].rc, mishaps[i].code);
            if (!strstr(told[r], mishaps[i].message))
                fail_msg("%s: rank %d was told '%s'", mishaps[i].name, r, told[r]);
        }
        assert_true(clock_ns() - start < 5000000000); /* nobody hangs */
    }
}

static void one_leaves(struct member *m)
{
    float sum[5];
    m->rc = comm_all_reduce(m->comm, NULL, brought, sum, 5, "attn_output-0");
    int settled = comm_settle(m->comm, "the end");
    if (m->rank != 1 && !settled)
        m->rc = comm_all_reduce(m->comm, NULL, brought, sum, 5, "ffn_out-0");
    snprintf(told[m->rank], sizeof told[m->rank], "%s", comm_error(m->comm)->message);
    comm_free(m->comm);
}

static void test_leaving(void **unused)
{
    (void)unused;
    struct member members[3];
    int64_t start = clock_ns();
    meet(members, 3, &plain, one_leaves, NULL);
    assert_int_equal(members[1].rc, 0);
    assert_int_equal(members[0].rc, HONE_EFAULT);
    assert_int_equal(members[2].rc, HONE_EFAULT);
    assert_non_null(strstr(told[0], "for rank 1, which has left"));
    assert_true(clock_ns() - start < 5000000000); /* long before the limit */
}

static void test_refusals(void **unused)
{
    (void)unused;
    struct comm *ends[4];
    struct hone_error e = {0};
    assert_int_equal(comm_local_create(ends, 0, &plain, &e), HONE_EUSAGE);
    e.code = 0;
    assert_int_equal(comm_local_create(ends, COMM_MAX_RANKS + 1, &plain, &e), HONE_EUSAGE);
    e.code = 0;
    assert_int_equal(comm_local_create(ends, 2, &(struct comm_params){.limit_ms = -1}, &e), HONE_EUSAGE);
    e.code = 0;
    assert_int_equal(comm_local_create(ends, 2, &(struct comm_params){.poll = 101}, &e), HONE_EUSAGE);
    e.code = 0;
    assert_int_equal(comm_mpi_create(ends, &plain, &e), HONE_EUSAGE); /* not built in, or not started by mpirun */
    assert_non_null(strstr(e.message, comm_mpi_built() ? "mpirun" : "build again"));
}

/* ---- the made-up group, and the counts */

static void test_rehearsal(void **unused)
{
    (void)unused;
    struct comm *c;
    struct hone_error e = {0};
    struct worker w = {.ith = 0, .nth = 1};
    float x[100] = {0}, one[100], again[100], more[100];
    assert_int_equal(comm_rehearsal_create(&c, 3, &plain, &e), 0);
    assert_int_equal(comm_all_reduce(c, &w, x, one, 10, "few"), 0);
    assert_int_equal(comm_all_reduce(c, &w, x, more, 100, "more"), 0);
    assert_int_equal(comm_all_reduce(c, &w, x, again, 10, "few"), 0);
    assert_memory_equal(one, again, 10 * sizeof *one); /* the others bring the same each time, */
    assert_memory_equal(one, more, 10 * sizeof *one);
    x[3] = 5;
    assert_int_equal(comm_all_reduce(c, &w, x, again, 10, "few"), 0);
    assert_int_equal(comm_all_reduce(c, NULL, x, more, 100, "what is said between steps does not count"), 0);
    assert_true(again[3] != one[3] && again[4] == one[4]); /* and this rank its own */
    struct comm_counts n = comm_counts(c);
    assert_int_equal(n.collectives, 4);
    assert_int_equal(n.bytes, (10 + 100 + 10 + 10) * 4);
    assert_int_equal(comm_self_test(c, &e), HONE_ECHECK); /* they bring something else than the test expects */
    assert_string_equal(e.message, "rehearsal: self-test, 1 values: rank 0 gave up: the self-test's sum differs from the sum on the host");
    comm_free(c);
}

static void timed(struct member *m)
{
    float x[4] = {0}, sum[4];
    struct timespec late = {0, 50000000};
    struct worker w = {.ith = 0, .nth = 1};
    comm_set_timed(m->comm, true);
    if (m->rank == 1)
        nanosleep(&late, NULL);
    m->rc = comm_all_reduce(m->comm, &w, x, sum, 4, "timed");
    m->sum = (uint64_t)comm_counts(m->comm).wait_ns;
    comm_settle(m->comm, "the end");
    comm_free(m->comm);
}

static void test_timed(void **unused)
{
    (void)unused;
    struct member members[2];
    meet(members, 2, &plain, timed, NULL);
    assert_int_equal(members[0].rc, 0);
    assert_true(members[0].sum > 20000000); /* rank 0 waited for rank 1, which came late */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),      cmocka_unit_test(test_crews),   cmocka_unit_test(test_others),
        cmocka_unit_test(test_mishaps),   cmocka_unit_test(test_leaving), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_rehearsal), cmocka_unit_test(test_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
