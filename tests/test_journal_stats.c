/* test_journal_stats.c: what the journal computes of its samples: the shift between two runs (against all differences and all
 * arrangements, listed) and change points (against energy distances summed plainly; rates of false alarms and of hits by
 * simulation). */
#include "tests/test.h"

#include "base/rng.h"
#include "lab/changepoint.h"
#include "lab/shift.h"
#include "lab/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shift */

static void test_shift_known(void **state)
{
    (void)state;
    /* 4 and 5 samples: P(U <= 0) = 1/126, P(U <= 1) = 2/126, P(U <= 2) = 4/126: at 95 % c is 2, at 99 % none is low enough. */
    double a[] = {1, 2, 4, 8}, b[] = {3, 5, 9, 10, 20};
    struct shift s;
    assert_int_equal(shift_make(&s, a, 4, b, 5, 0.95, NULL), 0);
    double d[20];
    size_t n = 0;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++)
            d[n++] = b[k] - a[i];
    stats_sort(d, n);
    assert_true(s.estimate == (d[9] + d[10]) / 2);
    assert_true(s.lo == d[1] && s.hi == d[18]);
    assert_int_equal(shift_make(&s, a, 4, b, 5, 0.99, NULL), 0);
    assert_true(isinf(s.lo) && isinf(s.hi));
}

/* With one more arrangement outside, the interval of 10 and 10 at 99 % would not be one: the table value of Mann and Whitney is
 * U = 16. */
static void test_shift_table(void **state)
{
    (void)state;
    double a[10], b[10], d[100];
    struct rng r = rng_seed(7);
    for (int i = 0; i < 10; i++) {
        a[i] = rng_normal(&r);
        b[i] = rng_normal(&r) + 1;
    }
    struct shift s;
    assert_int_equal(shift_make(&s, a, 10, b, 10, 0.99, NULL), 0);
    for (int i = 0; i < 100; i++)
        d[i] = b[i % 10] - a[i / 10];
    stats_sort(d, 100);
    assert_true(s.lo == d[16] && s.hi == d[100 - 17]);
}

static void test_shift_coverage(void **state)
{
    (void)state;
    struct rng r = rng_seed(11);
    int missed = 0;
    enum { TRIALS = 2000 };
    for (int t = 0; t < TRIALS; t++) {
        double a[12], b[9];
        for (int i = 0; i < 12; i++) /* heavy tails on one side, as times have */
            a[i] = exp(rng_normal(&r));
        for (int i = 0; i < 9; i++)
            b[i] = exp(rng_normal(&r)) + 0.7;
        struct shift s;
        assert_int_equal(shift_make(&s, a, 12, b, 9, 0.9, NULL), 0);
        missed += s.lo > 0.7 || s.hi < 0.7;
    }
    printf("shift: a 90 %% interval missed in %.1f %% of %d\n", 100.0 * missed / TRIALS, TRIALS);
    assert_in_range(missed, TRIALS / 20, TRIALS / 8);
}

static void test_shift_large(void **state)
{
    (void)state;
    enum { N = 100000 };
    double *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    struct rng r = rng_seed(3);
    for (int i = 0; i < N; i++) {
        a[i] = rng_normal(&r);
        b[i] = rng_normal(&r) + 0.05;
    }
    struct shift s;
    assert_int_equal(shift_make(&s, a, N, b, N, 0.99, NULL), 0);
    assert_true(fabs(s.estimate - 0.05) < 0.015 && s.lo < 0.05 && s.hi > 0.05 && s.hi - s.lo < 0.03);
    free(a);
    free(b);
}

/* ---- change points */

/* The statistic as Matteson and James write it. */
static double plain(const double *x, size_t n, size_t at)
{
    double a = 0, b = 0, c = 0, m = (double)at, k = (double)(n - at);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            *(j < at ? &a : i >= at ? &b : &c) += fabs(x[i] - x[j]);
    return m * k / (m + k) * (2 / (m * k) * c - 2 / (m * (m - 1)) * a - 2 / (k * (k - 1)) * b);
}

static void test_cut_is_the_plain_one(void **state)
{
    (void)state;
    struct rng r = rng_seed(5);
    for (int t = 0; t < 50; t++) {
        double x[40];
        size_t n = 12 + (size_t)rng_below(&r, 28), change = 4 + (size_t)rng_below(&r, n - 8), best = 0, found;
        for (size_t i = 0; i < n; i++)
            x[i] = 100 + (i >= change ? 5 : 0) + floor(4 * rng_normal(&r)) / 8; /* with ties */
        for (size_t at = CHANGEPOINT_MIN; at + CHANGEPOINT_MIN <= n; at++)
            if (!best || plain(x, n, at) > plain(x, n, best))
                best = at;
        struct changepoint *list;
        assert_int_equal(changepoint_find(x, n, 0.05, &list, &found, NULL), 0);
        bool there = false;
        for (size_t i = 0; i < found; i++)
            there |= list[i].at == best;
        assert_true(there);
        assert_int_equal(best, change);
        free(list);
    }
}

