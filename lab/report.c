/* report.c: the sections, one function each: what was measured over time and where it changed; comparisons; ladders; where the
 * time of a step goes; what was checked; everything that was run. What is a verdict is derived here from samples, not read.
 *
 * A report is first made as data and then written, as a page or as text: the two cannot tell different things. A template
 * language was the alternative; it would be a second place where text from a journal has to be made harmless. */
#include "lab/report.h"

#include "lab/journal_judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 1000, SHOWN_RUNS = 200, SHOWN_MATCHES = 24, SHOWN_CHECKS = 40, SHOWN_PLOTS = 24 };

/* ---- sections */

struct report_section *report_section(struct report *r, const char *title, ...)
{
    struct report_section *s = calloc(1, sizeof *s);
    if (s && r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 16;
        struct report_section **list = realloc(r->sections, cap * sizeof *list);
        if (list) {
            r->sections = list;
            r->cap = cap;
        }
    }
    if (!s || r->n == r->cap) {
        free(s);
        r->nowhere.failed = true;
        return &r->nowhere;
    }
    va_list ap;
    va_start(ap, title);
    vsnprintf(s->title, sizeof s->title, title, ap);
    va_end(ap);
    return r->sections[r->n++] = s;
}

void report_columns(struct report_section *s, const char *const *columns, size_t n)
{
    s->table.columns = columns;
    s->table.n_columns = n;
    s->table.numbers = true;
}

static char *format_text(const char *format, va_list ap)
{
    char *text;
    return vasprintf(&text, format, ap) < 0 ? NULL : text;
}

void report_cell(struct report_section *s, enum plot_tone tone, const char *format, ...)
{
    struct report_table *t = &s->table;
    struct report_cell *cells = realloc(t->cells, (t->n_cells + 1) * sizeof *cells);
    if (!cells) {
        s->failed = true;
        return;
    }
    va_list ap;
    va_start(ap, format);
    t->cells = cells;
    struct report_cell *c = &cells[t->n_cells++];
    *c = (struct report_cell){format_text(format, ap), tone};
    s->failed |= !c->text;
    va_end(ap);
}

void report_say(struct report_section *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char *more = format_text(format, ap), *all = NULL;
    va_end(ap);
    if (more && asprintf(&all, "%s%s%s", s->words ? s->words : "", s->words ? "\n" : "", more) >= 0) {
        free(s->words);
        s->words = all;
    } else {
        s->failed = true;
    }
    free(more);
}

static void section_free(struct report_section *s)
{
    for (size_t i = 0; i < s->table.n_cells; i++)
        free(s->table.cells[i].text);
    free(s->table.cells);
    plot_free(&s->plot);
    free(s->words);
}

void report_free(struct report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        section_free(r->sections[i]);
        free(r->sections[i]);
    }
    section_free(&r->nowhere);
    free(r->sections);
    *r = (struct report){.n = 0};
}

/* ---- reading */

static const char *word(const json_t *o, const char *key, const char *inner)
{
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(inner ? json_object_get(v, inner) : v);
    return s ? s : "";
}

static long long whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* "2026-11-30 12:00" of an ISO time. */
static const char *minute(const json_t *run, char text[20])
{
    snprintf(text, 20, "%.16s", word(run, "at", NULL));
    if (strlen(text) > 10)
        text[10] = ' ';
    return text;
}

struct making {
    struct report *r;
    struct journal *j;
    const struct report_options *o;
    struct hone_error *e;
};

static int list_runs(const struct making *m, const char *kind, int limit, json_t **runs)
{
    struct journal_filter f = m->o->filter;
    f.kind = kind ? kind : f.kind;
    f.limit = f.limit && (!limit || f.limit < limit) ? f.limit : limit ? limit : LIMIT;
    *runs = NULL;
    if (kind && m->o->filter.kind && strcmp(kind, m->o->filter.kind) != 0) {
        *runs = json_array();
        return *runs ? 0 : err_set(m->e, HONE_ERESOURCE, "no memory for a report");
    }
    return journal_list(m->j, &f, runs, m->e);
}

/* ---- throughput over time */

