/* brief.c: the page that saves a worker from trying again what was tried.
 *
 * It is made from what is recorded and nothing else, anew each time: a brief that someone writes by hand is out of date with
 * the next run. It is one page, so it is cut: the newest runs, the first lines of a recipe; `journal show` has the rest. Runs
 * are found in three ways, for not everyone says which task a run was for: HONE_TASK (a note of the run), the same hypothesis,
 * or model and series. */
#include "lab/brief.h"

#include "lab/recipe.h"
#include "lab/stats.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 12, MAX_LOOKED_AT = 2000, MAX_RELATED = 8, MAX_LINES = 30 };

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- gathering */

struct finding {
    struct journal *j;
    const json_t *task;
    json_t *runs;
    int rc;
};

static bool is_of_task(struct finding *f, int64_t run, int64_t task, struct hone_error *e)
{
    json_t *notes = NULL, *note;
    size_t i;
    bool found = false;
    f->rc = journal_records(f->j, run, "note", &notes, e);
    json_array_foreach(notes, i, note) found =
        found || json_integer_value(json_object_get(json_object_get(note, "body"), "task")) == task;
    json_decref(notes);
    return found;
}

static bool is_of_model(const json_t *task, const json_t *run)
{
    const char *wanted = word(task, "model");
    const json_t *model = json_object_get(run, "model");
    return *wanted && (strstr(word(model, "name"), wanted) || !strncmp(word(model, "sha256"), wanted, strlen(wanted)));
}

/* The median of the first series that the task is about, or of the run's first. *fits: the run has one that the task is about.
 */
static void headline(struct journal *j, int64_t run, const char *wanted, char *text, size_t size, bool *fits)
{
    struct journal_series_list l = {0};
    struct hone_error ignored = {0};
    text[0] = 0;
    *fits = !*wanted;
    if (journal_series(j, run, &l, &ignored))
        return;
    for (size_t i = 0; i < l.n; i++) {
        bool ours = *wanted && fnmatch(wanted, l.list[i].name, 0) == 0;
        if (i && !(ours && !*fits))
            continue;
        double *x = l.list[i].values;
        stats_sort(x, l.list[i].n);
        snprintf(text, size, "%s median %.5g", l.list[i].name, stats_quantile(x, l.list[i].n, 0.5));
        *fits = *fits || ours;
    }
    journal_series_free(&l);
}

static int add_run(struct finding *f, const json_t *run, const char *line)
{
    char what[600];
    const char *outcome = word(json_object_get(run, "outcome"), "outcome"),
               *text = word(json_object_get(run, "outcome"), "text");
    const char *verdict = word(json_object_get(run, "verdict"), "verdict");
    snprintf(what, sizeof what, "%s%s%s%s%.150s%s%.150s", line, *line && *verdict ? "; " : "", verdict,
             (*line || *verdict) && (*outcome || *text) ? "; " : "", outcome, *outcome && *text ? ": " : "", text);
    json_t *one =
        json_pack("{s:O, s:O, s:O, s:O?, s:O?, s:s, s:s}", "id", json_object_get(run, "id"), "at", json_object_get(run, "at"),
                  "kind", json_object_get(run, "kind"), "hypothesis", json_object_get(run, "hypothesis"), "gates",
                  json_object_get(json_object_get(run, "recipe"), "gates"), "status", word(run, "status"), "what", what);
    return one ? json_array_append_new(f->runs, one) : -1;
}

static int find_runs(struct finding *f, struct hone_error *e)
{
    struct journal_filter filter = {.limit = MAX_LOOKED_AT};
    int64_t id = json_integer_value(json_object_get(f->task, "id"));
    json_t *all = NULL, *run;
    size_t i;
    int rc = journal_list(f->j, &filter, &all, e);
    json_array_foreach(all, i, run)
    {
        char line[300];
        bool fits;
        if (rc || json_array_size(f->runs) == MAX_RUNS)
            break;
        int64_t number = json_integer_value(json_object_get(run, "id"));
        headline(f->j, number, word(f->task, "series"), line, sizeof line, &fits);
        const char *hypothesis = word(f->task, "hypothesis");
        bool ours = (fits && is_of_model(f->task, run)) || (*hypothesis && !strcmp(hypothesis, word(run, "hypothesis"))) ||
                    is_of_task(f, number, id, e);
        rc = f->rc;
        if (!rc && ours && add_run(f, run, line))
            rc = err_set(e, HONE_ERESOURCE, "no memory for a brief");
    }
    json_decref(all);
    return rc;
}

