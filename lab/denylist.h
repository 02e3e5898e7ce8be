/* denylist.h: combinations of gates and settings that were found unsafe, each with the journal record that says so. */
#ifndef LAB_DENYLIST_H
#define LAB_DENYLIST_H

#include "lab/recipe.h"

struct denial {
    int line;
    struct recipe words; /* what, together, is unsafe */
    char record[65];     /* the hash of the journal's record of the run that found it */
    char *why;
};
struct denylist {
    char *path;
    struct denial *list;
    size_t n, cap;
};

/* Lines `WORD [WORD ...] | RECORD | WHY`; '#' starts a comment. HONE_EINPUT with the line. denylist_free in any case. */
int denylist_read(struct denylist *d, const char *path, struct hone_error *e);
void denylist_free(struct denylist *d);
/* Adds a finding for each denial whose words are all in effect in the recipe. j (may be NULL): a denial whose record it does
 * not have is a finding too, for a ban without evidence is a rumour. */
int denylist_check(const struct denylist *d, const struct recipe *r, struct journal *j, struct recipe_findings *out,
                   struct hone_error *e);

#endif
