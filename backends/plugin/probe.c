/* probe.c: a plug-in's first opening, in a child process: constructors, the table, the proofs of its layouts. Whatever happens
 * there, a signal, an exit, an endless loop, becomes an error here that says what was being done.
 *
 * The child says what it is about to do down a pipe, a line each: 'S' and a stage, 'E', the code and the message of a refusal,
 * 'K' when all is well. It has no standard streams, so that a constructor's greeting appears once and never among hone's
 * output. A program of its own, to be executed instead of a fork, would need to be found by a library that does not know where
 * it was installed. */
#include "backends/plugin/plugin.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int stage_fd = -1; /* in the child: the pipe */

static void say(char kind, const char *text)
{
    char line[600];
    int n = snprintf(line, sizeof line, "%c%s\n", kind, text);
    if (n >= (int)sizeof line)
        n = sizeof line - 1;
    for (const char *p = line; n > 0;) {
        ssize_t written = write(stage_fd, p, (size_t)n);
        if (written < 0 && errno != EINTR)
            _exit(1);
        p += written > 0 ? written : 0;
        n -= written > 0 ? (int)written : 0;
    }
}

void probe_stage(const char *format, ...)
{
    char text[300];
    if (stage_fd < 0)
        return;
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    say('S', text);
}

static _Noreturn void child(const char *path, int fd)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGTERM, SIGINT, SIGPIPE, SIGALRM};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL); /* a sanitizer's handler, say, would turn the signal into an exit */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    stage_fd = fd;
    struct plugin p;
    struct hone_error e = {0};
    bool known;
    int rc = plugin_open(&p, path, &known, &e);
    for (int i = 0; i < p.n_layouts && !rc; i++)
        rc = layout_prove(&p.layouts[i].layout, &e);
    if (rc) {
        char text[sizeof e.message + 16];
        snprintf(text, sizeof text, "%d %s", rc, e.message);
        say('E', text);
    } else {
        say('K', "");
    }
    _exit(0);
}

/* What came down the pipe so far; whole lines are taken off its front. */
struct verdict {
    char text[1024];
    size_t n;
    char stage[1024];
    bool done; /* a verdict was reached: 'K', or *e is set */
};

static void take_line(struct verdict *v, const char *line, struct hone_error *e)
{
    switch (line[0]) {
    case 'S':
        snprintf(v->stage, sizeof v->stage, "%.*s", (int)sizeof v->stage - 1, line + 1);
        break;
    case 'K':
        v->done = true;
        break;
    case 'E': {
        char *message;
        int code = (int)strtol(line + 1, &message, 10);
        err_set(e, code == HONE_ERESOURCE ? code : HONE_EINPUT, "%s", message + (*message == ' '));
        v->done = true;
        break;
    }
    }
}

/* Reads what is there: 1, or 0 at the end. */
static int take_bytes(struct verdict *v, int fd, struct hone_error *e)
{
    ssize_t n = read(fd, v->text + v->n, sizeof v->text - 1 - v->n);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    v->n += (size_t)n;
    for (char *end; !v->done && (end = memchr(v->text, '\n', v->n));) {
        *end = 0;
        take_line(v, v->text, e);
        v->n -= (size_t)(end + 1 - v->text);
        memmove(v->text, end + 1, v->n);
    }
    if (v->n == sizeof v->text - 1)
        v->n = 0; /* no line of ours is that long */
    return n > 0;
}

/* Ends the child, if it has not ended, and gives its status; ended: it did so by itself. */
static int reap(pid_t pid, int grace_ms, bool *ended)
{
    int status = 0;
    *ended = false;
    for (int i = 0; i <= grace_ms && !*ended; i++) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        *ended = got == pid || (got < 0 && errno != EINTR); /* a host that ignores SIGCHLD has no status for us */
        if (!*ended && i < grace_ms)
            usleep(1000);
    }
    if (!*ended) {
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    return status;
}

static int watch(pid_t pid, int fd, int limit_ms, struct hone_error *e)
{
    struct verdict v = {.stage = "it was being loaded"};
    int64_t end = clock_ns() + (int64_t)limit_ms * 1000000, left = 1;
    while (!v.done && (left = (end - clock_ns()) / 1000000) > 0) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, left < INT32_MAX ? (int)left : INT32_MAX) > 0 && !take_bytes(&v, fd, e))
            break;
    }
    bool ended;
    int status = reap(pid, v.done ? 0 : left > 0 ? (int)(left < 1000 ? left : 1000) : 0, &ended);
    if (v.done)
        return e->code;
    if (!ended)
        return err_set(e, HONE_EINPUT, "it did not come to an end within %.1f s while %s", limit_ms / 1000.0, v.stage);
    if (WIFSIGNALED(status))
        return err_set(e, HONE_EINPUT, "it crashed (%s) while %s", strsignal(WTERMSIG(status)), v.stage);
    return err_set(e, HONE_EINPUT, "it ended the process (exit code %d) while %s", WEXITSTATUS(status), v.stage);
}

int plugin_probe(const char *path, int limit_ms, struct hone_error *e)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC))
        return err_set(e, HONE_ERESOURCE, "no pipe to a child that would try it: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        child(path, fd[1]);
    }
    close(fd[1]);
    int rc = pid < 0 ? err_set(e, HONE_ERESOURCE, "no child process to try it in: %s", strerror(errno))
                     : watch(pid, fd[0], limit_ms, e);
    close(fd[0]);
    return rc;
}
