/* test_sampler.c: the sampler's distribution against shares worked out here by the definitions, its limits, ties, faults, and
 * that a seed means one sequence. */
#include "model/sampler.h"

#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct sampler_params plain(float temperature, uint64_t seed)
{
    return (struct sampler_params){.temperature = temperature, .top_p = 1, .repeat_penalty = 1, .seed = seed};
}

static struct sampler *create(const struct sampler_params *p, int32_t n)
{
    struct hone_error e = {0};
    struct sampler *s = NULL;
    if (sampler_create(&s, p, n, &e))
        fail_msg("%s", e.message);
    return s;
}

static int32_t next(struct sampler *s, const float *logits)
{
    struct hone_error e = {0};
    int32_t token = -1;
    if (sampler_next(s, logits, &token, &e))
        fail_msg("%s", e.message);
    return token;
}

/* Draws often and compares the counts with the expected shares: Pearson's chi-square, which for n - 1 degrees of freedom
 * exceeds n - 1 + 5 sqrt(2 (n - 1)) once in 100000 honest runs; the seeds are fixed, so the outcome is too. */
static void assert_distribution(const struct sampler_params *p, const float *logits, const double *shares, int32_t n)
{
    enum { DRAWS = 200000 };
    struct sampler *s = create(p, n);
    int counts[64] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = next(s, logits);
        assert_true(token >= 0 && token < n);
        counts[token]++;
    }
    double chi = 0, sum = 0;
    int kinds = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += shares[i];
        if (shares[i] == 0) {
            if (counts[i])
                fail_msg("token %d came %d times and should never", i, counts[i]);
            continue;
        }
        double expected = shares[i] * DRAWS;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        kinds++;
    }
    assert_true(fabs(sum - 1) < 1e-9);
    double limit = kinds - 1 + 5 * sqrt(2.0 * kinds);
    if (chi > limit)
        fail_msg("chi-square of %.1f for %d tokens, at most %.1f", chi, kinds, limit);
    sampler_free(s);
}

static const float six[] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.5f};

/* Shares of the tokens kept, by exp(logit / temperature). */
static void shares_of(const float *logits, const int *keep, double temperature, double *out, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += out[i] = keep[i] ? exp(logits[i] / temperature) : 0;
    for (int i = 0; i < n; i++)
        out[i] /= sum;
}

static void test_distribution(void **state)
{
    (void)state;
    double shares[6];
    int all[] = {1, 1, 1, 1, 1, 1}, three[] = {0, 1, 1, 1, 0, 0};
    struct sampler_params p = plain(1, 11);
    shares_of(six, all, 1, shares, 6);
    assert_distribution(&p, six, shares, 6);
    p = plain(0.7f, 12);
    shares_of(six, all, 0.7f, shares, 6);
    assert_distribution(&p, six, shares, 6);
    p = plain(2, 13);
    shares_of(six, all, 2, shares, 6);
    assert_distribution(&p, six, shares, 6);
    p.top_k = 3;
    shares_of(six, three, 2, shares, 6);
    assert_distribution(&p, six, shares, 6);
    p.top_k = 99; /* more than there are: all */
    shares_of(six, all, 2, shares, 6);
    assert_distribution(&p, six, shares, 6);
    /* Shares at temperature 1: 3 has 0.363 twice, 2 0.134, 1 0.049, 0.5 0.030, -1 0.007 of 0.945: in all 0.384 0.384 0.141
     * 0.052 0.031 0.007. 0.8 is reached by three of them whatever the temperature. */
    p = plain(2, 14);
    p.top_p = 0.8f;
    shares_of(six, three, 2, shares, 6);
    assert_distribution(&p, six, shares, 6);
    /* exp(-1) = 0.368 of the best's share and more: the same three; exp(-2) = 0.135 falls out at 0.2. */
    p = plain(0.5f, 15);
    p.min_p = 0.2f;
    shares_of(six, three, 0.5f, shares, 6);
    assert_distribution(&p, six, shares, 6);
}

