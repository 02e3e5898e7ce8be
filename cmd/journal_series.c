/* journal_series.c: hone journal compare, regress and plot. What they say is computed in lab/journal_judge.c.
 *
 * Plots are lab/plot.c's, in letters; the same figures without a plot are -o json's. */
#include "cmd/journal.h"

#include "lab/plot.h"
#include "lab/stats.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- compare */

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *contrast_json(const struct journal_contrast *c)
{
    json_t *o =
        json_pack("{s:s, s:I, s:I}", "series", c->series, "a_samples", (json_int_t)c->n_a, "b_samples", (json_int_t)c->n_b);
    if (c->n_a)
        json_object_set_new(o, "a_median", number(c->median_a));
    if (c->n_b)
        json_object_set_new(o, "b_median", number(c->median_b));
    if (c->has_ratio) {
        json_object_set_new(o, "log_ratio", number(log(c->ratio)));
        json_object_set_new(o, "log_ratio_lo", number(log(c->lo)));
        json_object_set_new(o, "log_ratio_hi", number(log(c->hi)));
        json_object_set_new(o, "b_is", json_string(judged_name(c->word)));
    }
    return o;
}

static void put_contrast(const struct journal_contrast *c)
{
    journal_put(c->series, 40, true);
    printf(" %7zu %12.6g %7zu %12.6g", c->n_a, c->median_a, c->n_b, c->median_b);
    if (c->has_ratio)
        printf(" %+9.2f %%", 100 * (c->ratio - 1));
    if (c->has_ratio && isfinite(c->hi))
        printf("  %+8.2f to %+8.2f %%  %s", 100 * (c->lo - 1), 100 * (c->hi - 1), judged_name(c->word));
    else if (c->has_ratio)
        printf("  too few samples for an interval");
    else
        printf("  %s", c->n_a && c->n_b ? "values that are not positive have no ratio" : c->n_a ? "only in A" : "only in B");
    putchar('\n');
}

static void put_differences(const json_t *differences)
{
    json_t *d;
    size_t i;
    printf("%s\n", json_array_size(differences)
                       ? "the runs differ in:"
                       : "the runs differ in nothing that was recorded of build, machine, model, recipe and config");
    json_array_foreach(differences, i, d)
    {
        printf("  ");
        journal_put(journal_word(d, "what", NULL), 60, false);
        printf(": ");
        journal_put_json(json_object_get(d, "a"), 100);
        printf(" -> ");
        journal_put_json(json_object_get(d, "b"), 100);
        putchar('\n');
    }
}

int journal_show_compare(struct journal *j, int64_t a, int64_t b)
{
    struct hone_error e = {0};
    json_t *run_a = NULL, *run_b = NULL, *differences = NULL;
    struct journal_contrast *list = NULL;
    size_t n = 0;
    int rc = 0;
    if (journal_get(j, a, &run_a, &e) || journal_get(j, b, &run_b, &e) ||
        journal_compare(j, a, b, (double)journal_view.level / 100, &list, &n, &e))
        rc = cmd_fail(&e);
    else if (!(differences = journal_differences(run_a, run_b)))
        rc = cmd_refuse(HONE_ERESOURCE, "no memory to compare");
    else if (output_json()) {
        json_t *series = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(series, contrast_json(&list[i]));
        rc = output_print(json_pack("{s:O, s:O, s:O, s:f, s:b, s:o}", "a", run_a, "b", run_b, "differences", differences,
                                    "level", (double)journal_view.level / 100, "interleaved", 0, "series", series));
    } else {
        put_differences(differences);
        printf("\n%-40s %7s %12s %7s %12s %11s  %s\n", "series", "A: n", "median", "B: n", "median", "B to A", "interval");
        bool common = false;
        for (size_t i = 0; i < n; i++) {
            put_contrast(&list[i]);
            common |= list[i].n_a && list[i].n_b;
        }
        if (!common)
            printf("\nno series in common: these two runs did not measure the same thing\n");
        else
            printf("\n%g %% intervals of the shift between the samples; the runs were not interleaved, so what the machine did "
                   "between them is in it: "
                   "hone ab tells a change from that\n",
                   (double)journal_view.level);
    }
    journal_contrasts_free(list, n);
    json_decref(differences);
    json_decref(run_a);
    json_decref(run_b);
    return rc;
}

