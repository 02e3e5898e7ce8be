/* journal_series.c: hone journal compare, regress and plot. What they say is computed in lab/journal_judge.c.
 *
 * A plot is drawn by gnuplot, whose "dumb" terminal writes text: axes, ticks and scales are its craft. It is an optional
 * program: without it there is a message, and -o json gives the same figures for any other. Nothing of the journal's text
 * reaches gnuplot but numbers and letters, since a title in double quotes could run a command. */
#include "cmd/journal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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
        for (size_t i = 0; i < n; i++)
            put_contrast(&list[i]);
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
        if (!h.n)
            fprintf(stderr, "hone: no run in %s has such a series\n", journal_path(j));
        rc = output_flush();
    }
    if (list)
        journal_trends_free(list, h.n);
    journal_history_free(&h);
    return rc ? rc : worse ? -HONE_ECHECK : 0;
}

/* ---- plot */

/* A title for gnuplot: nothing in it that it could act on. */
static void put_title(FILE *to, const char *text)
{
    fputc('\'', to);
    for (int n = 0; *text && n < 100; text++, n++)
        fputc(isalnum((unsigned char)*text) || strchr(" .,:/%+-()", *text) ? *text : '_', to);
    fputc('\'', to);
}

/* Lets gnuplot run what was written to fd. 0 or the exit code. */
static int run_gnuplot(int fd)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    char *const argv[] = {"gnuplot", "-", NULL};
    lseek(fd, 0, SEEK_SET);
    fflush(stdout);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
    int rc = posix_spawnp(&pid, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        return cmd_refuse(
            HONE_ERESOURCE,
            "journal plot: gnuplot does not start (%s): it draws the plots (Debian: gnuplot-nox); -o json gives the figures",
            strerror(rc));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return cmd_refuse(
            HONE_ERESOURCE,
            "journal plot: gnuplot is not there: it draws the plots (Debian: gnuplot-nox); -o json gives the figures");
    return cmd_refuse(HONE_EFAULT, "journal plot: gnuplot failed");
}

static FILE *script_open(int *fd)
{
    struct winsize w = {0};
    const struct journal_view *v = &journal_view;
    int width = v->width                                                                              ? v->width
                : isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col - 1
                                                                                                      : 100;
    *fd = memfd_create("plot", MFD_CLOEXEC);
    FILE *to = *fd < 0 ? NULL : fdopen(*fd, "we");
    if (to)
        fprintf(to, "set terminal dumb size %d,%d mono\nset grid ytics\n", width < 20 ? 20 : width,
                v->height ? (v->height < 8 ? 8 : v->height) : 24);
    return to;
}

/* One history: medians by run, and the levels between changes. */
static void plot_history(FILE *to, const struct journal_trend *t)
{
    const struct journal_history *h = t->history;
    fputs("$points << EOD\n", to);
    for (size_t i = 0; i < h->n; i++)
        fprintf(to, "%zu %.17g\n", i + 1, h->points[i].median);
    fputs("EOD\n$levels << EOD\n", to);
    for (size_t i = 0; i < t->n; i++) {
        size_t first = i ? t->changes[i - 1].at : 0, at = t->changes[i].at, end = i + 1 < t->n ? 0 : h->n;
        fprintf(to, "%zu %.17g\n%zu %.17g\n\n", first + 1, t->changes[i].before, at, t->changes[i].before);
        if (end)
            fprintf(to, "%zu %.17g\n%zu %.17g\n\n", at + 1, t->changes[i].after, end, t->changes[i].after);
    }
    fputs("EOD\nset title ", to);
    put_title(to, h->name);
    fprintf(to, "\nset xlabel 'run %lld to %lld, %zu runs'\n", (long long)h->points[0].run, (long long)h->points[h->n - 1].run,
            h->n);
    fprintf(to, "set xrange [0:%zu]\nplot $points using 1:2 with points pt 'o' title 'median'", h->n + 1);
    fputs(t->n ? ", $levels using 1:2 with lines title 'level'\n" : "\n", to);
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
    int fd = -1, rc = read_histories(j, &h);
    FILE *to = NULL;
    if (!rc && !h.n)
        rc = cmd_refuse(HONE_EINPUT, "journal plot: no run in %s has such a series", journal_path(j));
    if (!rc && journal_regress(&h, (double)journal_view.alpha / 100, 0, &list, &e))
        rc = cmd_fail(&e);
    if (!rc && output_json()) {
        json_t *all = json_array();
        for (size_t i = 0; i < h.n; i++)
            json_array_append_new(all, history_json(&list[i]));
        rc = output_print(all);
    } else if (!rc && !(to = script_open(&fd))) {
        rc = cmd_refuse(HONE_ERESOURCE, "no memory for a plot");
    } else if (!rc) {
        for (size_t i = 0; i < h.n; i++)
            plot_history(to, &list[i]);
        fflush(to);
        rc = run_gnuplot(fd);
    }
    if (to)
        fclose(to);
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
    FILE *to;    /* gnuplot's script */
    json_t *all; /* the same as JSON */
    int shown;
};

