/* report_devices.c: what was measured over several devices, with one device beside it: a row a run of `hone bench`, the newest
 * first, and what its ranks had to tell each other in each step. A rate over several devices without that of one says nothing
 * of what they are good for, so a run that lacks it shows a gap and not a number. */
#include "lab/report.h"

#include "lab/identity.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_DEVICES = 60 };

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static long long whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* "add 31, plain 1": the paths that collectives took. */
static void paths_cell(struct report_section *s, const json_t *paths)
{
    char text[200] = "";
    const char *name;
    json_t *n;
    bool fell = false;
    json_object_foreach((json_t *)(uintptr_t)paths, name, n)
    {
        size_t used = strlen(text);
        if (json_integer_value(n) > 0)
            snprintf(text + used, sizeof text - used, "%s%.30s %lld", used ? ", " : "", name, (long long)json_integer_value(n));
        fell |= !strcmp(name, "fallback") && json_integer_value(n) > 0;
    }
    report_cell(s, fell ? PLOT_BAD : PLOT_PLAIN, "%s", text);
}

static void row_cells(struct report_section *s, const json_t *run, const json_t *row)
{
    const json_t *c = json_object_get(row, "collectives"), *times = json_object_get(row, "times_one_device");
    double rate = json_number_value(json_object_get(row, "total_ts")), x = json_number_value(times);
    const json_t *model = json_object_get(run, "model");
    report_cell(s, PLOT_PLAIN, "%lld", whole(run, "id"));
    report_cell(s, PLOT_PLAIN, "%s", word(model, "name"));
    report_cell(s, PLOT_PLAIN, "%s", word(row, "test"));
    report_cell(s, PLOT_PLAIN, "%lld %s", whole(row, "n_devices"), word(c, "transport"));
    bool shares = *word(row, "tensor_split") && strcmp(word(row, "tensor_split"), "0.00") != 0;
    report_cell(s, PLOT_PLAIN, "%s", word(row, shares ? "tensor_split" : "devices"));
    report_cell(s, PLOT_PLAIN, "%lld", whole(row, "n_threads"));
    report_cell(s, PLOT_PLAIN, "%.2f", rate);
    if (json_is_number(times) && x > 0) {
        report_cell(s, PLOT_PLAIN, "%.2f", rate / x);
        report_cell(s, x > 1 ? PLOT_GOOD : PLOT_WEAK, "%.3f", x);
    } else {
        report_cell(s, PLOT_WEAK, "-");
        report_cell(s, PLOT_WEAK, "-");
    }
    report_cell(s, PLOT_PLAIN, "%lld", whole(c, "count") + whole(c, "gathers"));
    report_cell(s, PLOT_PLAIN, "%.1f", json_number_value(json_object_get(c, "bytes")) / 1e3);
    paths_cell(s, json_object_get(c, "path"));
}

int report_devices(struct report *r, struct journal *j, const struct journal_filter *filter, struct hone_error *e)
{
    static const char *const columns[] = {"run",
                                          "model",
                                          "test",
                                          "devices",
                                          "shares",
                                          "threads",
                                          "t/s",
                                          "one device t/s",
                                          "x one device",
                                          "collectives",
                                          "KB from each rank",
                                          "paths"};
    struct journal_filter f = *filter;
    struct report_section *s = NULL;
    json_t *runs = NULL, *run;
    size_t i, shown = 0;
    if (f.kind && strcmp(f.kind, "bench") != 0)
        return 0;
    f.kind = "bench";
    f.limit = f.limit ? f.limit : 1000;
    int rc = journal_list(j, &f, &runs, e);
    json_array_foreach(runs, i, run)
    {
        const json_t *row = json_object_get(json_object_get(run, "end"), "row");
        bool result = !identity_diagnostic(json_object_get(json_object_get(run, "recipe"), "gates"));
        if (rc || !result || whole(row, "n_devices") < 2 || json_is_string(json_object_get(row, "error")) ||
            shown++ >= SHOWN_DEVICES)
            continue;
        if (!s) {
            s = report_section(r, "Over several devices");
            report_columns(s, columns, sizeof columns / sizeof *columns);
            report_say(s, "hone bench of models that are split, the newest first, beside one device with the threads of all. "
                          "Collectives are those "
                          "of one step.");
        }
        row_cells(s, run, row);
    }
    json_decref(runs);
    return rc;
}
