/* program.c: a guard process between us and the program.
 *
 * Programs of other people start programs, some of them in sessions of their own, and a SIGKILL cannot be caught; so neither a
 * death signal (which reaches children only) nor a process group (which a daemon leaves) ends all that was begun. The guard
 * adopts what its parents left (PR_SET_CHILD_SUBREAPER) and holds the reading end of a pipe whose other end is ours: when that
 * closes, because we want it or because we are gone, it ends the program's group, first with SIGTERM, since a measurement then
 * writes down that it was interrupted, and then everything that is still there.
 *
 * What keeps to itself how it ends, such as another guard that removes a build tree, gets the same seconds of grace. A control
 * group would be the kernel's own answer, but to make one takes rights that users do not have.
 *
 * child.c is for short programs of our own, whose output is read; this is for those that nobody has to trust. */
#include "lab/program.h"

#include "base/clock.h"
#include "lab/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_RUN = 127, GRACE_MS = 4000, TICK_MS = 100, LOOK_MS = 20, TAIL = 4096 };

/* What the guard tells. */
struct told {
    enum program_end end;
    int status; /* of waitpid */
    bool ended;
};

/* ---- the program */

_Noreturn static void program_exec(const struct program *s, pid_t guard)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
        _exit(NOT_RUN);
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_DFL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = s->log ? open(s->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : null;
    int out = s->out ? open(s->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : log;
    if (null < 0 || log < 0 || out < 0)
        _exit(NOT_RUN);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    for (const char *const *p = s->env; p && *p; p++)
        if (strchr(*p, '=') ? putenv((char *)*p) : unsetenv(*p))
            _exit(NOT_RUN);
    if (s->folder && chdir(s->folder))
        dprintf(STDERR_FILENO, "%s: %s\n", s->folder, strerror(errno));
    else if (s->binary)
        execv(s->binary, (char *const *)s->argv);
    else
        execvp(s->argv[0], (char *const *)s->argv);
    dprintf(STDERR_FILENO, "%s: %s\n", s->binary ? s->binary : s->argv[0], strerror(errno));
    _exit(NOT_RUN);
}

/* ---- the guard */

static bool wants_no_more(int lifeline)
{
    struct pollfd p = {lifeline, POLLIN, 0};
    return poll(&p, 1, LOOK_MS) > 0;
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == pid;
}

/* Its group, which is its own until it is waited for. */
static void end_program(pid_t pid)
{
    int64_t start = clock_ns();
    kill(-pid, SIGTERM);
    while (!has_ended(pid) && clock_ns() - start < (int64_t)GRACE_MS * 1000000)
        poll(NULL, 0, LOOK_MS);
    kill(-pid, SIGKILL);
}

/* SIGKILL to every child of this process. */
static void kill_children(void)
{
    char path[64];
    long pid;
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%ld", &pid) == 1)
        kill((pid_t)pid, SIGKILL);
    if (f)
        fclose(f);
}

/* Those whose parents are gone came to us; whoever is a child of theirs comes when they go. */
static void end_orphans(void)
{
    int64_t start = clock_ns();
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno != EINTR)
            return;
        if (pid > 0)
            continue;
        if (clock_ns() - start > (int64_t)GRACE_MS * 1000000)
            kill_children();
        poll(NULL, 0, LOOK_MS);
    }
}

/* It writes to the log itself, so nobody but the guard sees how much. */
static bool is_loud(const struct program *s, long long from)
{
    struct stat st;
    return s->log_limit > 0 && s->log && stat(s->log, &st) == 0 && st.st_size - from > s->log_limit;
}

_Noreturn static void guard_main(const struct program *s, struct told *t, int lifeline, long long from)
{
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t self = getpid(), pid = fork();
    if (pid == 0)
        program_exec(s, self);
    if (pid < 0)
        _exit(1);
    setpgid(pid, pid); /* here too: whoever comes first */
    int64_t start = clock_ns();
    t->end = PROGRAM_EXITED;
    while (!has_ended(pid)) {
        bool late = s->limit_s > 0 && (double)(clock_ns() - start) > s->limit_s * 1e9;
        bool loud = !late && is_loud(s, from);
        if (!late && !loud && !wants_no_more(lifeline))
            continue;
        if (!has_ended(pid))
            t->end = late ? PROGRAM_LATE : loud ? PROGRAM_LOUD : PROGRAM_STOPPED;
        end_program(pid);
    }
    kill(-pid, SIGKILL); /* what it left in the background */
    waitpid(pid, &t->status, 0);
    if (t->end == PROGRAM_EXITED && WIFSIGNALED(t->status))
        t->end = PROGRAM_SIGNALLED;
    t->ended = true;
    end_orphans();
    _exit(0);
}

/* ---- ours */

/* As a shell reads it back. */
static void put_word(FILE *to, const char *word)
{
    if (*word && !word[strcspn(word, " \t\n'\"\\$*?;&|<>()`#~[]{}!")]) {
        fputs(word, to);
        return;
    }
    fputc('\'', to);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", to);
        else
            fputc(*word, to);
    fputc('\'', to);
}

