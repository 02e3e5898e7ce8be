/* worktree.c: `git worktree add`, `make`, and nothing left behind.
 *
 * A guard process does the work. It holds one end of a pipe whose other end is here: when that closes, because of a cancel or
 * because this process is gone, however it went, the guard ends what runs and removes the worktree all the same. A SIGKILL
 * cannot be caught, but its closing of files can be seen. Should the guard be killed too, the next build removes what it left,
 * by the process number in its name.
 *
 * Builds are kept under the commit's hash and the compiler settings, so a commit is built once. `git archive` would leave no
 * trace in the repository at all, but the build asks git which commit it is. */
#include "lab/worktree.h"

#include "base/hash.h"
#include "engine/engine.h"
#include "lab/child.h"
#include "lab/isolate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What would make git or make look elsewhere. */
static const char *const clean_env[] = {"GIT_DIR",   "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "MAKEFLAGS",
                                        "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS",         "B",          NULL};

struct site {
    char root[4096];                           /* of the repository */
    char folder[4200], tree[4300], made[4400]; /* scratch worktrees; this one; the program in it */
    int lifeline;                              /* readable or closed: the parent is gone, or wants no more */
};

/* git or make: its output without the newline. */
static int command(const char *const *argv, const char *folder, int (*cancelled)(void *), void *user, char *line, size_t size,
                   struct hone_error *e)
{
    struct child_output o;
    struct child c = {.argv = argv, .binary = -1, .env = clean_env, .folder = folder, .cancelled = cancelled, .user = user};
    int rc = child_run(&o, &c, false, e);
    if (!rc && line) {
        o.out[strcspn(o.out, "\n")] = 0;
        rc = (size_t)snprintf(line, size, "%s", o.out) < size ? 0 : err_set(e, HONE_EINPUT, "%s: a path too long", argv[0]);
    }
    child_output_free(&o);
    return rc;
}

/* ---- the guard */

static int parent_gone(void *user)
{
    const struct site *s = user;
    struct pollfd p = {s->lifeline, POLLIN, 0};
    return poll(&p, 1, 0) != 0;
}

void worktree_remove(const char *root, const char *tree)
{
    struct hone_error ignored = {0};
    command((const char *const[]){"git", "worktree", "remove", "--force", "--force", tree, NULL}, root, NULL, NULL, NULL, 0,
            &ignored);
    command((const char *const[]){"rm", "-rf", tree, NULL}, NULL, NULL, NULL, NULL, 0, &ignored);
    command((const char *const[]){"git", "worktree", "unlock", tree, NULL}, root, NULL, NULL, NULL, 0, &ignored);
    command((const char *const[]){"git", "worktree", "prune", NULL}, root, NULL, NULL, NULL, 0, &ignored);
}

/* "...-<process>", and that process is gone. */
static bool is_leftover(const char *name)
{
    const char *dash = strrchr(name, '-');
    char *end = NULL;
    long pid = dash ? strtol(dash + 1, &end, 10) : 0;
    return pid > 0 && !*end && kill((pid_t)pid, 0) && errno == ESRCH;
}

/* git locks a tree while it makes it, and what is locked outlives `prune`: who was killed there left a name without a folder.
 */
static void remove_registered(const char *root, const char *folder)
{
    struct child_output o = {0};
    struct hone_error ignored = {0};
    char real[4200], *rest, *line;
    struct child c = {.argv = (const char *const[]){"git", "worktree", "list", "--porcelain", NULL},
                      .binary = -1,
                      .env = clean_env,
                      .folder = root};
    int rc = child_run(&o, &c, false, &ignored);
    char *resolved = realpath(folder, NULL); /* as git names them */
    snprintf(real, sizeof real, "%s/", resolved ? resolved : folder);
    rest = rc ? NULL : o.out;
    while ((line = strsep(&rest, "\n"))) {
        const char *tree = line + 9;
        if (!strncmp(line, "worktree ", 9) && !strncmp(tree, real, strlen(real)) && is_leftover(tree))
            worktree_remove(root, tree);
    }
    free(resolved);
    child_output_free(&o);
}

