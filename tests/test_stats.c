/* test_stats.c: lab/stats.c, bootstrap.c and sequence.c against SciPy's values (golden/stats.py), and whether intervals hold
 * what they promise: simulations with fixed seeds, under noise that is normal, heavy-tailed, bursty and drifting. */
#include "test.h"

#include "base/rng.h"
#include "tests/golden/stats.h"
#include "lab/bootstrap.h"
#include "lab/sequence.h"
#include "lab/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
        fail_msg("%.15g, not %.15g", got, want);
}

static void test_golden_samples(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof golden_samples / sizeof *golden_samples; i++) {
        size_t n = golden_samples[i].n;
        double sorted[300];
        memcpy(sorted, golden_samples[i].x, n * sizeof *sorted);
        stats_sort(sorted, n);
        near(stats_trimmed_mean(sorted, n, 0.2), golden_samples[i].trimmed_mean);
        near(stats_trimmed_error(sorted, n, 0.2), golden_samples[i].trimmed_error);
        near(stats_signed_rank(golden_samples[i].x, n), golden_samples[i].signed_rank);
    }
}

static void test_signed_rank_edges(void **unused)
{
    (void)unused;
    double zeros[3] = {0, 0, 0}, one[1] = {2}, balanced[2] = {1, -1};
    near(stats_signed_rank(zeros, 3), 1);
    near(stats_signed_rank(zeros, 0), 1);
    near(stats_signed_rank(one, 1), 1);
    near(stats_signed_rank(balanced, 2), 1);
    double many[200];
    for (int i = 0; i < 200; i++)
        many[i] = i + 1;
    assert_true(stats_signed_rank(many, 200) > 0 && stats_signed_rank(many, 200) < 1e-58); /* 2^-199 */
}

static void test_holm(void **unused)
{
    (void)unused;
    bool got[4];
#define HOLM(k)                                                                                                                \
    stats_holm(golden_holm_p##k, (int)(sizeof golden_holm_p##k / sizeof(double)), 0.01, got);                                  \
    assert_memory_equal(got, golden_holm_r##k, sizeof golden_holm_r##k)
    HOLM(0);
    HOLM(1);
    HOLM(2);
    HOLM(3);
    HOLM(4);
#undef HOLM
    double nan[2] = {NAN, 0.001};
    stats_holm(nan, 2, 0.01, got);
    assert_false(got[0]);
}

static void test_sign_gain(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof golden_gains / sizeof *golden_gains; i++) {
        double got = sign_gain(golden_gains[i].above, golden_gains[i].n);
        assert_true(fabs(got / golden_gains[i].gain - 1) < 1e-9);
    }
    assert_true(sign_gain(0, 1000) >= 0 && isfinite(sign_gain(1000, 1000)));
}

enum noise { NORMAL, HEAVY, BURSTS, N_NOISES };

/* Centred at 0, symmetric. BURSTS: a block of four samples, one of which in twelve waits for a neighbour ten times as long as
 * all others vary. */
static double draw(enum noise kind, struct rng *r)
{
    if (kind == NORMAL)
        return rng_normal(r);
    if (kind == HEAVY) { /* Student's t with 3 degrees of freedom */
        double z = rng_normal(r), a = rng_normal(r), b = rng_normal(r), c = rng_normal(r);
        return z / sqrt((a * a + b * b + c * c) / 3);
    }
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        double x = rng_normal(r);
        if (rng_below(r, 12) == 0)
            x -= 10 * log(1 - rng_uniform(r));
        sum += i % 3 ? -x : x;
    }
    return sum / 2;
}

static void test_bootstrap_coverage(void **unused)
{
    (void)unused;
    enum { RUNS = 250, N = 16 };
    struct rng r = rng_seed(11);
    for (int kind = 0; kind < N_NOISES; kind++) {
        int held = 0;
        for (int run = 0; run < RUNS; run++) {
            double x[N];
            struct bootstrap b;
            for (int i = 0; i < N; i++)
                x[i] = draw((enum noise)kind, &r);
            assert_int_equal(bootstrap_make(&b, x, N, 0.99, (uint64_t)run, NULL), 0);
            held += b.lo <= 0 && b.hi >= 0;
            assert_true((bootstrap_p(&b, 0) <= 0.01) == (b.lo > 0 || b.hi < 0));
            bootstrap_free(&b);
        }
        print_message("noise %d: a 99 %% interval of 16 held in %d of %d runs\n", kind, held, RUNS);
        assert_in_range(held, RUNS * 98 / 100, RUNS);
    }
}

