/* isolate.c: forked workers, a slot of shared memory each, one pipe each.
 *
 * A worker takes the next group of jobs from a shared counter and writes the job at hand into its slot. The parent waits on the
 * pipes, which carry what the children print, and end when they do. A child that dies at a job is replaced by one that goes on
 * behind that job. A fork costs 0.3 ms, so a process a job would double the time of a check of thousands of small cases; a
 * process for all would lose the rest with the first crash.
 *
 * Children print into the pipe and not to the terminal: a kernel's printf would spoil the parent's JSON. They die with their
 * parent, and leave no core files. */
#include "lab/isolate.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORKERS = 64, SAID = 400, POLL_MS = 50, NO_JOB = -1, START_FAILED = 99 };

/* Shared with the child. */
struct slot {
    atomic_int job;    /* at hand; NO_JOB: none */
    atomic_int resume; /* of the group at hand, what is left: first job, and behind the last; both 0: take a new group */
    atomic_int until;
    atomic_llong since; /* when the job began */
};

struct shared {
    atomic_int next; /* job that no worker has taken */
    atomic_int done;
    struct slot slots[MAX_WORKERS];
};

struct worker_process {
    pid_t pid; /* 0: none */
    int pipe;
    bool killed;
    char said[SAID + 1];
    size_t n_said;
};