/* The share of histories of n without a change in which one is found; rho: how much each figure takes from the one before. */
static double false_alarms(size_t n, double rho, bool outliers, double alpha, int trials)
{
    struct rng r = rng_seed(17 + n);
    int alarms = 0;
    double *x = malloc(n * sizeof *x);
    for (int t = 0; t < trials; t++) {
        double before = 0;
        for (size_t i = 0; i < n; i++) {
            before = rho * before + sqrt(1 - rho * rho) * rng_normal(&r);
            x[i] = 400 + before - (outliers && rng_uniform(&r) < 0.05 ? 40 : 0);
        }
        struct changepoint *list;
        size_t found;
        assert_int_equal(changepoint_find(x, n, alpha, &list, &found, NULL), 0);
        alarms += found > 0;
        free(list);
    }
    free(x);
    return (double)alarms / trials;
}

static void test_false_alarms(void **state)
{
    (void)state;
    double plain_rate = false_alarms(30, 0, false, 0.05, 1000), long_rate = false_alarms(200, 0, false, 0.05, 200),
           wild = false_alarms(30, 0, true, 0.05, 1000), near = false_alarms(30, 0.5, false, 0.05, 300);
    printf("change points: alpha 5 %%, no change: found in %.1f %% of histories of 30, %.1f %% of 200, %.1f %% with 5 %% "
           "outliers; "
           "%.1f %% where neighbours correlate by 0.5\n",
           100 * plain_rate, 100 * long_rate, 100 * wild, 100 * near);
    assert_true(plain_rate < 0.08 && long_rate < 0.1 && wild < 0.08); /* 5 % and four standard errors */
    assert_true(plain_rate > 0.02); /* a test that never finds anything would pass the lines above */
}

static void test_hits(void **state)
{
    (void)state;
    struct rng r = rng_seed(23);
    int last_two = 0, small = 0, place = 0;
    enum { TRIALS = 200 };
    for (int t = 0; t < TRIALS; t++) {
        double x[40];
        struct changepoint *list;
        size_t found;
        for (size_t i = 0; i < 30; i++)
            x[i] = 400 * (1 + 0.002 * rng_normal(&r)) * (i >= 28 ? 0.97 : 1);
        assert_int_equal(changepoint_find(x, 30, 0.01, &list, &found, NULL), 0);
        last_two += found == 1 && list[0].at == 28 && list[0].after < list[0].before;
        free(list);
        for (size_t i = 0; i < 40; i++)
            x[i] = 400 * (1 + 0.002 * rng_normal(&r)) * (i >= 20 ? 0.996 : 1);
        assert_int_equal(changepoint_find(x, 40, 0.01, &list, &found, NULL), 0);
        small += found >= 1;
        place += found >= 1 && list[0].at >= 18 && list[0].at <= 22;
        free(list);
    }
    printf("change points: 3 %% down in the last 2 of 30 at 0.2 %% noise: found in %d of %d; 0.4 %% down in the middle of 40: "
           "%d, placed within 2: %d\n",
           last_two, TRIALS, small, place);
    assert_true(last_two >= TRIALS * 95 / 100 && small >= TRIALS * 9 / 10 && place >= TRIALS * 8 / 10);
}

static void test_several_changes(void **state)
{
    (void)state;
    struct rng r = rng_seed(29);
    double x[60];
    for (size_t i = 0; i < 60; i++)
        x[i] = (i < 20 ? 100 : i < 40 ? 110 : 105) + rng_normal(&r);
    struct changepoint *list;
    size_t found;
    assert_int_equal(changepoint_find(x, 60, 0.01, &list, &found, NULL), 0);
    assert_int_equal(found, 2);
    assert_int_equal(list[0].at, 20);
    assert_int_equal(list[1].at, 40);
    assert_true(fabs(list[0].before - 100) < 1 && fabs(list[0].after - 110) < 1 && list[1].before == list[0].after &&
                list[1].p <= 0.01);
    free(list);
}

static void test_nothing_to_cut(void **state)
{
    (void)state;
    double same[50], few[] = {1, 2, 3, 100};
    struct changepoint *list;
    size_t found;
    for (int i = 0; i < 50; i++)
        same[i] = 412.125;
    assert_int_equal(changepoint_find(same, 50, 0.01, &list, &found, NULL), 0);
    assert_int_equal(found, 0);
    free(list);
    assert_int_equal(changepoint_find(few, 4, 0.01, &list, &found, NULL), 0);
    assert_int_equal(found, 0);
    free(list);
    assert_int_equal(changepoint_find(few, 0, 0.01, &list, &found, NULL), 0);
    free(list);
    few[2] = NAN;
    struct hone_error e = {0};
    assert_int_equal(changepoint_find(few, 4, 0.01, &list, &found, &e), HONE_EINPUT);
    assert_null(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_known), cmocka_unit_test(test_shift_table),          cmocka_unit_test(test_shift_coverage),
        cmocka_unit_test(test_shift_large), cmocka_unit_test(test_cut_is_the_plain_one), cmocka_unit_test(test_false_alarms),
        cmocka_unit_test(test_hits),        cmocka_unit_test(test_several_changes),      cmocka_unit_test(test_nothing_to_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