/* One series of the runs from `first` on: all that have it. */
static void plot_series(struct run_plot *p, int first, const char *name)
{
    json_t *values = json_object();
    for (int k = first; k < p->n; k++) {
        const struct journal_series *s = journal_series_find(&p->runs[k], name);
        char key[32];
        json_t *list = json_array();
        snprintf(key, sizeof key, "%lld", (long long)p->ids[k]);
        fprintf(p->to, "$run%d << EOD\n%s", k, s ? "" : "1 NaN\n");
        for (size_t v = 0; s && v < s->n; v++) {
            fprintf(p->to, "%zu %.17g\n", v + 1, s->values[v]);
            json_array_append_new(list, json_real(s->values[v]));
        }
        fputs("EOD\n", p->to);
        json_object_set_new(values, key, list);
    }
    json_array_append_new(p->all, json_pack("{s:s, s:o}", "series", name, "runs", values));
    fputs("set title ", p->to);
    put_title(p->to, name);
    fputs("\nset xlabel 'sample'\nplot ", p->to);
    for (int k = first; k < p->n; k++)
        fprintf(p->to, "%s$run%d using 1:2 with points pt '%c' title 'run %lld'", k > first ? ", " : "", k, "oxabcdef"[k],
                (long long)p -> ids[k]);
    fputc('\n', p->to);
    p->shown++;
}

/* Every series that no run before `run` has, and that is asked for. */
static void plot_new_series(struct run_plot *p, int run)
{
    for (size_t i = 0; i < p->runs[run].n; i++) {
        const char *name = p->runs[run].list[i].name;
        bool before = false;
        for (int k = 0; k < run; k++)
            before |= journal_series_find(&p->runs[k], name) != NULL;
        if (!before && (!journal_view.series || fnmatch(journal_view.series, name, 0) == 0))
            plot_series(p, run, name);
    }
}

/* The samples of some runs in the order in which they were taken, a plot a series. */
static int plot_runs(struct journal *j, int n, const int64_t *ids)
{
    struct run_plot p = {.n = n < PLOT_RUNS ? n : PLOT_RUNS, .ids = ids, .all = json_array()};
    struct hone_error e = {0};
    int fd = -1, rc = 0;
    p.to = script_open(&fd);
    if (!p.to || !p.all)
        rc = cmd_refuse(HONE_ERESOURCE, "no memory for a plot");
    for (int r = 0; r < p.n && !rc; r++)
        rc = journal_series(j, ids[r], &p.runs[r], &e) ? cmd_fail(&e) : 0;
    for (int r = 0; r < p.n && !rc; r++)
        plot_new_series(&p, r);
    if (!rc && !p.shown)
        rc = cmd_refuse(HONE_EINPUT, "journal plot: there are no such samples");
    if (!rc && output_json()) {
        rc = output_print(json_incref(p.all));
    } else if (!rc) {
        fflush(p.to);
        rc = run_gnuplot(fd);
    }
    for (int r = 0; r < p.n; r++)
        journal_series_free(&p.runs[r]);
    json_decref(p.all);
    if (p.to)
        fclose(p.to);
    return rc;
}

int journal_show_plot(struct journal *j, int n, const int64_t *ids)
{
    return n ? plot_runs(j, n, ids) : plot_histories(j);
}
