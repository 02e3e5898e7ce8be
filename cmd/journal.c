/* journal.c: hone journal: looking at what was recorded, and remarking on it. The subcommands that compute (compare, regress,
 * plot) are in journal_series.c, those for files of it (verify, export, import) in journal_files.c. */
#include "cmd/journal.h"

#include "lab/stats.h"
#include "model/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct journal_view journal_view = {.limit = -1, .level = 99, .alpha = 1, .margin = 0.5f};

static const struct option *options(int *n)
{
    static const struct option table[] = {
        JOURNAL_OPTION,
        JOURNAL_FILTER_OPTIONS,
        {"--limit", OPTION_INT, &journal_view.limit, "N", "the newest N runs (0: all; default: list 20, regress and plot 1000)",
         0, 1 << 30},
        {"--level", OPTION_FLOAT, &journal_view.level, "PERCENT", "of the intervals of compare", 50, 99.99},
        {"--alpha", OPTION_FLOAT, &journal_view.alpha, "PERCENT", "chance of a false alarm of regress, in all series together",
         0.01, 20},
        {"--margin", OPTION_FLOAT, &journal_view.margin, "PERCENT", "regress: a smaller change for the worse is no failure", 0,
         100},
        {"--outcome", OPTION_TEXT, &journal_view.outcome, "WORD", "note: what became of the run: kept, lost, inconclusive", 0,
         0},
        {"--supersedes", OPTION_TEXT, &journal_view.supersedes, "ID", "note: the run stands in the place of run ID from now on",
         0, 0},
        {"--out", OPTION_OUTPUT, &journal_view.out, "FILE", "export: write there instead of to stdout", 0, 0},
        {"--width", OPTION_INT, &journal_view.width, "N", "plot: columns (0: the terminal's)", 0, 1000},
        {"--height", OPTION_INT, &journal_view.height, "N", "plot: lines (0: 24)", 0, 500},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- text */

void journal_put(const char *text, int width, bool pad)
{
    int n = 0;
    const unsigned char *p = (const unsigned char *)(text ? text : "");
    for (; *p && n < width; n++) {
        if (!utf8_sequence((const char *)p, strnlen((const char *)p, 4))) {
            putchar('?');
            p++;
            continue;
        }
        if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)) { /* C0 and C1 drive terminals */
            putchar('?');
            p += *p == 0xc2 ? 2 : 1;
            continue;
        }
        do /* a whole character: its first byte and those that continue it */
            putchar(*p++);
        while ((*p & 0xc0) == 0x80);
    }
    for (; pad && n < width; n++)
        putchar(' ');
}

const char *journal_word(const json_t *o, const char *key, const char *inner)
{
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(inner ? json_object_get(v, inner) : v);
    return s ? s : "";
}

void journal_put_time(const char *iso)
{
    char text[32];
    snprintf(text, sizeof text, "%.16s", iso);
    if (strlen(text) == 16 && text[10] == 'T')
        text[10] = ' ';
    journal_put(text, 16, true);
}

void journal_put_json(const json_t *value, int width)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    journal_put(json_is_string(value) ? json_string_value(value) : text ? text : "-", width, false);
    free(text);
}

/* ---- options */

static int parse_since(const char *text, int64_t *ms)
{
    char *end;
    long n = strtol(text, &end, 10);
    long seconds = !strcmp(end, "d") ? 86400 : !strcmp(end, "h") ? 3600 : !strcmp(end, "m") ? 60 : 0;
    if (end != text && seconds && n >= 0 && n < 1000000) {
        *ms = ((int64_t)time(NULL) - n * seconds) * 1000;
        return 0;
    }
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ",
                                        "%Y-%m-%d %H:%M"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm t = {.tm_mday = 1};
        const char *rest = strptime(text, forms[i], &t);
        if (rest && !*rest) {
            *ms = (int64_t)timegm(&t) * 1000;
            return 0;
        }
    }
    return cmd_refuse(HONE_EUSAGE, "--since %s: a date (2026-11-30), a time (2026-11-30T12:00, UTC), or an age (7d, 12h, 30m)",
                      text);
}