static void history_changes(struct report *r, struct report_section *s, const struct journal_trend *t)
{
    const struct journal_history *h = t->history;
    bool larger = journal_larger_better(h->name);
    for (size_t i = 0; i < t->n; i++) {
        const struct changepoint *c = &t->changes[i];
        bool better = (c->after > c->before) == larger;
        char at[32];
        journal_time(h->points[c->at].at, at);
        report_say(s, "From run %lld on (%.10s): %.6g to %.6g, %+.2f %%, %s (p %.2g).", (long long)h->points[c->at].run, at, c->before,
                   c->after, 100 * (c->after / c->before - 1), better ? "better" : "worse", c->p);
    }
    if (t->worse) {
        report_say(s, "The newest change is for the worse.");
        r->worse = true;
    }
    if (t->correlated)
        report_say(s, "Neighbouring runs correlate by %.2f: the machine drifts, and changes are found more often than the stated chance.",
                   t->correlation);
    if (!t->n)
        report_say(s, h->n <= 2 * CHANGEPOINT_MIN ? "Too few runs for a change to show." : "No change.");
}

static void history_section(struct report *r, const struct journal_trend *t)
{
    const struct journal_history *h = t->history;
    struct report_section *s = report_section(r, "%.60s: %.50s", word(h->of, "model", "name"), h->name);
    snprintf(s->plot.title, sizeof s->plot.title, "%.60s, %.50s", h->name, word(h->of, "machine", "cpu"));
    snprintf(s->plot.axis, sizeof s->plot.axis, "median, %.60s", strrchr(h->name, ' ') ? strrchr(h->name, ' ') + 1 : "");
    for (size_t i = 0; i < h->n; i++) {
        char label[32];
        snprintf(label, sizeof label, "run %lld", (long long)h->points[i].run);
        struct plot_mark *m = plot_add(&s->plot, label);
        if (m)
            m->value = h->points[i].median;
    }
    for (size_t i = 0; i < t->n; i++) {
        const struct changepoint *c = &t->changes[i];
        plot_level_add(&s->plot, i ? t->changes[i - 1].at : 0, c->at - 1, c->before);
        if (i + 1 == t->n)
            plot_level_add(&s->plot, c->at, h->n - 1, c->after);
    }
    history_changes(r, s, t);
}

static int histories(const struct making *m)
{
    static const char *const columns[] = {"series", "model", "runs", "newest", "machine"};
    struct journal_histories h = {0};
    struct journal_trend *list = NULL;
    struct journal_filter f = m->o->filter;
    size_t shown = 0;
    f.kind = f.kind ? f.kind : "bench";
    f.limit = f.limit ? f.limit : LIMIT;
    if (strcmp(f.kind, "bench") != 0)
        return 0;
    int rc = journal_history(m->j, &f, &h, m->e);
    if (!rc && h.n)
        rc = journal_regress(&h, m->o->alpha, m->o->margin, &list, m->e);
    if (!rc && h.n) {
        struct report_section *s = report_section(m->r, "Throughput");
        report_columns(s, columns, sizeof columns / sizeof *columns);
        for (size_t i = 0; i < h.n; i++) {
            const struct journal_history *one = &h.list[i];
            report_cell(s, PLOT_PLAIN, "%s", one->name);
            report_cell(s, PLOT_PLAIN, "%s", word(one->of, "model", "name"));
            report_cell(s, PLOT_PLAIN, "%zu", one->n);
            report_cell(s, list[i].worse ? PLOT_BAD : PLOT_PLAIN, "%.6g", one->points[one->n - 1].median);
            report_cell(s, PLOT_PLAIN, "%s", word(one->of, "machine", "cpu"));
        }
        for (size_t i = 0; i < h.n && shown < SHOWN_PLOTS; i++)
            if (h.list[i].n > 2 * CHANGEPOINT_MIN) {
                history_section(m->r, &list[i]);
                shown++;
            }
    }
    if (list)
        journal_trends_free(list, h.n);
    journal_history_free(&h);
    return rc;
}

/* ---- comparisons */

static enum plot_tone verdict_tone(const char *verdict)
{
    return !strcmp(verdict, "win") ? PLOT_GOOD : !strcmp(verdict, "loss") ? PLOT_BAD : !strcmp(verdict, "no difference") ? PLOT_PLAIN : PLOT_WEAK;
}

/* What a candidate is: the arm as it was given. */
static const char *arm_name(const json_t *run, long long candidate)
{
    const json_t *arms = json_object_get(json_object_get(run, "config"), "arms");
    const char *name = json_string_value(json_array_get(arms, (size_t)candidate));
    return name ? name : "candidate";
}

