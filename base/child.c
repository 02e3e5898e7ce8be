/* child.c: see child.h. The child sends one head (code, message, number of bytes) and the bytes down a pipe, and leaves without
 * the farewells of libraries, some of which take a second. The parent takes what comes until the time is over, so a child that
 * hangs costs the limit and one that crashes nothing. */
#include "base/child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256 << 20 }; /* bytes that a child may send */

struct head {
    struct hone_error error;
    uint64_t n;
};

static bool put(int fd, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        ssize_t written = write(fd, at, n);
        if (written < 0 && errno != EINTR)
            return false;
        at += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* Exactly n bytes; false: the child ended or took too long. */
static bool get(int fd, void *data, size_t n, int64_t end)
{
    for (char *at = data; n;) {
        int64_t left = (end - clock_ns()) / 1000000;
        struct pollfd p = {fd, POLLIN, 0};
        if (left <= 0 || poll(&p, 1, left < INT32_MAX ? (int)left : INT32_MAX) == 0)
            return false;
        ssize_t got = read(fd, at, n);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static int receive(int fd, int limit_ms, void **bytes, size_t *n, struct hone_error *e)
{
    struct head h;
    int64_t end = clock_ns() + (int64_t)limit_ms * 1000000;
    bool got = get(fd, &h, sizeof h, end);
    if (got && h.error.code) {
        h.error.message[sizeof h.error.message - 1] = 0;
        return err_set(e, h.error.code, "%s", h.error.message);
    }
    if (got && h.n <= MOST) {
        *bytes = malloc(h.n + 1);
        if (!*bytes)
            return err_set(e, HONE_ERESOURCE, "no memory for %llu bytes", (unsigned long long)h.n);
        *n = h.n;
        if (get(fd, *bytes, *n, end))
            return 0;
    }
    return end - clock_ns() > 2000000 /* poll rounds */ ? err_set(e, HONE_EINPUT, "the child process that tried it crashed")
                                                        : err_set(e, HONE_EINPUT,
                                                                  "the child process that tried it did not end within %d s",
                                                                  limit_ms / 1000);
}

int child_bytes(int (*produce)(void *arg, void **bytes, size_t *n, struct hone_error *e), void *arg, int limit_ms, void **bytes,
                size_t *n, struct hone_error *e)
{
    int fd[2];
    *bytes = NULL;
    *n = 0;
    if (pipe2(fd, O_CLOEXEC))
        return err_set(e, HONE_ERESOURCE, "no pipe to a child: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        struct head h = {0};
        void *made = NULL;
        size_t size = 0;
        close(fd[0]);
        signal(SIGPIPE, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        h.error.code = produce(arg, &made, &size, &h.error);
        h.n = h.error.code ? 0 : size;
        _exit(put(fd[1], &h, sizeof h) && put(fd[1], made, h.n) ? 0 : 1);
    }
    close(fd[1]);
    int rc =
        pid < 0 ? err_set(e, HONE_ERESOURCE, "no child process: %s", strerror(errno)) : receive(fd[0], limit_ms, bytes, n, e);
    close(fd[0]);
    if (pid > 0) {
        if (rc)
            kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    if (rc) {
        free(*bytes);
        *bytes = NULL;
        *n = 0;
    }
    return rc;
}
