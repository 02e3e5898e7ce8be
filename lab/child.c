/* child.c: fork, exec, two pipes, and one poll loop that also sees time limits and cancels.
 *
 * posix_spawn has no way to ask for a death signal or to run an open file, and system(3) no pipes. A program is run by its open
 * file where it must stay the same one: a build that replaces the file in the middle of a comparison then changes nothing.
 * Output is limited: what is read here is a line of JSON or a list of libraries. */
#include "lab/child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_LIMIT = 64 << 20, POLL_MS = 100, NOT_RUN = 127 };

extern char **environ;

_Noreturn static void child_exec(const struct child *c, int out, int err, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(NOT_RUN); /* it died before the line above */
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    for (const char *const *p = c->env; p && *p; p++)
        if (strchr(*p, '=') ? putenv((char *)*p) : unsetenv(*p))
            _exit(NOT_RUN);
    if (c->folder && chdir(c->folder))
        dprintf(STDERR_FILENO, "%s: %s", c->folder, strerror(errno));
    else if (c->binary >= 0)
        fexecve(c->binary, (char *const *)c->argv, environ);
    else
        execvp(c->argv[0], (char *const *)c->argv);
    dprintf(STDERR_FILENO, "%s", strerror(errno));
    _exit(NOT_RUN);
}

static int keep_output(struct child_output *o, size_t *cap, const char *text, size_t n, const char *name, struct hone_error *e)
{
    if (o->n + n + 1 > *cap) {
        size_t larger = 2 * *cap + n + 4096;
        char *out = larger > OUTPUT_LIMIT ? NULL : realloc(o->out, larger);
        if (!out)
            return err_set(e, HONE_ERESOURCE, "%s printed more than %zu bytes", name, o->n);
        o->out = out;
        *cap = larger;
    }
    memcpy(o->out + o->n, text, n);
    o->n += n;
    o->out[o->n] = 0;
    return 0;
}

/* The end of what is said, on one line. */
static void keep_said(struct child_output *o, const char *text, size_t n)
{
    size_t had = strlen(o->said), room = sizeof o->said - 1;
    for (size_t i = 0; i < n; i++) {
        if (had == room)
            memmove(o->said, o->said + 1, had--);
        unsigned char c = (unsigned char)text[i];
        o->said[had++] = c == '\n' || c == '\r' || c == '\t' ? ' ' : c < ' ' || c == 127 ? '?' : (char)c;
    }
    o->said[had] = 0;
}

/* Reads both pipes to their ends. */
static int listen_to(struct child_output *o, const struct child *c, int out, int err, struct hone_error *e)
{
    struct pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
    int64_t start = clock_ns();
    size_t cap = 0;
    int rc = keep_output(o, &cap, "", 0, c->argv[0], e);
    while (!rc && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
        if (poll(fds, 2, POLL_MS) < 0 && errno != EINTR)
            return err_set(e, HONE_EFAULT, "cannot wait for %s: %s", c->argv[0], strerror(errno));
        for (int i = 0; i < 2 && !rc; i++) {
            char text[8192];
            if (fds[i].fd < 0 || !(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
                continue;
            ssize_t n = read(fds[i].fd, text, sizeof text);
            if (n <= 0 && !(n < 0 && errno == EINTR))
                fds[i].fd = -1;
            else if (n > 0 && i == 0)
                rc = keep_output(o, &cap, text, (size_t)n, c->argv[0], e);
            else if (n > 0)
                keep_said(o, text, (size_t)n);
        }
        if (!rc && c->cancelled && c->cancelled(c->user))
            rc = err_set(e, HONE_ECANCELED, "cancelled");
        if (!rc && c->limit_s > 0 && (double)(clock_ns() - start) > c->limit_s * 1e9)
            rc = err_set(e, HONE_EINPUT, "%s was not done after %g s: %s", c->argv[0], c->limit_s, o->said);
    }
    return rc;
}

/* Waits for the end; what it was, as an error. */
static int judge_end(struct child_output *o, const struct child *c, pid_t pid, bool any_exit, struct hone_error *e)
{
    int status = 0;
    for (size_t n = strlen(o->said); n && o->said[n - 1] == ' '; n--) /* not before: a program may say a letter at a time */
        o->said[n - 1] = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        return err_set(e, HONE_EINPUT, "%s ended by signal %d (%s)%s%s", c->argv[0], WTERMSIG(status),
                       strsignal(WTERMSIG(status)), o->said[0] ? ": " : "", o->said);
    o->exit_code = WEXITSTATUS(status);
    if (o->exit_code && (!any_exit || o->exit_code == NOT_RUN))
        return err_set(e, HONE_EINPUT, "%s ended with exit code %d%s%s", c->argv[0], o->exit_code, o->said[0] ? ": " : "",
                       o->said);
    return 0;
}

int child_run(struct child_output *o, const struct child *c, bool any_exit, struct hone_error *e)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, rc = 0;
    pid_t pid = -1, self = getpid();
    *o = (struct child_output){0};
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        rc = err_set(e, HONE_ERESOURCE, "no pipe to %s: %s", c->argv[0], strerror(errno));
    if (!rc && (pid = fork()) < 0)
        rc = err_set(e, HONE_ERESOURCE, "no process for %s: %s", c->argv[0], strerror(errno));
    if (pid == 0)
        child_exec(c, out[1], err[1], self);
    if (pid > 0) {
        setpgid(pid, pid); /* here too: whoever comes first; it may have ended */
        close(out[1]);
        close(err[1]);
        out[1] = err[1] = -1;
        rc = listen_to(o, c, out[0], err[0], e);
        if (rc)
            kill(-pid, SIGKILL);
        int ended = judge_end(o, c, pid, any_exit, rc ? &(struct hone_error){0} : e);
        rc = rc ? rc : ended;
    }
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0)
            close(out[i]);
        if (err[i] >= 0)
            close(err[i]);
    }
    if (rc)
        child_output_free(o);
    return rc;
}

void child_output_free(struct child_output *o)
{
    free(o->out);
    *o = (struct child_output){0};
}