static void test_bootstrap_edges(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    struct bootstrap b;
    double x[12] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    assert_int_equal(bootstrap_make(&b, x, 7, 0.99, 1, &e), HONE_EUSAGE);
    assert_int_equal(bootstrap_make(&b, x, 12, 0.99, 1, &e), 0);
    assert_true(b.lo == 3 && b.hi == 3 && bootstrap_p(&b, 3) == 1 && bootstrap_p(&b, 2) <= 0.001);
    bootstrap_free(&b);
    for (int i = 0; i < 12; i++)
        x[i] = i * i % 7;
    double lo[2], needed[2];
    for (int i = 0; i < 2; i++) { /* the same seed, the same interval; a wider level, a wider interval */
        assert_int_equal(bootstrap_make(&b, x, 12, 0.99, 5, &e), 0);
        lo[i] = b.lo;
        needed[i] = bootstrap_needed(&b, 12, (b.hi - b.lo) / 2);
        bootstrap_free(&b);
    }
    assert_true(lo[0] == lo[1]);
    near(needed[0], 12);
    assert_int_equal(bootstrap_make(&b, x, 12, 0.9, 5, &e), 0);
    assert_true(b.lo > lo[0]);
    bootstrap_free(&b);
}

/* The share of runs in which the sequence ever leaves out the true median, looked at after every one of n samples. */
static double ever_wrong(enum noise kind, double trend, int runs, int n, uint64_t seed)
{
    struct rng r = rng_seed(seed);
    int wrong = 0;
    for (int run = 0; run < runs; run++) {
        struct always_valid s = {.alpha = 0.01};
        bool left = false;
        for (int i = 0; i < n && !left; i++) {
            double scale = 1 + trend * i; /* the machine gets noisier as the run goes on */
            assert_int_equal(always_valid_add(&s, scale * draw(kind, &r), NULL), 0);
            left = s.lo > 0 || s.hi < 0;
        }
        wrong += left;
        always_valid_free(&s);
    }
    return (double)wrong / runs;
}

static void test_sequence_holds_at_all_times(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < N_NOISES; kind++) {
        double still = ever_wrong((enum noise)kind, 0, 1000, 120, 7), growing = ever_wrong((enum noise)kind, 0.2, 1000, 120, 8);
        print_message("noise %d: the sequence was ever wrong in %.2f %% of runs, %.2f %% with growing noise\n", kind,
                      100 * still, 100 * growing);
        assert_true(still <= 0.017 && growing <= 0.017); /* 1 % and what 1000 runs may miss it by */
    }
}

static void test_sequence_decides(void **unused)
{
    (void)unused;
    struct always_valid s = {.alpha = 0.01};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(always_valid_add(&s, 1 + 0.01 * i, NULL), 0);
        assert_true(s.lo == -INFINITY && s.hi == INFINITY);
    }
    assert_int_equal(always_valid_add(&s, 5, NULL), 0);
    assert_true(s.lo == 1 && s.hi == 5); /* eleven of eleven lie above anything below 1 */
    double lo = s.lo, hi = s.hi;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(always_valid_add(&s, 1.05 + 0.0001 * (i % 10), NULL), 0);
        assert_true(s.lo >= lo && s.hi <= hi);
        lo = s.lo;
        hi = s.hi;
    }
    assert_true(lo >= 1.05 && hi <= 1.051);
    for (int i = 0; i < 2000 && s.lo <= s.hi; i++) /* the effect moves: no median fits all that was seen */
        assert_int_equal(always_valid_add(&s, 2, NULL), 0);
    assert_true(s.lo > s.hi);
    always_valid_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_samples),
        cmocka_unit_test(test_signed_rank_edges),
        cmocka_unit_test(test_holm),
        cmocka_unit_test(test_sign_gain),
        cmocka_unit_test(test_bootstrap_coverage),
        cmocka_unit_test(test_bootstrap_edges),
        cmocka_unit_test(test_sequence_holds_at_all_times),
        cmocka_unit_test(test_sequence_decides),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