void *shared_alloc(size_t size)
{
    void *p = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void shared_free(void *p, size_t size)
{
    if (p)
        munmap(p, size ? size : 1);
}

/* ---- the child */

/* The next group, into the slot; false when there is none. */
static bool take_group(const struct isolation *o, struct shared *s, struct slot *slot)
{
    int first = atomic_load(&s->next);
    for (;;) {
        if (first >= o->n_jobs)
            return false;
        int end = first + 1;
        while (end < o->n_jobs && o->group && o->group(o->user, end) == o->group(o->user, first))
            end++;
        if (!atomic_compare_exchange_strong(&s->next, &first, end))
            continue;
        atomic_store(&slot->resume, first);
        atomic_store(&slot->until, end);
        return true;
    }
}

static void child_prepare(int pipe_out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the whole group; the parent ends us */
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    dup2(pipe_out, STDOUT_FILENO);
    dup2(pipe_out, STDERR_FILENO);
}

_Noreturn static void child_main(const struct isolation *o, struct shared *s, struct slot *slot)
{
    struct hone_error e = {0};
    if (o->start && o->start(o->user, &e)) {
        ssize_t ignored = write(STDERR_FILENO, e.message, strlen(e.message));
        (void)ignored;
        _exit(START_FAILED);
    }
    while (atomic_load(&slot->resume) < atomic_load(&slot->until) || take_group(o, s, slot)) {
        int job = atomic_load(&slot->resume);
        atomic_store(&slot->since, clock_ns());
        atomic_store(&slot->job, job);
        o->job(o->user, job);
        atomic_store(&slot->job, NO_JOB);
        atomic_store(&slot->resume, job + 1);
        atomic_fetch_add(&s->done, 1);
    }
    if (o->end)
        o->end(o->user);
    _exit(0);
}

/* ---- the parent */

static int start_worker(const struct isolation *o, struct shared *s, struct worker_process *w, struct slot *slot,
                        struct hone_error *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return err_set(e, HONE_ERESOURCE, "no pipe to a child process: %s", strerror(errno));
    atomic_store(&slot->job, NO_JOB);
    pid_t pid = fork();
    if (pid < 0) {
        int why = errno;
        close(ends[0]);
        close(ends[1]);
        return err_set(e, HONE_ERESOURCE, "no child process: %s", strerror(why));
    }
    if (pid == 0) {
        child_prepare(ends[1]);
        close(ends[0]);
        close(ends[1]);
        child_main(o, s, slot);
    }
    close(ends[1]);
    *w = (struct worker_process){.pid = pid, .pipe = ends[0]};
    return 0;
}

/* Keeps the end of what the child says. False at its end. */
static bool listen_to(struct worker_process *w)
{
    char text[4096];
    ssize_t n = read(w->pipe, text, sizeof text);
    if (n < 0)
        return errno == EINTR;
    for (ssize_t i = 0; i < n; i++) {
        if (w->n_said == SAID)
            memmove(w->said, w->said + 1, --w->n_said);
        w->said[w->n_said++] = text[i] == '\n' || (text[i] >= ' ' && text[i] < 127) ? text[i] : '?';
    }
    return n > 0;
}

static void kill_late(const struct isolation *o, struct worker_process *w, struct slot *slot)
{
    int job = atomic_load(&slot->job);
    int64_t since = atomic_load(&slot->since);
    if (job == NO_JOB || w->killed || clock_ns() - since < (int64_t)o->limit_ms * 1000000)
        return;
    w->killed = true;
    kill(w->pid, SIGKILL);
}

/* After the pipe's end. 0, or the code when the child could not even start. */
static int bury(const struct isolation *o, struct shared *s, struct worker_process *w, struct slot *slot, struct hone_error *e)
{
    int status = 0;
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(w->pipe);
    w->said[w->n_said] = 0;
    int job = atomic_load(&slot->job);
    struct casualty c = {.timed_out = w->killed, .said = w->said};
    if (WIFSIGNALED(status))
        c.signal = WTERMSIG(status);
    else
        c.exit_code = WEXITSTATUS(status);
    w->pid = 0;
    if (job == NO_JOB && c.exit_code == START_FAILED)
        return err_set(e, HONE_ERESOURCE, "%s", w->said);
    if (job == NO_JOB && (c.signal || c.exit_code) && atomic_load(&slot->resume) < atomic_load(&slot->until))
        return err_set(e, HONE_EFAULT, "a child process ended between its jobs: %.200s", w->said);
    if (job == NO_JOB)
        return 0;
    o->died(o->user, job, &c);
    atomic_store(&slot->resume, job + 1);
    atomic_fetch_add(&s->done, 1);
    return 0;
}

static bool work_left(const struct isolation *o, struct shared *s, struct slot *slot)
{
    return atomic_load(&slot->resume) < atomic_load(&slot->until) || atomic_load(&s->next) < o->n_jobs;
}

/* One look at all children. */
static int attend(const struct isolation *o, struct shared *s, struct worker_process *w, int n_workers, struct hone_error *e)
{
    struct pollfd fds[MAX_WORKERS];
    for (int i = 0; i < n_workers; i++)
        fds[i] = (struct pollfd){.fd = w[i].pid ? w[i].pipe : -1, .events = POLLIN};
    if (poll(fds, (nfds_t)n_workers, POLL_MS) < 0 && errno != EINTR)
        return err_set(e, HONE_EFAULT, "cannot wait for child processes: %s", strerror(errno));
    int rc = 0;
    for (int i = 0; i < n_workers && !rc; i++) {
        if (!w[i].pid)
            continue;
        kill_late(o, &w[i], &s->slots[i]);
        if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)) || listen_to(&w[i]))
            continue;
        rc = bury(o, s, &w[i], &s->slots[i], e);
        if (!rc && work_left(o, s, &s->slots[i]))
            rc = start_worker(o, s, &w[i], &s->slots[i], e);
    }
    if (!rc && o->progress && o->progress(o->user, atomic_load(&s->done)))
        rc = err_set(e, HONE_ECANCELED, "cancelled");
    return rc;
}

static bool any_alive(const struct worker_process *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w[i].pid)
            return true;
    return false;
}

int isolate(const struct isolation *o, struct hone_error *e)
{
    struct shared *s = shared_alloc(sizeof *s);
    struct worker_process *w = calloc(MAX_WORKERS, sizeof *w);
    int n = o->n_workers < 1 ? 1 : o->n_workers > MAX_WORKERS ? MAX_WORKERS : o->n_workers;
    int rc = s && w ? 0 : err_set(e, HONE_ERESOURCE, "no memory to run %d jobs apart", o->n_jobs);
    for (int i = 0; i < n && !rc && o->n_jobs; i++)
        rc = start_worker(o, s, &w[i], &s->slots[i], e);
    while (!rc && any_alive(w, n))
        rc = attend(o, s, w, n, e);
    for (int i = 0; w && i < n; i++)
        if (w[i].pid) { /* a failure or a cancel: nobody is left behind */
            kill(w[i].pid, SIGKILL);
            close(w[i].pipe);
            while (waitpid(w[i].pid, NULL, 0) < 0 && errno == EINTR)
                ;
        }
    free(w);
    shared_free(s, sizeof *s);
    return rc;
}
