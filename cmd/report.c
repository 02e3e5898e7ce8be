/* report.c: hone report: what a journal says, as a page or in the terminal. A file is put in place only when it is whole. */
#include "cmd/journal.h"

#include "lab/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *out_path, *title = "hone report";
static int width;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--out", OPTION_OUTPUT, &out_path, "FILE", "write a page (HTML) there; without it, the report goes to stdout as text", 0, 0},
        {"--title", OPTION_TEXT, &title, "TEXT", "of the page", 0, 0},
        JOURNAL_OPTION,
        JOURNAL_FILTER_OPTIONS,
        {"--limit", OPTION_INT, &journal_view.limit, "N", "the newest N runs of each kind (0: 1000)", 0, 1 << 30},
        {"--alpha", OPTION_FLOAT, &journal_view.alpha, "PERCENT", "chance of a false alarm over all histories together", 0.01, 20},
        {"--margin", OPTION_FLOAT, &journal_view.margin, "PERCENT", "a smaller change for the worse is none", 0, 100},
        {"--width", OPTION_INT, &width, "N", "columns of text (0: the terminal's)", 0, 1000},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static int columns(void)
{
    struct winsize w = {0};
    if (width)
        return width;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 40 ? w.ws_col - 1 : 100;
}

static int write_page(const struct report *r)
{
    struct whole w;
    struct hone_error e = {0};
    int rc = files_open(&w, out_path);
    return rc ? rc : files_close(&w, report_html(r, title, w.file, &e) ? cmd_fail(&e) : 0);
}

static json_t *table_json(const struct report_table *t)
{
    json_t *rows = json_array();
    for (size_t i = 0; i + t->n_columns <= t->n_cells && t->n_columns; i += t->n_columns) {
        json_t *row = json_array();
        for (size_t c = 0; c < t->n_columns; c++)
            json_array_append_new(row, json_string(t->cells[i + c].text));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *report_json(const struct report *r)
{
    json_t *sections = json_array();
    for (size_t i = 0; i < r->n; i++) {
        const struct report_section *s = r->sections[i];
        json_t *names = json_array(), *marks = json_array();
        for (size_t c = 0; c < s->table.n_columns; c++)
            json_array_append_new(names, json_string(s->table.columns[c]));
        for (size_t k = 0; k < s->plot.n; k++)
            json_array_append_new(marks, json_pack("{s:s, s:f, s:f, s:f}", "label", s->plot.marks[k].label, "value", s->plot.marks[k].value,
                                                   "lo", s->plot.marks[k].lo, "hi", s->plot.marks[k].hi));
        json_array_append_new(sections, json_pack("{s:s, s:s, s:o, s:o, s:o}", "title", s->title, "words", s->words ? s->words : "", "columns",
                                                  names, "rows", table_json(&s->table), "marks", marks));
    }
    return json_pack("{s:i, s:b, s:o}", "schema_version", 1, "worse", r->worse, "sections", sections);
}

static int run(int n_args, char **args)
{
    struct report_options o = {.alpha = (double)journal_view.alpha / 100, .margin = (double)journal_view.margin / 100};
    struct report r;
    struct journal *j;
    struct hone_error e = {0};
    char path[4096];
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "report: '%s' is no option", args[0]);
    int rc = journal_view_filter(&o.filter, 0);
    if (rc)
        return rc;
    if (!cmd_journal_path(path, sizeof path, false))
        return cmd_refuse(HONE_ERESOURCE, "neither HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the journal is: give --journal FILE");
    if (journal_open(&j, path, JOURNAL_READ, &e))
        return cmd_fail(&e);
    rc = report_make(&r, j, &o, &e) ? cmd_fail(&e) : 0;
    journal_close(j);
    if (rc)
        return rc;
    if (output_json())
        rc = output_print(report_json(&r));
    else if (out_path)
        rc = write_page(&r);
    else
        rc = report_text(&r, columns(), stdout, &e) ? cmd_fail(&e) : output_flush();
    report_free(&r);
    return rc;
}

const struct command command_report = {
    "report",
    "one page (HTML) of what a journal says: throughput over time, comparisons, ladders, roofs; the same in the terminal",
    "",
    "hone report --out report.html\n  hone report --kind ab --since 7d\n  hone report -o json",
    options,
    run,
    NULL,
};
