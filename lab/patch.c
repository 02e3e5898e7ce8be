/* patch.c: commits made by git's own parts (read-tree, apply --cached, write-tree, commit-tree), with an index of their own.
 *
 * The obvious way, to apply a patch to the working tree and take it back afterwards, leaves it there when the process is killed
 * in between, and mixes it with what its owner has not committed. Here nothing that anybody looks at is changed: a patch that
 * lost is an object that no name leads to, and git clears it away in time. One that won gets a name below refs/hone.
 *
 * Author and dates are fixed, so a commit's hash says what it holds and nothing else. */
#include "lab/patch.h"

#include "lab/child.h"
#include "lab/worktree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GIT_LIMIT_S = 120 };

struct git {
    const char *folder;
    const char *index;      /* its file; NULL: the folder's own */
    const char *date;       /* of commits; NULL: now */
    const char *repository; /* whose objects and settings are meant; NULL: the folder's own */
};

/* The first line of what git prints, where line is given. */
static int git_run(const struct git *g, const char *const *argv, char *line, size_t size, struct hone_error *e)
{
    char index[4500], author[80], committer[80], dir[4200], tree[4500];
    const char *env[16] = {"GIT_DIR",
                           "GIT_WORK_TREE",
                           "GIT_PREFIX",
                           "GIT_AUTHOR_NAME=hone iterate",
                           "GIT_AUTHOR_EMAIL=iterate@localhost",
                           "GIT_COMMITTER_NAME=hone iterate",
                           "GIT_COMMITTER_EMAIL=iterate@localhost"};
    int n = 7;
    if (g->repository) {
        snprintf(dir, sizeof dir, "GIT_DIR=%s", g->repository);
        snprintf(tree, sizeof tree, "GIT_WORK_TREE=%s", g->folder);
        env[0] = dir;
        env[1] = tree;
    }
    if (g->index)
        snprintf(index, sizeof index, "GIT_INDEX_FILE=%s", g->index);
    env[n++] = g->index ? index : "GIT_INDEX_FILE";
    if (g->date) {
        snprintf(author, sizeof author, "GIT_AUTHOR_DATE=%s", g->date);
        snprintf(committer, sizeof committer, "GIT_COMMITTER_DATE=%s", g->date);
        env[n++] = author;
        env[n++] = committer;
    }
    struct child_output o;
    struct child c = {.argv = argv, .binary = -1, .env = env, .folder = g->folder, .limit_s = GIT_LIMIT_S};
    int rc = child_run(&o, &c, false, e);
    if (!rc && line) {
        o.out[strcspn(o.out, "\n")] = 0;
        rc = (size_t)snprintf(line, size, "%s", o.out) < size ? 0 : err_set(e, HONE_EINPUT, "git: an answer too long");
    }
    child_output_free(&o);
    return rc;
}

#define ARGS(...) ((const char *const[]){"git", __VA_ARGS__, NULL})

int patch_base_find(struct patch_base *b, const char *revision, struct hone_error *e)
{
    char wanted[300], date[32];
    struct hone_error why = {0};
    *b = (struct patch_base){0};
    if (*revision == '-' || (size_t)snprintf(wanted, sizeof wanted, "%s^{commit}", revision) >= sizeof wanted)
        return err_set(e, HONE_EUSAGE, "%.80s is no commit", revision);
    if (git_run(&(struct git){0}, ARGS("rev-parse", "--show-toplevel"), b->root, sizeof b->root, &why))
        return err_set(e, HONE_EINPUT, "no git repository here: %s", why.message);
    struct git g = {.folder = b->root};
    if (git_run(&g, ARGS("rev-parse", "--verify", "--quiet", wanted), b->commit, sizeof b->commit, &why))
        return err_set(e, HONE_EINPUT, "%s is no commit of %s", revision, b->root);
    int rc = git_run(&g, ARGS("log", "-1", "--format=%ct", b->commit), date, sizeof date, e);
    snprintf(b->date, sizeof b->date, "@%.20s +0000", date);
    return rc;
}

bool patch_base_is_hone(const struct patch_base *b)
{
    char name[100];
    struct hone_error ignored = {0};
    snprintf(name, sizeof name, "%s:include/hone.h", b->commit);
    return git_run(&(struct git){.folder = b->root}, ARGS("cat-file", "-e", name), NULL, 0, &ignored) == 0;
}