/* Other tasks of the same model and series that came to an end, and the task's parent. */
static int find_related(struct queue *q, const json_t *task, json_t *related, struct hone_error *e)
{
    json_t *all = NULL, *one;
    size_t i;
    int rc = queue_list(q, NULL, &all, e);
    int64_t id = json_integer_value(json_object_get(task, "id")), parent = json_integer_value(json_object_get(task, "parent"));
    json_array_foreach(all, i, one)
    {
        int64_t other = json_integer_value(json_object_get(one, "id"));
        bool ended = !strcmp(word(one, "status"), "done") || !strcmp(word(one, "status"), "failed");
        bool alike = *word(task, "model") && !strcmp(word(task, "model"), word(one, "model")) &&
                     !strcmp(word(task, "series"), word(one, "series"));
        if (!rc && other != id && (other == parent || (ended && alike)) && json_array_size(related) < MAX_RELATED)
            rc = json_array_append(related, one) ? err_set(e, HONE_ERESOURCE, "no memory for a brief") : 0;
    }
    json_decref(all);
    return rc;
}

int brief_make(struct queue *q, struct journal *j, int64_t id, const struct tiers *tiers, json_t **brief, struct hone_error *e)
{
    json_t *task = NULL, *events = NULL, *related = json_array(), *best = NULL;
    struct finding f = {.j = j, .runs = json_array()};
    *brief = NULL;
    int rc = queue_get(q, id, &task, e);
    f.task = task;
    rc = rc ? rc : queue_events(q, id, &events, e);
    rc = rc ? rc : find_related(q, task, related, e);
    if (!rc && j)
        rc = find_runs(&f, e);
    if (!rc && j && *word(task, "tier"))
        rc = recipe_best(j, word(task, "tier"), *word(task, "model") ? word(task, "model") : NULL, &best, e);
    if (!rc && !(*brief = json_pack("{s:i, s:O, s:O, s:O, s:O, s:O?}", "schema_version", 1, "task", task, "events", events,
                                    "related", related, "runs", f.runs, "best", best)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a brief");
    const struct tier *tier = !rc && tiers ? tiers_find(tiers, word(task, "tier")) : NULL;
    if (tier && !best)
        json_object_set_new(*brief, "base", json_string(tier->base ? tier->base : ""));
    struct recipe r = {0};
    struct hone_error unread = {0};
    if (!rc && *word(task, "recipe")) {
        bool readable = recipe_read(&r, word(task, "recipe"), &unread) == 0;
        json_object_set_new(*brief, "recipe",
                            json_pack("{s:s, s:s, s:s}", "file", word(task, "recipe"), "text", readable ? r.text : "", "error",
                                      readable ? "" : unread.message));
        recipe_free(&r);
    }
    json_decref(task);
    json_decref(events);
    json_decref(related);
    json_decref(best);
    json_decref(f.runs);
    return rc;
}

/* ---- the page */

static void put(FILE *to, const char *text, size_t limit)
{
    for (const unsigned char *p = (const unsigned char *)text; *p && limit; p++, limit -= (*p & 0xc0) != 0x80)
        fputc((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) ? '?' : *p,
              to);
}

static void put_field(FILE *to, const json_t *o, const char *label, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_string(v)) {
        fprintf(to, "%-14s", label);
        put(to, json_string_value(v), 2000);
        fputc('\n', to);
    } else if (json_is_integer(v)) {
        fprintf(to, "%-14s%lld\n", label, (long long)json_integer_value(v));
    }
}

/* At most MAX_LINES lines of a text, indented. */
static void put_block(FILE *to, const char *text)
{
    int lines = 0;
    for (const char *p = text; *p && lines < MAX_LINES; lines++) {
        size_t n = strcspn(p, "\n");
        char line[240];
        snprintf(line, sizeof line, "%.*s", n > 230 ? 230 : (int)n, p);
        fputs("    ", to);
        put(to, line, 230);
        fputc('\n', to);
        p += n + (p[n] == '\n');
        if (lines + 1 == MAX_LINES && *p)
            fputs("    ...\n", to);
    }
}

static void put_task(FILE *to, const json_t *t)
{
    fprintf(to, "task %lld: ", (long long)json_integer_value(json_object_get(t, "id")));
    put(to, word(t, "title"), 400);
    fputs("\n\n", to);
    put_field(to, t, "status", "status");
    put_field(to, t, "reason", "reason");
    put_field(to, t, "hypothesis", "hypothesis");
    if (json_is_number(json_object_get(t, "expected_gain")))
        fprintf(to, "%-14s%+.3g %%\n", "expected gain", 100 * json_number_value(json_object_get(t, "expected_gain")));
    put_field(to, t, "model", "model");
    put_field(to, t, "series", "series");
    put_field(to, t, "tier", "tier");
    if (json_integer_value(json_object_get(t, "budget")))
        put_field(to, t, "budget, s", "budget");
    put_field(to, t, "role", "role");
    put_field(to, t, "parent", "parent");
    if (*word(t, "work")) {
        fputs("\nwhat to do\n", to);
        put_block(to, word(t, "work"));
    }
}

/* What was handed in, in words: by hone iterate a decision and its reason, by others a text; and the runs. */
static void put_result(FILE *to, const json_t *result)
{
    const json_t *runs = json_object_get(result, "runs"), *run;
    const char *said = *word(result, "why") ? word(result, "why") : word(result, "text");
    size_t i;
    put(to, word(result, "decision"), 40);
    fputs(*word(result, "decision") && *said ? ": " : "", to);
    put(to, said, 200);
    const char *before = *word(result, "decision") || *said ? " (run" : "(run";
    json_array_foreach(runs, i, run) if (json_is_integer(run) && i < MAX_RUNS)
        fprintf(to, "%s %lld", i ? "," : before, (long long)json_integer_value(run));
    fputs(json_array_size(runs) ? ")" : "", to);
}

/* The fields that were edited; what each of them was, `queue show` has. */
static void put_fields(FILE *to, const json_t *changes)
{
    const char *key, *before = "";
    json_t *value;
    json_object_foreach((json_t *)changes, key, value)
    {
        fprintf(to, "%s%s", before, key);
        before = ", ";
    }
}

/* The same of an event, whose detail is a result or what was edited, as text, or a reason. */
static void put_detail(FILE *to, const json_t *event)
{
    json_t *detail = json_loads(word(event, "detail"), 0, NULL);
    if (json_is_object(detail) && !strcmp(word(event, "what"), "edited"))
        put_fields(to, detail);
    else if (json_is_object(detail) && (!strcmp(word(event, "what"), "done") || !strcmp(word(event, "what"), "corrected")))
        put_result(to, detail);
    else
        put(to, word(event, "detail"), 200);
    json_decref(detail);
}

static void put_gates(FILE *to, const json_t *gates)
{
    const json_t *one;
    size_t i, left = 120;
    json_array_foreach(gates, i, one)
    {
        size_t n = json_string_length(one);
        if (!json_is_string(one))
            continue;
        if (n + 1 > left) { /* a word, whole or not at all */
            fputs(i ? " ..." : "...", to);
            break;
        }
        fputs(i ? " " : "", to);
        put(to, json_string_value(one), n);
        left -= n + 1;
    }
    fputs(json_array_size(gates) ? "" : "no gates", to);
}

static void put_tried(FILE *to, const json_t *brief)
{
    json_t *one, *events = json_object_get(brief, "events"), *related = json_object_get(brief, "related"),
                 *runs = json_object_get(brief, "runs");
    size_t i;
    bool any = false;
    fputs("\nwhat was tried before\n", to);
    json_array_foreach(events, i, one)
    {
        const char *what = word(one, "what");
        if (!strcmp(what, "added") || !strcmp(what, "ready"))
            continue;
        fprintf(to, "    %.16s  %s%s", word(one, "at"), what, *word(one, "who") ? " by " : "");
        put(to, word(one, "who"), 60);
        fputs(*word(one, "detail") ? ": " : "", to);
        put_detail(to, one);
        fputc('\n', to);
        any = true;
    }
    json_array_foreach(related, i, one)
    {
        const json_t *result = json_object_get(one, "result");
        fprintf(to, "    task %lld (%s) ", (long long)json_integer_value(json_object_get(one, "id")), word(one, "status"));
        put(to, word(one, "title"), 100);
        fputs(result || *word(one, "reason") ? ": " : "", to);
        if (result)
            put_result(to, result);
        else
            put(to, word(one, "reason"), 200);
        fputc('\n', to);
        any = true;
    }
    json_array_foreach(runs, i, one)
    {
        fprintf(to, "    run %lld  %.16s  %s  ", (long long)json_integer_value(json_object_get(one, "id")), word(one, "at"),
                word(one, "kind"));
        put_gates(to, json_object_get(one, "gates"));
        fputs("  ", to);
        put(to, *word(one, "what") ? word(one, "what") : word(one, "status"), 200);
        if (*word(one, "hypothesis")) {
            fputs("  (", to);
            put(to, word(one, "hypothesis"), 100);
            fputc(')', to);
        }
        fputc('\n', to);
        any = true;
    }
    if (!any)
        fputs("    nothing that is recorded\n", to);
}

/* One word to a shell. */
static void put_word(FILE *to, const char *before, const char *text)
{
    fprintf(to, "%s'", before);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", to);
        else
            fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
    fputc('\'', to);
}

/* What is handed in must be against the best of the tier or, where nothing was promoted yet, against what the tier says: its
 * base, or hone by itself. The output is held to the same, but for a base that a tier only names: that is nobody's proof. */
static void put_commands(FILE *to, const json_t *t, const json_t *best, const char *base)
{
    long long id = json_integer_value(json_object_get(t, "id"));
    const char *tier = word(t, "tier");
    const char *start = base ? *base ? "base.recipe" : "base" : *word(t, "recipe") ? word(t, "recipe") : "base";
    bool beaten = json_is_object(best);
    fprintf(to,
            "\ncommands (HONE_TASK=%lld makes runs known as this task's)\n"
            "    hone queue take %lld --worker NAME          the token is in what it prints\n"
            "    hone queue renew %lld --token TOKEN         before the lease runs out\n",
            id, id, id);
    if (beaten) {
        fprintf(to, "    hone recipe best --tier %s", tier);
        if (*word(t, "model"))
            put_word(to, " --model ", word(t, "model"));
        fputs(" >best.recipe    what has to be beaten\n", to);
    } else if (base && *base) {
        put_word(to, "    echo ", base);
        fputs(" >base.recipe    what has to be beaten\n", to);
    }
    fprintf(to,
            "    hone recipe lint CANDIDATE.recipe\n"
            "    hone verify -m MODEL %s--b CANDIDATE.recipe\n"
            "    hone bench -m MODEL --recipe CANDIDATE.recipe -p 0 -n 64\n",
            beaten ? "--a best.recipe " : "");
    put_word(to, "    hone ab -m MODEL --a ", beaten ? "best.recipe" : start);
    fputs(" --b CANDIDATE.recipe\n", to);
    if (*tier)
        fprintf(to, "    hone tier check %s CANDIDATE.recipe --promotable\n", tier);
    fprintf(to,
            "    hone queue done %lld --token TOKEN --run RUN 'what came of it'\n"
            "    hone queue fail %lld --token TOKEN 'why'    --retry: somebody else may try\n",
            id, id);
}

void brief_write(const json_t *brief, FILE *to)
{
    const json_t *task = json_object_get(brief, "task"), *recipe = json_object_get(brief, "recipe"),
                 *best = json_object_get(brief, "best");
    put_task(to, task);
    if (recipe) {
        fputs("\nthe recipe to start from, ", to);
        put(to, word(recipe, "file"), 200);
        fputc('\n', to);
        put_block(to, *word(recipe, "error") ? word(recipe, "error") : word(recipe, "text"));
    }
    if (json_is_object(best)) {
        fprintf(to, "\nthe best recipe of tier %s, promoted by run %lld\n", word(best, "tier"),
                (long long)json_integer_value(json_object_get(best, "run")));
        put_block(to, word(best, "text"));
    }
    put_tried(to, brief);
    put_commands(to, task, best, json_string_value(json_object_get(brief, "base")));
}