/* ---- regress */

static double gain_of(const char *series, const struct changepoint *c)
{
    return (c->after - c->before) / fabs(c->before) * (journal_larger_better(series) ? 1 : -1);
}

static json_t *trend_json(const struct journal_trend *t)
{
    const struct journal_history *h = t->history;
    json_t *changes = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const struct changepoint *c = &t->changes[i];
        const struct journal_point *p = &h->points[c->at], *last = p - 1;
        char at[32];
        journal_time(p->at, at);
        json_t *before = json_pack("{s:O?, s:O?}", "build", last->build, "recipe", last->recipe);
        json_t *after = json_pack("{s:O?, s:O?}", "build", p->build, "recipe", p->recipe);
        json_array_append_new(changes, json_pack("{s:I, s:I, s:s, s:f, s:f, s:o, s:f, s:o}", "run", (json_int_t)p->run,
                                                 "run_before", (json_int_t)last->run, "at", at, "before", c->before, "after",
                                                 c->after, "gain", number(gain_of(h->name, c)), "p", c->p, "differences",
                                                 journal_differences(before, after)));
        json_decref(before);
        json_decref(after);
    }
    return json_pack("{s:s, s:O, s:I, s:f, s:b, s:b, s:o}", "series", h->name, "of", h->of, "runs", (json_int_t)h->n,
                     "neighbour_correlation", t->correlation, "correlated", t->correlated, "worse", t->worse, "changes",
                     changes);
}

static void put_of(const struct journal_history *h)
{
    journal_put(h->name, 44, false);
    printf("  (");
    journal_put(journal_word(h->of, "kind", NULL), 12, false);
    printf(", ");
    journal_put(*journal_word(h->of, "model", "name") ? journal_word(h->of, "model", "name") : "no model", 32, false);
    printf(", ");
    journal_put(journal_word(h->of, "machine", "cpu"), 48, false);
    printf("): %zu run%s", h->n, h->n == 1 ? "" : "s");
}

static void put_trend(const struct journal_trend *t)
{
    const struct journal_history *h = t->history;
    put_of(h);
    printf("%s\n", h->n <= 2 * CHANGEPOINT_MIN ? ", too few for a change to show" : t->n ? "" : ", no change");
    for (size_t i = 0; i < t->n; i++) {
        const struct changepoint *c = &t->changes[i];
        const struct journal_point *p = &h->points[c->at], *last = p - 1;
        double gain = gain_of(h->name, c);
        char at[32];
        journal_time(p->at, at);
        printf("    from run %lld on (%.16s): %.6g -> %.6g, %+.2f %%, %s, p %.2g\n", (long long)p->run, at, c->before, c->after,
               100 * (c->after / c->before - 1), gain > 0 ? "better" : "WORSE", c->p);
        json_t *before = json_pack("{s:O?, s:O?}", "build", last->build, "recipe", last->recipe);
        json_t *after = json_pack("{s:O?, s:O?}", "build", p->build, "recipe", p->recipe),
               *differences = journal_differences(before, after), *d;
        size_t k;
        json_array_foreach(differences, k, d)
        {
            printf("        ");
            journal_put(journal_word(d, "what", NULL), 60, false);
            printf(": ");
            journal_put_json(json_object_get(d, "a"), 60);
            printf(" -> ");
            journal_put_json(json_object_get(d, "b"), 60);
            putchar('\n');
        }
        if (!json_array_size(differences))
            printf("        same build and recipe as run %lld before it: the machine, then\n", (long long)last->run);
        json_decref(before);
        json_decref(after);
        json_decref(differences);
    }
    if (t->correlated)
        printf(
            "    neighbouring runs correlate by %.2f: the machine drifts, and changes are found more often than alpha says\n",
            t->correlation);
}

/* The histories that the options name, newest runs first in choice. */
static int read_histories(struct journal *j, struct journal_histories *h)
{
    struct journal_filter f;
    struct hone_error e = {0};
    int rc = journal_view_filter(&f, 1000);
    if (rc)
        return rc;
    return journal_history(j, &f, h, &e) ? cmd_fail(&e) : 0;
}

