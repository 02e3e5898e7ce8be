/* report.h: what a journal has to say, as sections of words, plots and tables: for one page that opens anywhere, or a terminal. */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include "lab/journal.h"
#include "lab/plot.h"

struct report_cell {
    char *text;
    enum plot_tone tone;
};

struct report_table {
    const char *const *columns; /* static */
    size_t n_columns;
    bool numbers;              /* figures: all columns but the first and the last are aligned to the right */
    struct report_cell *cells; /* row by row */
    size_t n_cells;
};

/* A plot, a table or both, under a heading of its own or (title "") that of the section before it. */
struct report_section {
    char title[120];
    char *words; /* paragraphs parted by newlines; may be NULL */
    struct plot plot;
    struct report_table table;
    bool folded; /* long and seldom read: a page shows it on demand */
    bool failed; /* for lack of memory something is missing */
};

struct report {
    struct report_section **sections; /* each malloc'd */
    size_t n, cap;
    struct report_section nowhere; /* what could not be added */
    bool worse; /* a history's newest change is for the worse, or a verdict is one */
};

struct report_options {
    struct journal_filter filter; /* its limit counts runs of each kind; 0: 1,000 */
    double alpha, margin;         /* of changes in histories: journal_regress */
};

/* Reads and judges; every verdict is derived again from raw samples. */
int report_make(struct report *r, struct journal *j, const struct report_options *o, struct hone_error *e);
void report_free(struct report *r);

/* One HTML file that needs no network, no script and no other file. */
int report_html(const struct report *r, const char *title, FILE *to, struct hone_error *e);
/* The same for a terminal of so many columns. Nothing that the journal holds drives the terminal. */
int report_text(const struct report *r, int columns, FILE *to, struct hone_error *e);

/* For the parts that fill it: a new section at the end; a cell behind the last; a paragraph behind those that are there. A failure (no
 * memory) is remembered, and report_make's. */
struct report_section *report_section(struct report *r, const char *title, ...) __attribute__((format(printf, 2, 3)));
void report_columns(struct report_section *s, const char *const *columns, size_t n);
void report_cell(struct report_section *s, enum plot_tone tone, const char *format, ...) __attribute__((format(printf, 3, 4)));
void report_say(struct report_section *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* report_tasks.c: what the loop decided. */
int report_tasks(struct report *r, struct journal *j, const struct journal_filter *filter, struct hone_error *e);
/* report_devices.c: rates over several devices, and the one-device rate beside. */
int report_devices(struct report *r, struct journal *j, const struct journal_filter *filter, struct hone_error *e);

#endif