/* The interval of a result that decided: of a comparison that ended early the sequence's, an end of which may be open. */
static void interval_cell(struct report_section *s, double lo, double hi)
{
    if (isfinite(lo) && isfinite(hi))
        report_cell(s, PLOT_PLAIN, "%+.2f to %+.2f %%", lo, hi);
    else if (isfinite(lo) || isfinite(hi))
        report_cell(s, PLOT_PLAIN, "%s %+.2f %%", isfinite(lo) ? "above" : "below", isfinite(lo) ? lo : hi);
    else
        report_cell(s, PLOT_PLAIN, "open");
}

static void match_row(struct report_section *s, const json_t *run, const json_t *match)
{
    const json_t *result = json_object_get(match, "result"), *gain = json_object_get(result, "gain");
    const json_t *decided = json_is_true(json_object_get(result, "early")) ? json_object_get(result, "sequence") : gain;
    const char *verdict = word(result, "verdict", NULL), *kind = word(match, "match_kind", NULL);
    double centre = 100 * real(gain, "centre"), lo = 100 * real(decided, "lo"), hi = 100 * real(decided, "hi");
    char label[64], time[20];
    long long candidate = whole(match, "candidate");
    if (candidate)
        snprintf(label, sizeof label, "run %lld: %.36s%s", whole(run, "id"), arm_name(run, candidate), strcmp(kind, "trial") ? " again" : "");
    else
        snprintf(label, sizeof label, "run %lld A/A", whole(run, "id"));
    struct plot_mark *mark = plot_add(&s->plot, label);
    if (mark) {
        mark->value = centre;
        mark->lo = isfinite(lo) ? lo : 100 * real(gain, "lo"); /* a line has two ends */
        mark->hi = isfinite(hi) ? hi : 100 * real(gain, "hi");
        mark->tone = verdict_tone(verdict);
    }
    report_cell(s, PLOT_PLAIN, "%s", label);
    report_cell(s, PLOT_PLAIN, "%s", minute(run, time));
    report_cell(s, verdict_tone(verdict), "%s", verdict);
    report_cell(s, PLOT_PLAIN, "%+.2f %%", centre);
    interval_cell(s, lo, hi);
    report_cell(s, PLOT_PLAIN, "%lld", whole(result, "blocks"));
    report_cell(s, PLOT_PLAIN, "%s", word(result, "outputs", NULL));
    report_cell(s, PLOT_PLAIN, "%s", word(run, "model", "name"));
    report_cell(s, PLOT_PLAIN, "%s", word(run, "hypothesis", NULL));
}

static int comparisons(const struct making *m)
{
    static const char *const columns[] = {"comparison", "when", "verdict", "gain", "interval", "blocks", "outputs", "model", "hypothesis"};
    json_t *runs, *run, *derived, *matches, *match;
    size_t i, k, shown = 0;
    int rc = list_runs(m, "ab", 0, &runs);
    struct report_section *s = NULL;
    json_array_foreach(runs, i, run)
    {
        if (rc || shown >= SHOWN_MATCHES)
            break;
        struct hone_error own = {0};
        bool agrees = true;
        derived = NULL;
        if (journal_rederive(m->j, run, &derived, &agrees, &own) && own.code == HONE_ERESOURCE)
            rc = err_set(m->e, own.code, "%s", own.message); /* any other: broken off before there was something to judge */
        m->r->worse |= !agrees;
        matches = json_object_get(derived, "matches");
        json_array_foreach(matches, k, match)
        {
            if (!s) {
                s = report_section(m->r, "A/B comparisons");
                s->plot.kind = PLOT_INTERVALS;
                snprintf(s->plot.title, sizeof s->plot.title, "gain of B over A");
                snprintf(s->plot.axis, sizeof s->plot.axis, "percent");
                report_say(s, "Lines are the intervals that decide; between the dashed ones lies the margin.");
                report_columns(s, columns, sizeof columns / sizeof *columns);
                s->plot.band = 100 * real(json_object_get(run, "config"), "margin");
                s->plot.band = isfinite(s->plot.band) ? s->plot.band : 0.5;
            }
            match_row(s, run, match);
            shown++;
        }
        json_decref(derived);
    }
    json_decref(runs);
    return rc;
}