int journal_view_filter(struct journal_filter *f, int limit)
{
    const struct journal_view *v = &journal_view;
    *f = (struct journal_filter){.kind = v->kind,
                                 .model = v->model,
                                 .recipe = v->recipe,
                                 .machine = v->machine,
                                 .series = v->series,
                                 .limit = v->limit >= 0 ? v->limit : limit,
                                 .superseded = v->all};
    return v->since ? parse_since(v->since, &f->since) : 0;
}

/* A run as it is named: its id, or with last the newest (0) or the Nth before it (-N). Nothing is opened for what is neither. */
struct run_name {
    const char *text;
    int64_t number;
    bool last;
};

static int read_name(const char *text, struct run_name *name)
{
    static const char last[] = "last";
    *name = (struct run_name){.text = text, .last = !strncmp(text, last, strlen(last))};
    const char *digits = name->last ? text + strlen(last) : text;
    char *end;
    errno = 0;
    int64_t n = name->number = strtoll(digits, &end, 10);
    bool number = end != digits && !*end && !errno && (name->last ? n < 0 && n > -(1 << 20) : n > 0);
    if (number || (name->last && !*digits))
        return 0;
    return cmd_refuse(HONE_EUSAGE,
                      "journal: '%s' names no run: its id as hone journal list shows it, last, or last-1 for the one before", text);
}

static int find_run(struct journal *j, const struct run_name *name, int64_t *id)
{
    struct hone_error e = {0};
    struct journal_filter f = {.limit = (int)(1 - name->number), .superseded = true};
    json_t *runs;
    *id = name->number;
    if (!name->last)
        return 0;
    if (journal_list(j, &f, &runs, &e))
        return cmd_fail(&e);
    size_t n = json_array_size(runs);
    bool there = n == (size_t)f.limit;
    *id = there ? json_integer_value(json_object_get(json_array_get(runs, n - 1), "id")) : 0;
    json_decref(runs);
    return there ? 0 : cmd_refuse(HONE_EINPUT, "journal: no run %s: %s has %zu", name->text, journal_path(j), n);
}

/* ---- list */

/* The first series of a run and its median (bench's own column is tokens over the time of all samples, as llama-bench's). */
static void put_headline(struct journal *j, int64_t id)
{
    struct journal_series_list l;
    struct hone_error ignored = {0};
    if (journal_series(j, id, &l, &ignored))
        return;
    if (l.n) {
        double *x = l.list[0].values;
        stats_sort(x, l.list[0].n);
        journal_put(l.list[0].name, 40, false);
        printf(" median %.5g", stats_quantile(x, l.list[0].n, 0.5));
    }
    journal_series_free(&l);
}

/* What there is to say of a run in a few words: what became of it, else what was concluded, else what was measured, with what
 * was hoped. */
static void put_story(struct journal *j, const json_t *run)
{
    const char *outcome = journal_word(run, "outcome", "outcome"), *text = journal_word(run, "outcome", "text");
    const char *verdict = journal_word(run, "verdict", "verdict"), *hypothesis = journal_word(run, "hypothesis", NULL);
    if (*outcome || *text) {
        journal_put(outcome, 20, false);
        fputs(*outcome && *text ? ": " : "", stdout);
        journal_put(text, 60, false);
        return;
    }
    if (*verdict)
        journal_put(verdict, 40, false);
    else
        put_headline(j, json_integer_value(json_object_get(run, "id")));
    if (*hypothesis) {
        fputs("; ", stdout);
        journal_put(hypothesis, 60, false);
        putchar('?');
    }
}

static void put_run(struct journal *j, const json_t *run)
{
    printf("%7lld  ", (long long)json_integer_value(json_object_get(run, "id")));
    journal_put_time(journal_word(run, "at", NULL));
    printf("  ");
    journal_put(journal_word(run, "kind", NULL), 10, true);
    putchar(' ');
    journal_put(journal_word(run, "model", "name"), 24, true);
    putchar(' ');
    journal_put(journal_word(run, "build", "commit"), 12, true);
    putchar(' ');
    journal_put(journal_word(run, "recipe", "hash"), 8, true);
    printf(" %7lld  ", (long long)json_integer_value(json_object_get(run, "samples")));
    journal_put(journal_word(run, "status", NULL), 11, true);
    putchar(' ');
    put_story(j, run);
    putchar('\n');
}