/* The command line, so that a log says what it is of and how to do it again. */
static void log_command(const struct program *s)
{
    FILE *f = s->log ? fopen(s->log, "ae") : NULL;
    if (!f)
        return;
    fputc('$', f);
    for (const char *const *p = s->argv; *p; p++) {
        fputc(' ', f);
        put_word(f, p == s->argv && s->binary ? s->binary : *p);
    }
    fputc('\n', f);
    fclose(f);
}

/* The last line of the log that is behind the command line, and no JSON. */
static void find_said(const struct program *s, long from, char *said, size_t size)
{
    char text[TAIL + 1];
    said[0] = 0;
    FILE *f = s->log ? fopen(s->log, "re") : NULL;
    if (!f || fseek(f, 0, SEEK_END)) {
        if (f)
            fclose(f);
        return;
    }
    long end = ftell(f), at = end - from > TAIL ? end - TAIL : from;
    size_t n = fseek(f, at, SEEK_SET) ? 0 : fread(text, 1, TAIL, f);
    fclose(f);
    while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n] = 0;
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (!strncmp(line, "hone: ", 6))
        line += 6;
    snprintf(said, size, "%.*s", (int)size - 1, line);
    for (unsigned char *p = (unsigned char *)said; *p; p++)
        if (*p < ' ' || *p == 127)
            *p = '?';
}

static long log_size(const struct program *s)
{
    FILE *f = s->log ? fopen(s->log, "re") : NULL;
    long size = f && !fseek(f, 0, SEEK_END) ? ftell(f) : 0;
    if (f)
        fclose(f);
    return size > 0 ? size : 0;
}

/* Until the guard has ended, which it does when the lifeline closes; false: it was left to that by itself. */
static bool wait_for(pid_t guard, int *lifeline, const struct program *s)
{
    for (;;) {
        int status;
        pid_t ended = waitpid(guard, &status, WNOHANG);
        if (ended == guard || (ended < 0 && errno != EINTR))
            return true;
        int stop = s->tick ? s->tick(s->user) : 0;
        if (stop && *lifeline >= 0) {
            close(*lifeline);
            *lifeline = -1;
        }
        if (stop > 1)
            return false;
        poll(NULL, 0, *lifeline >= 0 ? TICK_MS / 2 : LOOK_MS);
    }
}

int program_run(struct program_result *r, const struct program *s, struct hone_error *e)
{
    int ends[2], rc = 0;
    struct told *told = shared_alloc(sizeof *told);
    *r = (struct program_result){0};
    if (!told || pipe2(ends, O_CLOEXEC)) {
        shared_free(told, sizeof *told);
        return err_set(e, HONE_ERESOURCE, "no pipe or memory to run %s", s->argv[0]);
    }
    log_command(s);
    long from = log_size(s);
    int64_t start = clock_ns();
    pid_t guard = fork();
    if (guard == 0) {
        close(ends[1]);
        guard_main(s, told, ends[0], from);
    }
    close(ends[0]);
    bool left = false;
    if (guard < 0)
        rc = err_set(e, HONE_ERESOURCE, "no process for %s: %s", s->argv[0], strerror(errno));
    else
        left = !wait_for(guard, &ends[1], s);
    if (ends[1] >= 0)
        close(ends[1]);
    r->seconds = (double)(clock_ns() - start) / 1e9;
    if (!rc && !left && !told->ended)
        rc = err_set(e, HONE_ERESOURCE, "%s: the process that watches over it was killed", s->argv[0]);
    r->end = left ? PROGRAM_STOPPED : told->end;
    r->exit_code = WIFEXITED(told->status) ? WEXITSTATUS(told->status) : 0;
    r->signal = WIFSIGNALED(told->status) ? WTERMSIG(told->status) : 0;
    shared_free(told, sizeof *told);
    find_said(s, from, r->said, sizeof r->said);
    return rc;
}

const char *program_describe(const struct program *s, const struct program_result *r, char *text, int size)
{
    char what[80];
    if (r->end == PROGRAM_LATE)
        snprintf(what, sizeof what, "was not done after %g s", s->limit_s);
    else if (r->end == PROGRAM_LOUD)
        snprintf(what, sizeof what, "was ended: its log is more than %lld MiB", s->log_limit >> 20);
    else if (r->end == PROGRAM_STOPPED)
        snprintf(what, sizeof what, "was stopped");
    else if (r->end == PROGRAM_SIGNALLED)
        snprintf(what, sizeof what, "ended by signal %d (%s)", r->signal, strsignal(r->signal));
    else
        snprintf(what, sizeof what, "exit code %d", r->exit_code);
    snprintf(text, (size_t)size, "%s%s%.300s", what, r->said[0] ? ": " : "", r->said);
    return text;
}
