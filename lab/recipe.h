/* recipe.h: a recipe as something to judge: read with the line of each word, checked for what cannot work, compared with
 * another, found again in a journal. Running one is the engine's (include/hone.h, `recipe`). */
#ifndef LAB_RECIPE_H
#define LAB_RECIPE_H

#include "base/err.h"
#include "engine/settings.h"
#include "graph/gates.h"
#include "lab/journal.h"

struct recipe {
    char *path, *text;
    struct settings settings;
    struct gates gates;
    int *lines;      /* of each gate */
    json_t *content; /* gates in order, type_k, type_v, threads, plugins (hashes) where said: what its hash is of */
    char hash[65];
};

/* Unknown words and wrong values are HONE_EINPUT with file and line. recipe_free in any case. */
int recipe_read(struct recipe *r, const char *path, struct hone_error *e);
int recipe_parse(struct recipe *r, const char *text, const char *path, struct hone_error *e);
void recipe_free(struct recipe *r);

/* What reads well and yet cannot work, or cannot mean anything. */
struct recipe_finding {
    int line;
    bool error; /* else a warning */
    char text[400];
};
struct recipe_findings {
    struct recipe_finding *list;
    size_t n, cap;
};
/* Every word that recipe_read refuses, with its line, where that names the first alone. line 0: of the file. *out as recipe_lint has it. */
int recipe_faults(const char *path, struct recipe_findings *out, struct hone_error *e);
int recipe_lint(const struct recipe *r, struct recipe_findings *out, struct hone_error *e);
int recipe_find(struct recipe_findings *f, int line, bool error, struct hone_error *e, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void recipe_findings_free(struct recipe_findings *f);

/* Whether gate a is about all that b is about; whether there is anything that both may be about. */
bool gate_covers(const struct gate *a, const struct gate *b);
bool gate_overlaps(const struct gate *a, const struct gate *b);
/* The later gate that is about all that gate i is about; -1: gate i has an effect. */
int recipe_overridden(const struct recipe *r, int i);

/* [{what, a, b}]: gates and settings that one has and the other has not, or with another value (null: not said). */
json_t *recipe_diff(const struct recipe *a, const struct recipe *b);

/* Whether a run's or an arm's recipe (lab/identity.h: gates, type_k, type_v, plugins) is this one. */
bool recipe_is(const struct recipe *r, const json_t *identity);

/* The decision (`hone tier promote`) that last made a recipe the best of a tier: the newest one in the journal that is not
 * superseded. tier NULL: of any; model: a part of its name or the start of its hash, or NULL. *decision NULL: there is none. */
int recipe_best(struct journal *j, const char *tier, const char *model, json_t **decision, struct hone_error *e);

#endif
