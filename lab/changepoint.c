/* changepoint.c: E-divisive (Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate
 * data", JASA 109, 2014) on one dimension: a history is cut where the energy distance (Székely and Rizzo, exponent 1) between
 * both sides is largest; the cut stands if at most a share alpha of random orders of the same figures has a larger one; both
 * sides are then looked at in the same way.
 *
 * Random orders need no assumption of a distribution, so the rate of false alarms is alpha, outliers or not, as long as figures
 * do not depend on their neighbours; where they do (a machine that is slow for an hour) it is higher:
 * tests/test_journal_stats.c has both rates. A test on ranks (Pettitt) was the alternative: it keeps its rate as well, but
 * needs six runs after a change among thirty before it can see any, however large, where energy distances see it at the second.
 * Mean shifts by t-tests take one outlier for two changes.
 *
 * The statistic of all cuts of one order takes n log n: the sum of |x_i - x_j| over the j before i comes from a Fenwick tree
 * over ranks, and a cut that moves on by one changes three sums by it. */
#include "lab/changepoint.h"

#include "base/rng.h"
#include "lab/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ORDERS = 499 };

/* Room for one stretch, reused for all. */
struct work {
    size_t *rank;  /* of each figure, 1 to n, equal figures in any order */
    size_t *order; /* a permutation of the figures */
    double *sorted;
    double *total; /* of each figure: the sum of its distances to all others */
    struct seen {
        double count, sum;
    } * seen;  /* a Fenwick tree over ranks: how many, and their sum */
    double *x; /* the stretch, less its median: equal figures then have no distance, not even by rounding */
};

struct ranked {
    double x;
    size_t i;
};

static int by_value(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->x != y->x)
        return x->x < y->x ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Ranks, and the sum of distances of each to all others, of the stretch [0, n) of w->x. */
static int prepare(struct work *w, size_t n, struct hone_error *e)
{
    struct ranked *r = calloc(n, sizeof *r);
    if (!r)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu figures", n);
    double all = 0, before = 0;
    for (size_t i = 0; i < n; i++) {
        r[i] = (struct ranked){w->x[i], i};
        all += w->x[i];
    }
    qsort(r, n, sizeof *r, by_value);
    for (size_t k = 0; k < n; k++) {
        double x = r[k].x, above = all - before - x;
        w->rank[r[k].i] = k + 1;
        w->total[r[k].i] = x * (double)k - before + above - x * (double)(n - 1 - k);
        before += x;
    }
    free(r);
    return 0;
}

/* The largest energy statistic of all cuts of w->order, and where (the first figure behind the cut). */
static double largest(struct work *w, size_t n, size_t *at)
{
    memset(w->seen, 0, (n + 1) * sizeof *w->seen);
    double left = 0, right = 0, between = 0, seen = 0, best = -INFINITY;
    for (size_t i = 0; i < n; i++)
        right += w->total[i] / 2;
    *at = 0;
    for (size_t t = 0; t + CHANGEPOINT_MIN < n; t++) {
        size_t i = w->order[t];
        double x = w->x[i], below = 0, below_sum = 0;
        for (size_t k = w->rank[i]; k > 0; k &= k - 1) {
            below += w->seen[k].count;
            below_sum += w->seen[k].sum;
        }
        for (size_t k = w->rank[i]; k <= n; k += k & -k) {
            w->seen[k].count += 1;
            w->seen[k].sum += x;
        }
        /* distances to those before, and to those behind, which it leaves */
        double to_left = x * below - below_sum + (seen - below_sum) - x * ((double)t - below), to_right = w->total[i] - to_left;
        seen += x;
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        double m = (double)(t + 1), k = (double)(n - t - 1);
        if (t + 1 < CHANGEPOINT_MIN)
            continue;
        double q = m * k / (m + k) * (2 / (m * k) * between - 2 / (m * (m - 1)) * left - 2 / (k * (k - 1)) * right);
        if (q > best) {
            best = q;
            *at = t + 1;
        }
    }
    return best;
}