/* A larger vocabulary, several settings at once, against the definition written plainly. */
static void test_combined(void **state)
{
    (void)state;
    enum { N = 64 };
    float logits[N];
    struct rng r = rng_seed(21);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < N; i++)
            logits[i] = (float)(2 * rng_normal(&r));
        struct sampler_params p = plain(0.5f + 0.3f * (float)round, 100 + (uint64_t)round);
        p.top_k = round % 2 ? 20 : 0;
        p.top_p = round % 3 ? 0.9f : 1;
        p.min_p = round > 2 ? 0.02f : 0;
        int keep[N] = {0}, order[N];
        for (int i = 0; i < N; i++)
            order[i] = i;
        for (int i = 0; i < N; i++) /* by falling logit */
            for (int k = i + 1; k < N; k++)
                if (logits[order[k]] > logits[order[i]]) {
                    int x = order[i];
                    order[i] = order[k];
                    order[k] = x;
                }
        int n = p.top_k ? p.top_k : N;
        double sum = 0, reached = 0, shares[N];
        for (int i = 0; i < n; i++)
            sum += exp(logits[order[i]]);
        for (int i = 0; i < n; i++) {
            double share = exp(logits[order[i]]) / sum;
            keep[order[i]] = (i == 0 || p.top_p == 1 || reached < (double)p.top_p) &&
                             exp(logits[order[i]] - logits[order[0]]) >= (double)p.min_p;
            reached += share;
        }
        shares_of(logits, keep, p.temperature, shares, N);
        assert_distribution(&p, logits, shares, N);
    }
}

static void test_greedy(void **state)
{
    (void)state;
    struct sampler_params p = plain(0, 1);
    struct sampler *s = create(&p, 6);
    assert_int_equal(next(s, six), 1); /* of two equal the lower id */
    assert_int_equal(sampler_argmax(six, 6), 1);
    sampler_free(s);
    /* One candidate is the best one, whichever setting leaves it alone. */
    struct sampler_params alone[] = {plain(1, 2), plain(1, 3), plain(1, 4), plain(1e-45f, 5), plain(1e-6f, 6)};
    alone[0].top_k = 1;
    alone[1].top_p = 0;
    alone[2].min_p = 1;
    const float five[] = {1, 2, 9, -4, 8.5f};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        s = create(&alone[i], 5);
        for (int k = 0; k < 100; k++)
            assert_int_equal(next(s, five), 2);
        sampler_free(s);
    }
    /* Equal logits are cut by id. */
    const float flat[] = {7, 7, 7, 7};
    p = plain(1, 7);
    p.top_k = 2;
    s = create(&p, 4);
    for (int k = 0; k < 100; k++)
        assert_true(next(s, flat) < 2);
    sampler_free(s);
}

static void test_infinite(void **state)
{
    (void)state;
    float inf = INFINITY;
    struct sampler_params p = plain(1, 8);
    struct sampler *s = create(&p, 4);
    const float cannot[] = {-inf, 1, -inf, 1}, must[] = {1, inf, 1e38f, -inf}, none[] = {-inf, -inf, -inf, -inf};
    for (int k = 0; k < 1000; k++) {
        assert_true(next(s, cannot) % 2 == 1);
        assert_int_equal(next(s, must), 1);
        next(s, none);
    }
    const float two[] = {inf, 0, inf, -inf};
    int first = 0;
    for (int k = 0; k < 1000; k++) {
        int32_t token = next(s, two);
        assert_true(token == 0 || token == 2);
        first += token == 0;
    }
    assert_in_range(first, 400, 600);
    sampler_free(s);
    p.temperature = 1e4f;
    p.repeat_penalty = 1e4f;
    p.repeat_last_n = 4;
    s = create(&p, 4);
    for (int i = 0; i < 4; i++)
        sampler_accept(s, i);
    const float huge[] = {3e38f, -3e38f, 0, 3e38f};
    for (int k = 0; k < 1000; k++)
        assert_true(next(s, huge) != 1);
    sampler_free(s);
}

static void test_nan(void **state)
{
    (void)state;
    const float logits[] = {1, 2, NAN, 3};
    struct sampler_params all[] = {plain(0, 1), plain(1, 1)};
    for (int i = 0; i < 2; i++) {
        struct sampler *s = create(&all[i], 4);
        struct hone_error e = {0};
        int32_t token = 77;
        assert_int_equal(sampler_next(s, logits, &token, &e), HONE_EFAULT);
        assert_non_null(strstr(e.message, "token 2"));
        assert_int_equal(token, 77);
        sampler_free(s);
    }
}