/* ---- ladders */

static void rung_row(struct report_section *s, const json_t *rung)
{
    const json_t *right = json_object_get(rung, "correctness");
    bool kept = json_is_true(json_object_get(rung, "kept"));
    double decode = real(rung, "decode_tokens_per_second");
    struct plot_mark *mark = plot_add(&s->plot, word(rung, "rung", NULL));
    enum plot_tone tone = kept ? PLOT_GOOD : PLOT_BAD;
    if (mark) {
        mark->value = decode;
        mark->tone = tone;
    }
    report_cell(s, PLOT_PLAIN, "%s", word(rung, "rung", NULL));
    report_cell(s, PLOT_PLAIN, "%.1f", decode);
    report_cell(s, PLOT_PLAIN, "%.1f", real(rung, "prefill_tokens_per_second"));
    report_cell(s, tone, "%s", kept ? "kept" : "taken back");
    report_cell(s, PLOT_PLAIN, "%s", word(right, "verdict", NULL));
    report_cell(s, PLOT_PLAIN, "%.2g", real(right, "kl_mean"));
    report_cell(s, PLOT_PLAIN, "%lld", whole(rung, "references"));
    report_cell(s, PLOT_PLAIN, "%s", *word(rung, "why", NULL) ? word(rung, "why", NULL) : word(rung, "kernels", NULL));
}

/* The bodies of a run's records that have this key, as a new array of borrowed objects' copies. */
static int bodies_with(const struct making *m, long long run, const char *key, json_t **out)
{
    json_t *records = NULL, *record;
    size_t i;
    *out = json_array();
    int rc = *out ? journal_records(m->j, run, NULL, &records, m->e) : err_set(m->e, HONE_ERESOURCE, "no memory for a report");
    json_array_foreach(records, i, record)
    {
        json_t *body = json_object_get(record, "body");
        if (json_object_get(body, key))
            json_array_append(*out, body);
    }
    json_decref(records);
    return rc;
}