int journal_show_regress(struct journal *j)
{
    struct journal_histories h = {0};
    struct journal_trend *list = NULL;
    struct hone_error e = {0};
    bool worse = false;
    double alpha = (double)journal_view.alpha / 100;
    int rc = read_histories(j, &h);
    if (!rc && !h.n) /* a watch over a name that nothing has would never bark */
        rc = cmd_refuse(HONE_EINPUT, "journal regress: no run in %s has such a series", journal_path(j));
    if (!rc && journal_regress(&h, alpha, (double)journal_view.margin / 100, &list, &e))
        rc = cmd_fail(&e);
    for (size_t i = 0; i < h.n && !rc; i++)
        worse |= list[i].worse;
    if (!rc && output_json()) {
        json_t *series = json_array();
        for (size_t i = 0; i < h.n; i++)
            json_array_append_new(series, trend_json(&list[i]));
        rc = output_print(json_pack("{s:f, s:b, s:o}", "alpha", alpha, "worse", worse, "series", series));
    } else if (!rc) {
        for (size_t i = 0; i < h.n; i++)
            put_trend(&list[i]);
        rc = output_flush();
    }
    if (list)
        journal_trends_free(list, h.n);
    journal_history_free(&h);
    return rc ? rc : worse ? -HONE_ECHECK : 0;
}

/* ---- plot */

static int print_plot(const struct plot *p)
{
    struct winsize w = {0};
    const struct journal_view *v = &journal_view;
    struct hone_error e = {0};
    char *text;
    int width = v->width                                                                              ? v->width
                : isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 40 ? w.ws_col - 1
                                                                                                      : 100;
    if (plot_text(p, width, v->height ? v->height : 24, &text, &e)) {
        int rc = cmd_fail(&e);
        fprintf(stderr, "hone: -o json gives the figures without a plot\n");
        return rc;
    }
    fputs(text, stdout);
    free(text);
    return output_flush();
}

/* One history: medians by run, and the levels between changes. */
static int plot_history(const struct journal_trend *t)
{
    const struct journal_history *h = t->history;
    struct plot p = {.kind = PLOT_POINTS};
    const char *unit = strrchr(h->name, ' ');
    snprintf(p.title, sizeof p.title, "%s", h->name);
    snprintf(p.axis, sizeof p.axis, "%s", unit ? unit + 1 : "");
    snprintf(p.across, sizeof p.across, "run %lld to %lld", (long long)h->points[0].run, (long long)h->points[h->n - 1].run);
    int failed = 0;
    for (size_t i = 0; i < h->n && !failed; i++) {
        struct plot_mark *m = plot_add(&p, "");
        failed = m == NULL;
        if (m)
            m->value = h->points[i].median;
    }
    for (size_t i = 0; i <= t->n && t->n && !failed; i++) {
        size_t first = i ? t->changes[i - 1].at : 0, end = i < t->n ? t->changes[i].at : h->n;
        failed = plot_level_add(&p, first, end - 1, i ? t->changes[i - 1].after : t->changes[0].before);
    }
    int rc = failed ? cmd_refuse(HONE_ERESOURCE, "no memory for a plot") : print_plot(&p);
    plot_free(&p);
    return rc;
}

static json_t *history_json(const struct journal_trend *t)
{
    json_t *o = trend_json(t), *points = json_array();
    for (size_t i = 0; i < t->history->n; i++) {
        const struct journal_point *p = &t->history->points[i];
        char at[32];
        journal_time(p->at, at);
        json_array_append_new(points, json_pack("{s:I, s:s, s:f, s:I}", "run", (json_int_t)p->run, "at", at, "median",
                                                p->median, "samples", (json_int_t)p->n));
    }
    json_object_set_new(o, "points", points);
    return o;
}

