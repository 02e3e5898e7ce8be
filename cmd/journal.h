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

#endif
