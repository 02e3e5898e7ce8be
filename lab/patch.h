/* patch.h: a change of hone's own sources as a commit, without a touch of the working tree, the index or a branch. */
#ifndef LAB_PATCH_H
#define LAB_PATCH_H

#include "base/err.h"

#include <stdbool.h>

/* What a change starts from: a commit of the repository of the current folder. */
struct patch_base {
    char root[4096]; /* of the repository */
    char commit[65];
    char date[40]; /* when it was made, as git reads it */
};
/* HONE_EINPUT: no repository here, or no such commit. */
int patch_base_find(struct patch_base *b, const char *revision, struct hone_error *e);
/* Whether its sources are hone's. */
bool patch_base_is_hone(const struct patch_base *b);

/* The commit that the patch file makes of the base. The same patch on the same base is the same commit, so that a build of it
 * is found again. scratch: a folder for the index. HONE_EINPUT with git's words when it does not apply. */
int patch_apply(const struct patch_base *b, const char *file, const char *title, const char *scratch, char commit[65],
                struct hone_error *e);

/* The base's sources in a folder of their own, below cache: a repository that somebody may edit, commit and switch branches in
 * without a trace in the one that it was made from. Gone with patch_tree_close; one that a killed process left goes at the next
 * opening. */
struct patch_tree {
    struct patch_base base;
    char path[4400];  /* "": not open */
    char index[4400]; /* a file beside it */
};
int patch_tree_open(struct patch_tree *t, const struct patch_base *b, const char *cache, struct hone_error *e);
void patch_tree_close(struct patch_tree *t); /* harmless on a zeroed one */
/* What it is now as a commit; the base's own where nothing was changed. What git ignores is no part of it. */
int patch_tree_commit(const struct patch_tree *t, const char *title, char commit[65], struct hone_error *e);

/* A name for a commit that shall stay: refs/hone/<name>. commit NULL: takes it away, if it is there. */
int patch_keep(const struct patch_base *b, const char *name, const char *commit, struct hone_error *e);

#endif