static int run_list(struct journal *j)
{
    struct hone_error e = {0};
    struct journal_filter f;
    json_t *runs, *run;
    size_t i;
    int rc = journal_view_filter(&f, 20);
    if (rc)
        return rc;
    if (journal_list(j, &f, &runs, &e))
        return cmd_fail(&e);
    if (!strcmp(output_format, "json"))
        return output_print(runs);
    if (!output_json() && json_array_size(runs))
        printf("%7s  %-16s  %-10s %-24s %-12s %-8s %7s  %-11s %s\n", "id", "at (UTC)", "kind", "model", "build", "recipe",
               "samples", "status", "what");
    json_array_foreach(runs, i, run)
    {
        if (output_json() && (rc = output_print(json_incref(run))))
            break;
        if (!output_json())
            put_run(j, run);
    }
    if (!json_array_size(runs))
        fprintf(stderr, "hone: no run in %s is like that\n", journal_path(j));
    json_decref(runs);
    return rc;
}

/* ---- show */

/* A value under its name; of an object each member so, its name indented. Lists stay one line of JSON: -o json has them whole. */
static void put_line(const char *name, const json_t *value, int indent)
{
    const char *key;
    json_t *member;
    if (!value || json_is_null(value))
        return;
    printf("%*s", indent, "");
    journal_put(name, indent ? 18 : 14, true);
    if (!json_is_object(value)) {
        putchar(' ');
        journal_put_json(value, 200);
        putchar('\n');
        return;
    }
    putchar('\n');
    json_object_foreach((json_t *)value, key, member) put_line(key, member, indent + 2);
}

static int put_series(struct journal *j, int64_t id)
{
    struct hone_error e = {0};
    struct journal_series_list l;
    if (journal_series(j, id, &l, &e))
        return cmd_fail(&e);
    if (l.n)
        printf("\n%-44s %7s %12s %12s %12s %12s %12s\n", "series", "samples", "least", "quarter", "median", "three", "largest");
    for (size_t i = 0; i < l.n; i++) {
        double *x = l.list[i].values;
        size_t n = l.list[i].n;
        stats_sort(x, n);
        journal_put(l.list[i].name, 44, true);
        printf(" %7zu %12.6g %12.6g %12.6g %12.6g %12.6g\n", n, x[0], stats_quantile(x, n, 0.25), stats_quantile(x, n, 0.5),
               stats_quantile(x, n, 0.75), x[n - 1]);
    }
    journal_series_free(&l);
    return 0;
}

/* What a body says in words and numbers, "name value, ..."; of what is nested in it only the name. */
static void put_body(const json_t *body)
{
    const char *key, *comma = "";
    json_t *member;
    json_object_foreach((json_t *)body, key, member)
    {
        fputs(comma, stdout);
        comma = ", ";
        journal_put(key, 40, false);
        putchar(' ');
        if (json_is_object(member) || json_is_array(member))
            printf("(%zu)", json_is_object(member) ? json_object_size(member) : json_array_size(member));
        else
            journal_put_json(member, 80);
    }
}

static void put_records(const json_t *records)
{
    json_t *record;
    size_t i;
    bool any = false;
    json_array_foreach(records, i, record)
    {
        if (!strcmp(journal_word(record, "kind", NULL), "end")) /* stands above */
            continue;
        if (!any)
            printf("\n%7s  %-16s  %s\n", "id", "at (UTC)", "record (whole with -o json)");
        any = true;
        printf("%7lld  ", (long long)json_integer_value(json_object_get(record, "id")));
        journal_put_time(journal_word(record, "at", NULL));
        printf("  ");
        journal_put(journal_word(record, "kind", NULL), 9, true);
        put_body(json_object_get(record, "body"));
        putchar('\n');
    }
}

static int collect_sample(void *user, const struct journal_sample *s)
{
    char at[32];
    journal_time(s->at, at);
    json_t *one = json_pack("{s:I, s:s, s:s, s:f, s:O}", "id", (json_int_t)s->id, "at", at, "series", s->series, "value",
                            s->value, "more", s->more);
    return one ? json_array_append_new(user, one) : HONE_ERESOURCE;
}