static void test_penalty(void **state)
{
    (void)state;
    struct sampler_params p = plain(0, 1);
    p.repeat_penalty = 2;
    p.repeat_last_n = 2;
    const float logits[] = {4, 3, 1.5f, -1};
    struct sampler *s = create(&p, 4);
    assert_int_equal(next(s, logits), 0);
    sampler_accept(s, 0);
    assert_int_equal(next(s, logits), 1); /* 4 / 2 < 3 */
    sampler_accept(s, 0);
    const float close[] = {4, 1.8f, 0, 0};
    assert_int_equal(next(s, close), 0); /* twice in the window, punished once: 2, not 1 */
    sampler_accept(s, 1);
    assert_int_equal(next(s, logits), 0); /* 2 1.5 1.5 -1 */
    sampler_accept(s, 2);
    sampler_accept(s, 2);
    assert_int_equal(next(s, logits), 0); /* 0 has left the window */
    sampler_accept(s, -1);
    sampler_accept(s, 4);
    sampler_accept(s, INT32_MAX); /* no tokens: ignored */
    assert_int_equal(next(s, logits), 0);
    sampler_free(s);
    /* Negative logits become more negative. */
    const float low[] = {-1, -1.5f};
    s = create(&p, 2);
    sampler_accept(s, 0);
    assert_int_equal(next(s, low), 1);
    sampler_free(s);
    /* No window: no penalty. */
    p.repeat_last_n = 0;
    s = create(&p, 4);
    sampler_accept(s, 0);
    assert_int_equal(next(s, logits), 0);
    sampler_free(s);
}

static void assert_usage(struct sampler_params p, int32_t n, const char *says)
{
    struct sampler *s = NULL;
    struct hone_error e = {0};
    assert_int_equal(sampler_create(&s, &p, n, &e), HONE_EUSAGE);
    assert_null(s);
    if (!strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
}

static void test_usage(void **state)
{
    (void)state;
    struct sampler_params d = sampler_defaults();
    assert_true(d.temperature == 0.8f && d.top_k == 40 && d.top_p == 0.95f && d.min_p == 0.05f && d.repeat_penalty == 1 &&
                d.repeat_last_n == 64);
    static const float bad[] = {-0.1f, NAN, INFINITY, -INFINITY, 1e9f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sampler_params p = d;
        p.temperature = bad[i];
        assert_usage(p, 10, "temperature");
        p = d;
        p.top_p = bad[i];
        assert_usage(p, 10, "top-p");
        p = d;
        p.min_p = bad[i];
        assert_usage(p, 10, "min-p");
        p = d;
        p.repeat_penalty = bad[i];
        assert_usage(p, 10, "repeat penalty");
    }
    struct sampler_params p = d;
    p.repeat_penalty = 0;
    assert_usage(p, 10, "repeat penalty");
    p = d;
    p.top_k = -1;
    assert_usage(p, 10, "top-k");
    p = d;
    p.repeat_last_n = -1;
    assert_usage(p, 10, "window");
    p.repeat_last_n = INT32_MAX;
    assert_usage(p, 10, "window");
    assert_usage(d, 0, "vocabulary");
}

/* The first tokens of two seeds, as golden/sampler.py works them out: a change of them is a change of everybody's texts. */
static void test_seed(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float logits[N];
    struct rng r = rng_seed(31);
    for (int i = 0; i < N; i++)
        logits[i] = (float)rng_below(&r, 4096) / 512; /* exact everywhere; with ties */
    static const int32_t expected[2][12] = {{898, 277, 418, 994, 277, 879, 77, 453, 751, 967, 418, 997},
                                            {538, 493, 805, 627, 493, 805, 929, 282, 967, 60, 453, 309}};
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct sampler_params p = sampler_defaults();
        p.seed = seed * 12345678901234567u;
        struct sampler *s = create(&p, N), *again = create(&p, N);
        for (int i = 0; i < 12; i++) {
            int32_t token = next(s, logits);
            assert_int_equal(next(again, logits), token);
            assert_int_equal(token, expected[seed][i]);
        }
        sampler_free(s);
        sampler_free(again);
    }
}

static void test_speed(void **state)
{
    (void)state;
    enum { N = 262144, ROUNDS = 20 };
    float *logits = malloc(N * sizeof *logits);
    assert_non_null(logits);
    struct rng r = rng_seed(41);
    for (int i = 0; i < N; i++)
        logits[i] = (float)rng_normal(&r);
    for (int k = 0; k <= 40; k += 40) {
        struct sampler_params p = sampler_defaults();
        p.top_k = k;
        struct sampler *s = create(&p, N);
        clock_t start = clock();
        for (int i = 0; i < ROUNDS; i++)
            next(s, logits);
        double ms = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC / ROUNDS;
        print_message("a token of %d, top-k %d: %.2f ms\n", N, k, ms);
        assert_true(ms < 1000);
        sampler_free(s);
    }
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_combined), cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_infinite),     cmocka_unit_test(test_nan),      cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_usage),        cmocka_unit_test(test_seed),     cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