static int plot_histories(struct journal *j)
{
    struct journal_histories h = {0};
    struct journal_trend *list = NULL;
    struct hone_error e = {0};
    int rc = read_histories(j, &h);
    if (!rc && !h.n)
        rc = cmd_refuse(HONE_EINPUT, "journal plot: no run in %s has such a series", journal_path(j));
    if (!rc && journal_regress(&h, (double)journal_view.alpha / 100, 0, &list, &e))
        rc = cmd_fail(&e);
    if (!rc && output_json()) {
        json_t *all = json_array();
        for (size_t i = 0; i < h.n; i++)
            json_array_append_new(all, history_json(&list[i]));
        rc = output_print(all);
    } else {
        for (size_t i = 0; i < h.n && !rc; i++)
            rc = plot_history(&list[i]);
    }
    if (list)
        journal_trends_free(list, h.n);
    journal_history_free(&h);
    return rc;
}

enum { PLOT_RUNS = 8 };

struct run_plot {
    int n;
    const int64_t *ids;
    struct journal_series_list runs[PLOT_RUNS];
    json_t *all; /* the series as JSON */
    int shown;
};

/* One series of the runs from `first` on, one run behind the other, a level for each run's median. */
static int plot_series(struct run_plot *r, int first, const char *name)
{
    struct plot p = {.kind = PLOT_POINTS, .across = "samples of run"};
    const char *unit = strrchr(name, ' ');
    json_t *values = json_object();
    int failed = 0;
    snprintf(p.title, sizeof p.title, "%s", name);
    snprintf(p.axis, sizeof p.axis, "%s", unit ? unit + 1 : "");
    for (int k = first; k < r->n; k++) {
        const struct journal_series *s = journal_series_find(&r->runs[k], name);
        size_t start = p.n, used = strlen(p.across);
        char key[32];
        json_t *list = json_array();
        snprintf(key, sizeof key, "%lld", (long long)r->ids[k]);
        for (size_t v = 0; s && v < s->n && !failed; v++) {
            struct plot_mark *m = plot_add(&p, "");
            failed |= m == NULL || json_array_append_new(list, json_real(s->values[v]));
            if (m)
                m->value = s->values[v];
        }
        if (s && !failed) {
            snprintf(p.across + used, sizeof p.across - used, "%s %s", start ? "," : "", key);
            stats_sort(s->values, s->n); /* nothing needs their order any more */
            failed = plot_level_add(&p, start, p.n - 1, stats_quantile(s->values, s->n, 0.5));
        }
        json_object_set_new(values, key, list);
    }
    json_array_append_new(r->all, json_pack("{s:s, s:o}", "series", name, "runs", values));
    r->shown++;
    int rc = failed ? cmd_refuse(HONE_ERESOURCE, "no memory for a plot") : output_json() ? 0 : print_plot(&p);
    plot_free(&p);
    return rc;
}

/* Every series that no run before `run` has, and that is asked for. */
static int plot_new_series(struct run_plot *p, int run)
{
    int rc = 0;
    for (size_t i = 0; i < p->runs[run].n && !rc; i++) {
        const char *name = p->runs[run].list[i].name;
        bool before = false;
        for (int k = 0; k < run; k++)
            before |= journal_series_find(&p->runs[k], name) != NULL;
        if (!before && (!journal_view.series || fnmatch(journal_view.series, name, 0) == 0))
            rc = plot_series(p, run, name);
    }
    return rc;
}

/* The samples of some runs in the order in which they were taken, a plot a series. */
static int plot_runs(struct journal *j, int n, const int64_t *ids)
{
    struct run_plot p = {.n = n < PLOT_RUNS ? n : PLOT_RUNS, .ids = ids, .all = json_array()};
    struct hone_error e = {0};
    int rc = p.all ? 0 : cmd_refuse(HONE_ERESOURCE, "no memory for a plot");
    for (int r = 0; r < p.n && !rc; r++)
        rc = journal_series(j, ids[r], &p.runs[r], &e) ? cmd_fail(&e) : 0;
    for (int r = 0; r < p.n && !rc; r++)
        rc = plot_new_series(&p, r);
    if (!rc && !p.shown)
        rc = cmd_refuse(HONE_EINPUT, "journal plot: there are no such samples");
    if (!rc && output_json())
        rc = output_print(json_incref(p.all));
    for (int r = 0; r < p.n; r++)
        journal_series_free(&p.runs[r]);
    json_decref(p.all);
    return rc;
}

int journal_show_plot(struct journal *j, int n, const int64_t *ids)
{
    return n ? plot_runs(j, n, ids) : plot_histories(j);
}