/* The run, with its records, and (as JSON) its samples, all of it. */
static int show_json(struct journal *j, int64_t id, json_t *run, json_t *records, json_t *derived, bool agrees)
{
    struct hone_error e = {0};
    json_t *samples = json_array();
    int rc = journal_each_sample(j, id, collect_sample, samples, &e);
    if (rc) {
        json_decref(samples);
        return e.code ? cmd_fail(&e) : cmd_refuse(HONE_ERESOURCE, "no memory for the samples");
    }
    json_object_set_new(run, "samples", samples);
    json_object_set(run, "records", records);
    if (derived) {
        json_object_set(run, "derived", derived);
        json_object_set_new(run, "agrees", json_boolean(agrees));
    }
    return output_print(json_incref(run));
}

static void show_text(const json_t *run)
{
    static const char *const parts[] = {"command", "hypothesis", "build", "machine", "model",
                                        "recipe",  "config",     "state", "end"};
    printf("%-14s %lld%s\n", "run", (long long)json_integer_value(json_object_get(run, "id")),
           json_is_true(json_object_get(run, "imported")) ? " (imported)" : "");
    put_line("at", json_object_get(run, "at"), 0);
    put_line("kind", json_object_get(run, "kind"), 0);
    put_line("status", json_object_get(run, "status"), 0);
    const json_t *gain = json_object_get(run, "expected_gain");
    if (json_is_number(gain))
        printf("%-14s %+.3g %%\n", "expected gain", 100 * json_number_value(gain));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        put_line(parts[i], json_object_get(run, parts[i]), 0);
    put_line("record", json_object_get(run, "record"), 0);
}

static int run_show(struct journal *j, int64_t id)
{
    struct hone_error e = {0};
    json_t *run = NULL, *records = NULL, *derived = NULL;
    bool agrees = true;
    int rc = 0;
    if (journal_get(j, id, &run, &e) || journal_records(j, id, NULL, &records, &e) ||
        journal_rederive(j, run, &derived, &agrees, &e))
        rc = cmd_fail(&e);
    else if (output_json())
        rc = show_json(j, id, run, records, derived, agrees);
    else {
        show_text(run);
        rc = put_series(j, id);
        put_records(records);
        if (derived) {
            printf("\nverdict, derived again from the samples and checks: ");
            journal_put_json(derived, 1000);
            printf("\n%s\n", !json_object_get(run, "verdict") ? "none was recorded"
                             : agrees                         ? "it is the one that was recorded"
                                                              : "NOT the one that was recorded");
        }
    }
    json_decref(run);
    json_decref(records);
    json_decref(derived);
    return rc ? rc : agrees ? output_flush() : -HONE_ECHECK;
}

/* ---- note */

static struct run_name superseded;

/* What is asked, before a journal is opened. What became of a run is for a person to say; win and loss are for the lab, which derives
 * them from samples each time. */
static int check_note(const char *text)
{
    static const char *const words[] = {"kept", "lost", "inconclusive"};
    const struct journal_view *v = &journal_view;
    bool known = !v->outcome;
    if (!text && !v->outcome && !v->supersedes)
        return cmd_refuse(HONE_EUSAGE, "journal: note what? give a text, --outcome or --supersedes");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        known |= v->outcome && !strcmp(v->outcome, words[i]);
    if (!known)
        return cmd_refuse(HONE_EUSAGE, "--outcome %s: kept, lost and inconclusive are possible; verdicts are derived from what was measured",
                          v->outcome);
    return v->supersedes ? read_name(v->supersedes, &superseded) : 0;
}

static int run_note(struct journal *j, int64_t id, const char *text)
{
    struct hone_error e = {0};
    const struct journal_view *v = &journal_view;
    int64_t old = 0, record = 0;
    if (v->supersedes) {
        int rc = find_run(j, &superseded, &old);
        if (rc)
            return rc;
        if (journal_supersede(j, id, old, text, &e))
            return cmd_fail(&e);
    }
    if (text || v->outcome) {
        json_t *body = json_object();
        int failed = v->outcome ? json_object_set_new(body, "outcome", json_string(v->outcome)) : 0;
        if (text)
            failed |= json_object_set_new(body, "text", json_string(text));
        int rc = failed ? cmd_refuse(HONE_EUSAGE, "journal: a note that is no UTF-8") : 0;
        if (!rc && !(v->supersedes && !v->outcome) && journal_record(j, id, v->outcome ? "outcome" : "note", body, &record, &e))
            rc = cmd_fail(&e);
        json_decref(body);
        if (rc)
            return rc;
    }
    if (output_json())
        return output_print(json_pack("{s:I, s:I}", "run", (json_int_t)id, "record", (json_int_t)record));
    printf("noted%s\n", old ? "; lists leave the superseded run out" : "");
    return 0;
}

