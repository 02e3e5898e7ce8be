/* worktree.h: a commit of hone's own repository, built apart from whatever lies in the working tree. */
#ifndef LAB_WORKTREE_H
#define LAB_WORKTREE_H

#include "base/err.h"

struct worktree_build {
    const char *revision;         /* whatever `git rev-parse` takes */
    const char *cache;            /* folder for builds (kept) and scratch worktrees (removed); NULL is an error */
    int (*cancelled)(void *user); /* asked ten times a second; 2 or more: nobody waits until the build has ended; NULL: never */
    void *user;
    const char *log;   /* what make prints is added to this file; NULL: to none */
    char commit[65];   /* out: the full hash */
    char binary[4200]; /* out: path of the built program */
};

/* Builds in a scratch worktree, or finds the build of an earlier call. The worktree is removed in every case, also when this
 * process is killed. The repository is that of the current folder. */
int worktree_build(struct worktree_build *b, struct hone_error *e);

/* A scratch worktree of the repository at root, with its folder and its name there, locked or not. */
void worktree_remove(const char *root, const char *tree);
/* Those below `folder` whose makers, by the process number at the end of the name, are gone. */
void worktree_remove_leftovers(const char *root, const char *folder);

#endif