/* The best cut of the stretch, and its p; p 1 as soon as it can no longer be at most alpha. */
static int best_cut(struct work *w, size_t n, double alpha, size_t *at, double *p, struct hone_error *e)
{
    *p = 1;
    if (n < 2 * CHANGEPOINT_MIN + 1 || prepare(w, n, e))
        return e->code;
    for (size_t i = 0; i < n; i++)
        w->order[i] = i;
    double found = largest(w, n, at);
    double scale = 0;
    for (size_t i = 0; i < n; i++)
        scale += w->total[i];
    if (!(found > 1e-12 * scale / (double)n)) /* all alike, but for rounding */
        return 0;
    size_t orders = LEAST_ORDERS, as_large = 0, ignored;
    if (5 / alpha > LEAST_ORDERS + 1)
        orders = (size_t)ceil(5 / alpha) - 1;
    struct rng rng = rng_seed(20261130 + n);
    for (size_t o = 0; o < orders; o++) {
        for (size_t i = n - 1; i > 0; i--) {
            size_t k = (size_t)rng_below(&rng, i + 1), keep = w->order[i];
            w->order[i] = w->order[k];
            w->order[k] = keep;
        }
        as_large += largest(w, n, &ignored) >= found * (1 - 1e-12);
        if ((double)(as_large + 1) > alpha * (double)(orders + 1))
            return 0;
    }
    *p = (double)(as_large + 1) / (double)(orders + 1);
    return 0;
}

static double median_of(struct work *w, const double *x, size_t n)
{
    memcpy(w->sorted, x, n * sizeof *x);
    return stats_median(w->sorted, n);
}

static int by_place(const void *a, const void *b)
{
    const struct changepoint *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

struct stretch {
    size_t first, end;
};

/* Cuts until nothing is left to cut. todo has room for n stretches. */
static int cut_all(struct work *w, const double *x, size_t n, double alpha, struct stretch *todo, struct changepoint *list,
                   size_t *found, struct hone_error *e)
{
    size_t left = 1;
    todo[0] = (struct stretch){0, n};
    while (left) {
        struct stretch s = todo[--left];
        size_t at;
        double p;
        double middle = median_of(w, x + s.first, s.end - s.first);
        for (size_t i = s.first; i < s.end; i++)
            w->x[i - s.first] = x[i] - middle;
        if (best_cut(w, s.end - s.first, alpha, &at, &p, e))
            return e->code;
        if (p > alpha)
            continue;
        list[(*found)++] = (struct changepoint){.at = s.first + at, .p = p};
        todo[left++] = (struct stretch){s.first, s.first + at};
        todo[left++] = (struct stretch){s.first + at, s.end};
    }
    return 0;
}

int changepoint_find(const double *x, size_t n, double alpha, struct changepoint **list, size_t *n_found, struct hone_error *e)
{
    struct hone_error own = {0};
    *n_found = 0;
    *list = calloc(n + 1, sizeof **list);
    size_t *integers = calloc(2 * n + 2, sizeof *integers);
    double *numbers = calloc(3 * n + 3, sizeof *numbers);
    struct seen *seen = calloc(n + 1, sizeof *seen);
    struct stretch *todo = calloc(n + 2, sizeof *todo);
    int rc =
        *list && integers && numbers && seen && todo ? 0 : err_set(&own, HONE_ERESOURCE, "no memory for a history of %zu", n);
    for (size_t i = 0; i < n && !rc; i++)
        if (!isfinite(x[i]))
            rc = err_set(&own, HONE_EINPUT, "figure %zu of a history is no number", i);
    if (!rc) {
        struct work w = {.rank = integers,
                         .order = integers + n + 1,
                         .sorted = numbers,
                         .total = numbers + n + 1,
                         .x = numbers + 2 * n + 2,
                         .seen = seen};
        rc = cut_all(&w, x, n, alpha, todo, *list, n_found, &own);
        if (!rc)
            qsort(*list, *n_found, sizeof **list, by_place);
        for (size_t i = 0; i < *n_found && !rc; i++) {
            size_t first = i ? (*list)[i - 1].at : 0, at = (*list)[i].at, end = i + 1 < *n_found ? (*list)[i + 1].at : n;
            (*list)[i].before = median_of(&w, x + first, at - first);
            (*list)[i].after = median_of(&w, x + at, end - at);
        }
    }
    free(integers);
    free(numbers);
    free(seen);
    free(todo);
    if (rc) {
        free(*list);
        *list = NULL;
        *n_found = 0;
        if (e)
            *e = own;
    }
    return rc;
}