/* ---- */

/* name, fewest and most arguments behind it, how many of them are ids. */
static const struct subcommand {
    const char *name;
    int least, most, ids;
} subcommands[] = {{"list", 0, 0, 0}, {"show", 1, 1, 1},   {"compare", 2, 2, 2}, {"regress", 0, 0, 0}, {"plot", 0, 8, 8},
                   {"note", 1, 2, 1}, {"verify", 0, 1, 0}, {"export", 0, 1, 1},  {"import", 1, 1, 0}};

static int run_subcommand(const struct subcommand *c, struct journal *j, int n, char **args, const int64_t *ids)
{
    if (!strcmp(c->name, "list"))
        return run_list(j);
    if (!strcmp(c->name, "show"))
        return run_show(j, ids[0]);
    if (!strcmp(c->name, "compare"))
        return journal_show_compare(j, ids[0], ids[1]);
    if (!strcmp(c->name, "regress"))
        return journal_show_regress(j);
    if (!strcmp(c->name, "plot"))
        return journal_show_plot(j, n, ids);
    if (!strcmp(c->name, "note"))
        return run_note(j, ids[0], n > 1 ? args[1] : NULL);
    if (!strcmp(c->name, "verify"))
        return journal_show_verify(j, n ? args[0] : NULL);
    return journal_show_export(j, n ? ids[0] : 0);
}

static int run(int n_args, char **args)
{
    const struct subcommand *c = NULL;
    struct hone_error e = {0};
    struct journal *j = NULL;
    char path[4096];
    int64_t ids[8] = {0};
    struct run_name names[8] = {{NULL, 0, false}};
    int rc = 0;
    if (!n_args)
        return cmd_refuse(HONE_EUSAGE, "journal: what? list, show, compare, regress, plot, note, verify, export or import");
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands && !c; i++)
        if (!strcmp(args[0], subcommands[i].name))
            c = &subcommands[i];
    if (!c)
        return cmd_refuse(HONE_EUSAGE,
                          "journal: no '%s'; list, show, compare, regress, plot, note, verify, export and import are possible",
                          args[0]);
    int n = n_args - 1;
    if (n < c->least || n > c->most)
        return cmd_refuse(HONE_EUSAGE, "journal %s: %d argument(s), not %d; see hone journal --help", c->name,
                          n < c->least ? c->least : c->most, n);
    for (int i = 0; i < n && i < c->ids && !rc; i++)
        rc = read_name(args[1 + i], &names[i]);
    bool note = !strcmp(c->name, "note");
    if (!rc && note)
        rc = check_note(n > 1 ? args[2] : NULL);
    if (rc)
        return rc;
    if (!cmd_journal_path(path, sizeof path, false))
        return cmd_refuse(HONE_ERESOURCE,
                          "neither HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the journal is: give --journal FILE");
    if (!strcmp(c->name, "import"))
        return journal_take_import(args[1]);
    if (journal_open(&j, path, note && !access(path, F_OK) ? JOURNAL_WRITE : JOURNAL_READ, &e)) /* there is nothing to note in a new one */
        return cmd_fail(&e);
    for (int i = 0; i < n && i < c->ids && !rc; i++)
        rc = find_run(j, &names[i], &ids[i]);
    rc = rc ? rc : run_subcommand(c, j, n, args + 1, ids);
    journal_close(j);
    return rc;
}

const struct command command_journal = {
    "journal",
    "what was measured, judged and decided: list, show, compare, regress, plot, note, verify, export, import",
    "list | show ID | compare ID ID | regress | plot [ID ...] | note ID [TEXT] | verify [HEAD] | export [ID] | import FILE",
    "hone journal list --kind bench --since 7d\n  hone journal show last\n  hone journal show 12 -o json\n  hone journal compare 12 31\n"
    "  hone journal regress --series 'tg* t/s'\n  hone journal plot --series 'tg128 t/s'\n"
    "  hone journal note 31 --outcome lost 'no gain beyond the noise'\n  hone journal export 31 --out docs/results/31.jsonl",
    options,
    run,
    NULL,
};