/* The index of g as a commit on the base. */
static int commit_index(const struct git *g, const struct patch_base *b, const char *title, char commit[65],
                        struct hone_error *e)
{
    char tree[65], was[65], of_base[80];
    snprintf(of_base, sizeof of_base, "%s^{tree}", b->commit);
    int rc = git_run(g, ARGS("write-tree"), tree, sizeof tree, e);
    rc = rc ? rc : git_run(g, ARGS("rev-parse", of_base), was, sizeof was, e);
    if (rc || !strcmp(tree, was)) {
        memcpy(commit, b->commit, 65);
        return rc;
    }
    return git_run(g, ARGS("commit-tree", "-p", b->commit, "-m", title, tree), commit, 65, e);
}

int patch_apply(const struct patch_base *b, const char *file, const char *title, const char *scratch, char commit[65],
                struct hone_error *e)
{
    char index[4400];
    snprintf(index, sizeof index, "%.4300s/index-%ld", scratch, (long)getpid());
    struct git g = {.folder = b->root, .index = index, .date = b->date};
    struct hone_error why = {0};
    int rc = git_run(&g, ARGS("read-tree", b->commit), NULL, 0, e);
    if (!rc && git_run(&g, ARGS("apply", "--cached", "--whitespace=nowarn", file), NULL, 0, &why))
        rc = err_set(e, HONE_EINPUT, "the patch does not apply to %.12s: %s", b->commit, why.message);
    rc = rc ? rc : commit_index(&g, b, title, commit, e);
    unlink(index);
    if (!rc && !strcmp(commit, b->commit))
        rc = err_set(e, HONE_EINPUT, "the patch changes nothing of %.12s", b->commit);
    return rc;
}

/* ---- a tree to edit */

/* A repository of its own that borrows the other's objects: what is done there to branches, index and settings stays there. A
 * worktree would be cheaper by a few files, and whoever says `git switch -c` in one leaves a branch to everybody. */
int patch_tree_open(struct patch_tree *t, const struct patch_base *b, const char *cache, struct hone_error *e)
{
    char folder[4200];
    *t = (struct patch_tree){.base = *b};
    if (!cache)
        return err_set(e, HONE_ERESOURCE, "no cache folder for a copy of the sources: set HONE_CACHE");
    snprintf(folder, sizeof folder, "%.4100s/worktrees", cache);
    if (mkdir(folder, 0777) && errno != EEXIST)
        return err_set(e, HONE_ERESOURCE, "%s: %s", folder, strerror(errno));
    worktree_remove_leftovers(b->root, folder);
    snprintf(t->path, sizeof t->path, "%s/%.12s-edit-%ld", folder, b->commit, (long)getpid());
    snprintf(t->index, sizeof t->index, "%s/%.12s-index-%ld", folder, b->commit, (long)getpid());
    struct git in_tree = {.folder = t->path};
    int rc = git_run(&(struct git){.folder = b->root},
                     ARGS("clone", "--quiet", "--shared", "--no-checkout", "--no-tags", b->root, t->path), NULL, 0, e);
    rc = rc ? rc : git_run(&in_tree, ARGS("checkout", "--quiet", "--detach", b->commit), NULL, 0, e);
    rc = rc ? rc : git_run(&in_tree, ARGS("remote", "remove", "origin"), NULL, 0, e); /* nothing to push to */
    if (rc)
        patch_tree_close(t);
    return rc;
}

void patch_tree_close(struct patch_tree *t)
{
    if (t->path[0])
        worktree_remove(t->base.root, t->path);
    t->path[0] = 0;
}

/* The files as they lie there, into the repository that they came from, whatever was committed meanwhile. The program may have
 * left an index that names objects which only the copy has, so an index is made anew. */
int patch_tree_commit(const struct patch_tree *t, const char *title, char commit[65], struct hone_error *e)
{
    char dir[4100];
    struct git g = {.folder = t->path, .date = t->base.date, .index = t->index, .repository = dir};
    int rc = git_run(&(struct git){.folder = t->base.root}, ARGS("rev-parse", "--absolute-git-dir"), dir, sizeof dir, e);
    rc = rc ? rc : git_run(&g, ARGS("read-tree", t->base.commit), NULL, 0, e);
    rc = rc ? rc : git_run(&g, ARGS("add", "--all"), NULL, 0, e);
    rc = rc ? rc : commit_index(&g, &t->base, title, commit, e);
    unlink(t->index);
    return rc;
}

/* ---- names */

int patch_keep(const struct patch_base *b, const char *name, const char *commit, struct hone_error *e)
{
    char ref[200];
    struct git g = {.folder = b->root};
    snprintf(ref, sizeof ref, "refs/hone/%.150s", name);
    return commit ? git_run(&g, ARGS("update-ref", ref, commit), NULL, 0, e)
                  : git_run(&g, ARGS("update-ref", "-d", ref), NULL, 0, e);
}
