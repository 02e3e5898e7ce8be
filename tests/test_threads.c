/* test_threads.c: the pool under every size and poll setting: each run visits every thread once, barriers keep threads in step. */
#include "test.h"

#include "base/threads.h"

#include <stdatomic.h>

enum { ROUNDS = 200, STEPS = 20 };

struct state {
    struct pool *pool;
    atomic_int visits[8];
    atomic_int step_sum[STEPS];
    atomic_int out_of_step;
};

static void visit(void *arg, int ith, int nth)
{
    struct state *s = arg;
    atomic_fetch_add(&s->visits[ith], 1);
    for (int i = 0; i < STEPS; i++) {
        atomic_fetch_add(&s->step_sum[i], 1);
        pool_barrier(s->pool);
        if (atomic_load(&s->step_sum[i]) % nth)
            atomic_store(&s->out_of_step, 1);
        pool_barrier(s->pool);
    }
}

static void test_pool(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 7; n++)
        for (int poll = 0; poll <= 2; poll += 2) {
            struct hone_error e = {0};
            struct state s = {.pool = pool_create(n, poll, &e)};
            assert_non_null(s.pool);
            int rounds = n > 2 ? ROUNDS / 10 : ROUNDS; /* more threads than cores meet slowly */
            for (int i = 0; i < rounds; i++)
                pool_run(s.pool, visit, &s);
            for (int i = 0; i < n; i++)
                assert_int_equal(atomic_load(&s.visits[i]), rounds);
            assert_int_equal(atomic_load(&s.step_sum[STEPS - 1]), rounds * n);
            assert_int_equal(atomic_load(&s.out_of_step), 0);
            pool_free(s.pool);
        }
}

static void test_pool_refusals(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    assert_null(pool_create(0, 0, &e));
    assert_int_equal(e.code, HONE_EUSAGE);
    e.code = 0;
    assert_null(pool_create(2, 101, &e));
    assert_int_equal(e.code, HONE_EUSAGE);
}

static void test_ranges(void **unused)
{
    (void)unused;
    for (int nth = 1; nth < 9; nth++)
        for (int64_t n = 0; n < 70; n++)
            for (int64_t grain = 1; grain <= 16; grain *= 4) {
                int64_t next = 0;
                for (int ith = 0; ith < nth; ith++) {
                    int64_t lo, hi;
                    worker_range(&(struct worker){.ith = ith, .nth = nth}, n, grain, &lo, &hi);
                    assert_true(lo == next && hi >= lo && (lo % grain == 0 || lo == n));
                    next = hi;
                }
                assert_true(next == n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_refusals),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
