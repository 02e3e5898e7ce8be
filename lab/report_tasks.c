/* report_tasks.c: what the loop (hone iterate) decided: a row a task, the newest first, with what was expected and what came of
 * it. The decision is read, not derived: it is an act, and the comparison that it rests on stands in the section before,
 * derived anew. */
#include "lab/report.h"

#include <math.h>
#include <string.h>

enum { SHOWN_TASKS = 60 };

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static enum plot_tone tone_of(const char *decision)
{
    if (!strcmp(decision, "promoted") || !strcmp(decision, "passed"))
        return PLOT_GOOD;
    return !strcmp(decision, "wrong") || !strcmp(decision, "failed") || !strcmp(decision, "slower") ? PLOT_BAD : PLOT_WEAK;
}

static void percent_cell(struct report_section *s, enum plot_tone tone, const json_t *value)
{
    if (json_is_number(value))
        report_cell(s, tone, "%+.1f %%", 100 * json_number_value(value));
    else
        report_cell(s, tone, "-");
}

static void task_row(struct report_section *s, const json_t *run, const json_t *d)
{
    const char *decision = word(d, "decision");
    enum plot_tone tone = tone_of(decision);
    const json_t *lo = json_object_get(d, "lo"), *hi = json_object_get(d, "hi");
    report_cell(s, PLOT_PLAIN, "%lld", (long long)json_integer_value(json_object_get(d, "task")));
    report_cell(s, PLOT_PLAIN, "%s", word(d, "title"));
    report_cell(s, tone, "%s", decision);
    percent_cell(s, PLOT_PLAIN, json_object_get(run, "expected_gain"));
    percent_cell(s, tone, json_object_get(d, "gain"));
    if (json_is_number(lo) && json_is_number(hi))
        report_cell(s, PLOT_PLAIN, "%+.1f to %+.1f %%", 100 * json_number_value(lo), 100 * json_number_value(hi));
    else if (json_is_number(lo) || json_is_number(hi)) /* it ended early: the sequence's, open at one end */
        report_cell(s, PLOT_PLAIN, "at %s %+.1f %%", json_is_number(lo) ? "least" : "most",
                    100 * json_number_value(json_is_number(lo) ? lo : hi));
    else
        report_cell(s, PLOT_PLAIN, "-");
    report_cell(s, PLOT_PLAIN, "%s", word(d, "output"));
    report_cell(s, PLOT_PLAIN, "%s", word(d, "why"));
}

int report_tasks(struct report *r, struct journal *j, const struct journal_filter *filter, struct hone_error *e)
{
    static const char *const columns[] = {"task", "title", "decision", "expected", "measured", "interval", "output", "why"};
    struct journal_filter f = *filter;
    struct report_section *s = NULL;
    json_t *runs = NULL, *run;
    size_t i;
    if (f.kind && strcmp(f.kind, "iterate") != 0)
        return 0;
    f.kind = "iterate";
    f.limit = f.limit && f.limit < SHOWN_TASKS ? f.limit : SHOWN_TASKS;
    int rc = journal_list(j, &f, &runs, e);
    json_array_foreach(runs, i, run)
    {
        json_t *records = NULL;
        rc = rc ? rc : journal_records(j, json_integer_value(json_object_get(run, "id")), "decision", &records, e);
        const json_t *last = json_object_get(json_array_get(records, json_array_size(records) - 1), "body");
        if (last && !s) {
            s = report_section(r, "Tasks");
            report_columns(s, columns, sizeof columns / sizeof *columns);
            s->table.numbers = false;
            report_say(s, "What hone iterate decided, the newest first. Gains are those of the comparison with the recipe that "
                          "was to be beaten.");
        }
        if (last)
            task_row(s, run, last);
        json_decref(records);
    }
    json_decref(runs);
    return rc;
}