void worktree_remove_leftovers(const char *root, const char *folder)
{
    DIR *d = opendir(folder);
    char path[4600];
    for (struct dirent *one; d && (one = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        if (is_leftover(path))
            worktree_remove(root, path);
    }
    if (d)
        closedir(d);
    remove_registered(root, folder);
}

/* As this program was built, so that two programs differ in their sources alone. With a log, what make says goes there, and the
 * end of it is the error's as well. */
static int run_make(struct site *s, const struct worktree_build *b, const char *jobs, const char *out, struct hone_error *e)
{
    static const char logged[] = "log=$1; shift; \"$@\" >>\"$log\" 2>&1 || { rc=$?; tail -c 300 \"$log\" >&2; exit $rc; }";
    const char *words[20] = {"sh", "-c", logged, "make", b->log, "make", "--no-print-directory", jobs, out, s->made};
    char settings[500], *rest = settings, *word;
    int n = 10;
    snprintf(settings, sizeof settings, "%s", build_settings());
    while ((word = strsep(&rest, " ")) && n < 19)
        words[n++] = word;
    return command(words + (b->log ? 0 : 5), s->tree, parent_gone, s, NULL, 0, e);
}

static int guard_build(struct site *s, const struct worktree_build *b, struct hone_error *e)
{
    char out[4320], jobs[32], partial[4300];
    snprintf(out, sizeof out, "B=%s/build", s->tree);
    snprintf(jobs, sizeof jobs, "-j%ld", sysconf(_SC_NPROCESSORS_ONLN));
    snprintf(partial, sizeof partial, "%s.%ld", b->binary, (long)getpid());
    int rc = command((const char *const[]){"git", "worktree", "add", "--detach", "--force", s->tree, b->commit, NULL}, s->root,
                     parent_gone, s, NULL, 0, e);
    if (!rc)
        rc = run_make(s, b, jobs, out, e);
    if (!rc)
        rc = command((const char *const[]){"cp", s->made, partial, NULL}, NULL, parent_gone, s, NULL, 0, e);
    if (!rc && rename(partial, b->binary))
        rc = err_set(e, HONE_ERESOURCE, "%s: %s", b->binary, strerror(errno));
    if (rc)
        unlink(partial);
    return rc;
}

_Noreturn static void guard_main(struct site *s, const struct worktree_build *b, struct hone_error *e)
{
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    worktree_remove_leftovers(s->root, s->folder);
    int rc = guard_build(s, b, e);
    worktree_remove(s->root, s->tree);
    _exit(rc ? 1 : 0);
}

/* ---- the parent */

static int make_folder(const char *cache, const char *name, char *path, size_t size, struct hone_error *e)
{
    snprintf(path, size, "%s/%s", cache, name);
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : err_set(e, HONE_ERESOURCE, "%s: %s", path, strerror(errno));
}

/* Where the build of this commit with these compiler settings belongs. */
static int name_build(struct worktree_build *b, struct site *s, struct hone_error *e)
{
    char settings[2000], builds[4200];
    const char *cc = getenv("CC"), *flags = getenv("CFLAGS");
    int n = snprintf(settings, sizeof settings, "%s\n%s\n%s", cc ? cc : "", flags ? flags : "", build_settings());
    int rc = make_folder(b->cache, "builds", builds, sizeof builds, e);
    if (!rc)
        rc = make_folder(b->cache, "worktrees", s->folder, sizeof s->folder, e);
    if (rc)
        return rc;
    snprintf(b->binary, sizeof b->binary, "%.4000s/%.12s-%08llx", builds, b->commit,
             (unsigned long long)(hash64(settings, n > 0 ? (size_t)n : 0) & 0xffffffff));
    snprintf(s->tree, sizeof s->tree, "%s/%.12s-%ld", s->folder, b->commit, (long)getpid());
    snprintf(s->made, sizeof s->made, "%s/build/hone", s->tree);
    return 0;
}

/* Until the guard has ended. A cancel closes the lifeline, and the guard then cleans up and ends. */
static int wait_for(pid_t guard, int *lifeline, const struct worktree_build *b, const struct hone_error *told,
                    struct hone_error *e)
{
    int status = 0;
    bool cancelled = false;
    for (;;) {
        pid_t ended = waitpid(guard, &status, WNOHANG);
        if (ended == guard || (ended < 0 && errno != EINTR))
            break;
        int stop = b->cancelled ? b->cancelled(b->user) : 0;
        if (stop && !cancelled) {
            cancelled = true;
            close(*lifeline);
            *lifeline = -1;
        }
        if (stop > 1)
            break;
        poll(NULL, 0, 100);
    }
    if (cancelled)
        return err_set(e, HONE_ECANCELED, "cancelled");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return err_set(e, told->code ? told->code : HONE_EFAULT, "commit %.12s: %s", b->commit,
                   told->message[0] ? told->message : "the process that builds it was killed");
}

static int build(struct worktree_build *b, struct site *s, struct hone_error *e)
{
    int ends[2];
    struct hone_error *told = shared_alloc(sizeof *told);
    if (!told || pipe2(ends, O_CLOEXEC)) {
        shared_free(told, sizeof *told);
        return err_set(e, HONE_ERESOURCE, "no pipe or memory to build commit %.12s", b->commit);
    }
    s->lifeline = ends[0];
    pid_t guard = fork();
    if (guard == 0) {
        close(ends[1]);
        guard_main(s, b, told);
    }
    close(ends[0]);
    int rc = guard < 0 ? err_set(e, HONE_ERESOURCE, "no process to build commit %.12s: %s", b->commit, strerror(errno))
                       : wait_for(guard, &ends[1], b, told, e);
    if (ends[1] >= 0)
        close(ends[1]);
    shared_free(told, sizeof *told);
    return rc;
}

int worktree_build(struct worktree_build *b, struct hone_error *e)
{
    struct site s = {0};
    char revision[300];
    if (!b->cache)
        return err_set(e, HONE_ERESOURCE, "no cache folder to build commit %s in: set HONE_CACHE", b->revision);
    if (*b->revision == '-' || (size_t)snprintf(revision, sizeof revision, "%s^{commit}", b->revision) >= sizeof revision)
        return err_set(e, HONE_EUSAGE, "%.80s is neither a file nor a commit", b->revision);
    int rc =
        command((const char *const[]){"git", "rev-parse", "--show-toplevel", NULL}, NULL, NULL, NULL, s.root, sizeof s.root, e);
    if (rc)
        return err_prefix(e, "commit %s", b->revision);
    struct hone_error why = {0};
    if (command((const char *const[]){"git", "rev-parse", "--verify", "--quiet", revision, NULL}, s.root, NULL, NULL, b->commit,
                sizeof b->commit, &why))
        return err_set(e, HONE_EINPUT, "%s is neither a file nor a commit of %s", b->revision, s.root);
    rc = name_build(b, &s, e);
    if (rc || access(b->binary, X_OK) == 0)
        return rc;
    return build(b, &s, e);
}