/* Of each model the newest run of a kind; each(): adds its section. */
static int newest_by_model(const struct making *m, const char *kind, int (*each)(const struct making *m, const json_t *run))
{
    json_t *runs, *run, *seen = json_object();
    size_t i, shown = 0;
    int rc = list_runs(m, kind, 0, &runs);
    json_array_foreach(runs, i, run)
    {
        char key[400];
        size_t before = m->r->n;
        char *config = json_dumps(json_object_get(run, "config"), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        snprintf(key, sizeof key, "%.100s %.280s", word(run, "model", "name"), config && !strcmp(kind, "trace") ? config : "");
        free(config);
        if (rc || json_object_get(seen, key) || shown >= SHOWN_PLOTS)
            continue;
        rc = each(m, run);
        if (m->r->n > before) {
            json_object_set_new(seen, key, json_true());
            shown++;
        }
    }
    json_decref(seen);
    json_decref(runs);
    return rc;
}

static int ladder_section(const struct making *m, const json_t *run)
{
    static const char *const columns[] = {"rung", "decode t/s", "prefill t/s", "", "verdict", "KL mean", "references", "kernels, or why not"};
    json_t *rungs, *rung;
    size_t i;
    char time[20];
    int rc = bodies_with(m, whole(run, "id"), "rung", &rungs);
    if (!rc && json_array_size(rungs)) {
        struct report_section *s = report_section(m->r, "Ladder: %.80s", word(run, "model", "name"));
        report_columns(s, columns, sizeof columns / sizeof *columns);
        report_say(s, "Run %lld, %s. From everything on the reference to everything local, one change a rung.", whole(run, "id"), minute(run, time));
        s->plot.kind = PLOT_BARS;
        snprintf(s->plot.title, sizeof s->plot.title, "decode, rung by rung");
        snprintf(s->plot.axis, sizeof s->plot.axis, "tokens a second");
        json_array_foreach(rungs, i, rung)
        {
            rung_row(s, rung);
        }
    }
    json_decref(rungs);
    return rc;
}

/* ---- where the time goes */

static void op_row(struct report_section *s, const json_t *op, double total)
{
    double share = 100 * real(op, "share_of_roof"), ns = real(op, "ns");
    struct plot_mark *mark = plot_add(&s->plot, word(op, "name", NULL));
    if (mark)
        mark->value = share;
    report_cell(s, PLOT_PLAIN, "%s", word(op, "name", NULL));
    report_cell(s, PLOT_PLAIN, "%lld", whole(op, "count"));
    report_cell(s, PLOT_PLAIN, "%.1f", ns / 1e3);
    report_cell(s, PLOT_PLAIN, "%.1f %%", 100 * ns / total);
    report_cell(s, PLOT_PLAIN, "%.3f", real(op, "bytes") / 1e6);
    report_cell(s, PLOT_PLAIN, "%.1f", real(op, "bytes_per_second") / 1e9);
    report_cell(s, PLOT_PLAIN, "%.1f %%", share);
}

static int trace_section(const struct making *m, const json_t *run)
{
    static const char *const columns[] = {"op", "nodes", "us", "of the time", "MB", "GB/s", "of the roof"};
    json_t *traces, *trace, *op;
    size_t i, k;
    char time[20];
    int rc = bodies_with(m, whole(run, "id"), "ops", &traces);
    json_array_foreach(traces, i, trace)
    {
        const json_t *ops = json_object_get(trace, "ops");
        double total = real(trace, "nodes_ns"), roof = real(trace, "read_roof");
        long long tokens = whole(trace, "n_tokens");
        if (!(total > 0) || !(roof > 0))
            continue; /* a plan that did not run */
        struct report_section *s =
            report_section(m->r, "Roof: %.60s, %s of %lld", word(run, "model", "name"), tokens > 1 ? "prefill" : "decode", tokens);
        report_columns(s, columns, sizeof columns / sizeof *columns);
        report_say(s, "Run %lld, %s. The step took %.2f ms; its nodes, each watched, %.2f ms. Read roof: %.1f GB/s; what is above it comes from caches.", whole(run, "id"),
                   minute(run, time), real(trace, "step_ns") / 1e6, total / 1e6, roof / 1e9);
        s->plot.kind = PLOT_BARS;
        snprintf(s->plot.title, sizeof s->plot.title, "bytes a second, by op");
        snprintf(s->plot.axis, sizeof s->plot.axis, "percent of the read roof");
        json_array_foreach(ops, k, op)
        {
            op_row(s, op, total);
        }
    }
    json_decref(traces);
    return rc;
}

/* ---- collectives */

static int collective_section(const struct making *m, const json_t *run)
{
    static const char *const columns[] = {"path", "collectives a graph"};
    static const char *const paths[] = {"add", "get_rows", "add_rms_norm", "plain", "fallback"};
    json_t *traces, *trace;
    size_t i;
    int rc = bodies_with(m, whole(run, "id"), "collectives", &traces);
    json_array_foreach(traces, i, trace)
    {
        const json_t *all = json_object_get(trace, "collectives"), *c = json_object_get(all, "per_graph");
        if (whole(c, "count") == 0)
            continue;
        struct report_section *s = report_section(m->r, "Collectives: %.60s", word(run, "model", "name"));
        report_columns(s, columns, sizeof columns / sizeof *columns);
        report_say(s, "Run %lld: %lld devices, %lld collectives and %.0f bytes a graph.", whole(run, "id"),
                   whole(all, "devices"), whole(c, "count"), real(c, "bytes"));
        s->plot.kind = PLOT_BARS;
        snprintf(s->plot.title, sizeof s->plot.title, "collectives by path");
        snprintf(s->plot.axis, sizeof s->plot.axis, "a graph");
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
            long long n = whole(json_object_get(c, "path"), paths[k]);
            bool bad = n && !strcmp(paths[k], "fallback");
            struct plot_mark *mark = plot_add(&s->plot, paths[k]);
            if (mark) {
                mark->value = (double)n;
                mark->tone = bad ? PLOT_BAD : PLOT_PLAIN;
            }
            report_cell(s, PLOT_PLAIN, "%s", paths[k]);
            report_cell(s, bad ? PLOT_BAD : PLOT_PLAIN, "%lld", n);
        }
    }
    json_decref(traces);
    return rc;
}

/* ---- what was checked, and what was run */

static enum plot_tone right_tone(const char *verdict)
{
    static const char *const bad[] = {"different", "faults", "incomplete", "failed"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!strcmp(verdict, bad[i]))
            return PLOT_BAD;
    return *verdict ? PLOT_GOOD : PLOT_WEAK;
}

