/* journal.h: what the parts of `hone journal` share. What a journal holds may come from anyone: no byte of it reaches the
 * terminal unlooked at. */
#ifndef CMD_JOURNAL_H
#define CMD_JOURNAL_H

#include "cmd/cmd.h"
#include "lab/journal_judge.h"

struct journal_view {
    const char *kind, *model, *recipe, *machine, *series, *since, *outcome, *supersedes, *out;
    int limit, width, height;
    float level, alpha, margin;
    bool all;
};
extern struct journal_view journal_view;
/* Rows of the options that choose runs, for whoever reads a journal. */
#define JOURNAL_FILTER_OPTIONS                                                                                                 \
    {"--kind", OPTION_TEXT, &journal_view.kind, "KIND",                                                                         \
     "only runs of this kind (bench, ab, verify, check, ladder, trace, perplexity)", 0, 0},                                     \
        {"--model", OPTION_TEXT, &journal_view.model, "TEXT",                                                                   \
         "only runs of models with this in the name, or at the start of a hash", 0, 0},                                         \
        {"--recipe", OPTION_TEXT, &journal_view.recipe, "TEXT",                                                                 \
         "only runs of recipes with this in them, or at the start of the hash", 0, 0},                                          \
        {"--machine", OPTION_TEXT, &journal_view.machine, "TEXT", "only runs on machines with this in their description", 0, 0}, \
        {"--series", OPTION_TEXT, &journal_view.series, "GLOB", "only these series: 'tg* t/s'", 0, 0},                           \
        {"--since", OPTION_TEXT, &journal_view.since, "TIME",                                                                   \
         "only runs from then on: 2026-11-30, 2026-11-30T12:00 (UTC), 7d, 12h, 30m", 0, 0},                                     \
        {"--all", OPTION_FLAG, &journal_view.all, NULL, "superseded runs too", 0, 0}
/* The filter that the options make. 0 or the exit code. */
int journal_view_filter(struct journal_filter *f, int limit);

/* At most `width` characters of text, control characters as '?', then spaces up to width if pad. NULL is "". */
void journal_put(const char *text, int width, bool pad);
/* A string in an object within an object: journal_word(run, "build", "commit"); "" when there is none. inner NULL: of the
 * object itself. */
const char *journal_word(const json_t *o, const char *key, const char *inner);
/* "2026-11-30 12:00" of an ISO time. */
void journal_put_time(const char *iso);
/* A value of a JSON document on one line. */
void journal_put_json(const json_t *value, int width);

int journal_show_compare(struct journal *j, int64_t a, int64_t b);
int journal_show_regress(struct journal *j);
int journal_show_plot(struct journal *j, int n, const int64_t *ids);
/* head: a hash that must be among its records, or NULL. */
int journal_show_verify(struct journal *j, const char *head);
int journal_show_export(struct journal *j, int64_t id); /* 0: all runs */
int journal_take_import(const char *path);              /* into the journal, which is made if need be */

#endif