static int checks(const struct making *m)
{
    static const char *const columns[] = {"run", "when", "verdict", "model", "command"}, *const kinds[] = {"check", "verify", "perplexity"};
    struct report_section *s = NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        json_t *runs, *run, *derived;
        size_t i;
        int rc = list_runs(m, kinds[k], SHOWN_CHECKS, &runs);
        json_array_foreach(runs, i, run)
        {
            bool agrees;
            char time[20];
            struct hone_error ignored = {0};
            if (journal_rederive(m->j, run, &derived, &agrees, &ignored))
                derived = NULL;
            const char *verdict = derived ? word(derived, "verdict", NULL) : word(run, "verdict", "verdict");
            if (!*verdict)
                verdict = word(run, "status", NULL);
            if (!s) {
                s = report_section(m->r, "Correctness");
                report_columns(s, columns, sizeof columns / sizeof *columns);
                s->table.numbers = false;
            }
            report_cell(s, PLOT_PLAIN, "%s %lld", kinds[k], whole(run, "id"));
            report_cell(s, PLOT_PLAIN, "%s", minute(run, time));
            report_cell(s, agrees ? right_tone(verdict) : PLOT_BAD, "%s%s", verdict, agrees ? "" : " (recorded otherwise)");
            report_cell(s, PLOT_PLAIN, "%s", word(run, "model", "name"));
            report_cell(s, PLOT_PLAIN, "%s", word(run, "command", NULL));
            m->r->worse |= !agrees;
            json_decref(derived);
        }
        json_decref(runs);
        if (rc)
            return rc;
    }
    return 0;
}

static int all_runs(const struct making *m)
{
    static const char *const columns[] = {"run", "when", "kind", "test", "status", "samples", "model", "commit", "command"};
    json_t *runs, *run;
    size_t i;
    int rc = list_runs(m, NULL, SHOWN_RUNS, &runs);
    if (rc)
        return rc;
    struct report_section *s = report_section(m->r, "Runs");
    report_columns(s, columns, sizeof columns / sizeof *columns);
    s->table.numbers = false;
    s->folded = true;
    if (!json_array_size(runs))
        report_say(s, "The journal has no such run.");
    json_array_foreach(runs, i, run)
    {
        char time[20];
        const char *status = word(run, "status", NULL);
        report_cell(s, PLOT_PLAIN, "%lld", whole(run, "id"));
        report_cell(s, PLOT_PLAIN, "%s", minute(run, time));
        report_cell(s, PLOT_PLAIN, "%s", word(run, "kind", NULL));
        report_cell(s, PLOT_PLAIN, "%s", word(json_object_get(run, "config"), "test", NULL));
        report_cell(s, strcmp(status, "done") ? PLOT_WEAK : PLOT_PLAIN, "%s", status);
        report_cell(s, PLOT_PLAIN, "%lld", whole(run, "samples"));
        report_cell(s, PLOT_PLAIN, "%s", word(run, "model", "name"));
        report_cell(s, PLOT_PLAIN, "%.12s", word(run, "build", "commit"));
        report_cell(s, PLOT_PLAIN, "%s", word(run, "command", NULL));
    }
    json_decref(runs);
    return 0;
}

int report_make(struct report *r, struct journal *j, const struct report_options *o, struct hone_error *e)
{
    const struct making m = {r, j, o, e};
    *r = (struct report){.n = 0};
    int rc = histories(&m);
    if (!rc)
        rc = comparisons(&m);
    if (!rc)
        rc = report_tasks(r, j, &o->filter, e);
    if (!rc)
        rc = report_devices(r, j, &o->filter, e);
    if (!rc)
        rc = newest_by_model(&m, "ladder", ladder_section);
    if (!rc)
        rc = newest_by_model(&m, "trace", trace_section);
    if (!rc)
        rc = newest_by_model(&m, "trace", collective_section);
    if (!rc)
        rc = checks(&m);
    if (!rc)
        rc = all_runs(&m);
    bool failed = r->nowhere.failed;
    for (size_t i = 0; i < r->n; i++)
        failed |= r->sections[i]->failed;
    if (!rc && failed)
        rc = err_set(e, HONE_ERESOURCE, "no memory for a report");
    if (rc)
        report_free(r);
    return rc;
}
