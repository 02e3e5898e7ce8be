/* device_probe.c: what a file of device code says of itself: its table, and what its functions allow, read from the device.
 *
 * A process that has begun to work with a device can make no children that do (the driver does not survive a fork), and the
 * check runs its cases in such children. So the first look is taken by a child, and this process learns what it saw; a file
 * that makes the driver crash or hang is an error with a name besides. Reading the table out of the file's own ELF sections
 * was the alternative: it works for .cubin, is another parser for .ptx, and says nothing of what the functions allow. */
#include "backends/plugin/plugin.h"

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

enum { LIMIT_MS = 60000, LEAST = 2 * sizeof(unsigned), MOST = 1 << 22 }; /* ptx is compiled meanwhile; bytes of all facts */

void device_facts_free(struct device_facts *f)
{
    free(f->table);
    free(f->functions);
    *f = (struct device_facts){0};
}

static const char *entry_function(const struct device_facts *f, size_t i,
                                  char name[sizeof((struct hone_cuda_kernel *)0)->function])
{
    struct hone_cuda_kernel entry = {0};
    size_t size = f->bytes / f->n;
    memcpy(&entry, (const char *)f->table + i * size, size < sizeof entry ? size : sizeof entry);
    entry.function[sizeof entry.function - 1] = 0;
    return memcpy(name, entry.function, sizeof entry.function);
}

static int facts_here(struct device_facts *f, const struct module_api *api, void *module, struct hone_error *e)
{
    unsigned size = 0;
    int rc = api->constant(module, "hone_cuda_kernels", &f->table, &f->bytes, e);
    if (rc)
        return rc;
    if (f->bytes >= LEAST)
        memcpy(&size, f->table, sizeof size);
    if (size < LEAST || size > f->bytes || f->bytes % size)
        return err_set(e, HONE_EINPUT,
                       "hone_cuda_kernels has %zu bytes, in entries of %u: begin each with HONE_CUDA_KERNEL (%zu)", f->bytes,
                       size, sizeof(struct hone_cuda_kernel));
    f->n = f->bytes / size;
    if (f->n > PLUGIN_MAX_KERNELS)
        return err_set(e, HONE_EINPUT, "it has %zu kernels; %d are possible", f->n, PLUGIN_MAX_KERNELS);
    f->functions = calloc(f->n, sizeof *f->functions);
    if (!f->functions)
        return err_set(e, HONE_ERESOURCE, "no memory for its table");
    for (size_t i = 0; i < f->n; i++) {
        struct device_limits *l = &f->functions[i];
        struct hone_error own = {0};
        char name[sizeof((struct hone_cuda_kernel *)0)->function];
        void *function;
        size_t shared = 0;
        l->rc = api->function(module, entry_function(f, i, name), sizeof(struct hone_cuda_node), &function, &l->max_threads,
                              &shared, &own);
        l->max_shared = shared;
        snprintf(l->message, sizeof l->message, "%.199s", own.message);
    }
    return 0;
}

/* ---- from a child */

struct head {
    int32_t rc;
    char message[sizeof((struct hone_error *)0)->message];
    uint64_t bytes, n;
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

static _Noreturn void child(int fd, const struct module_api *api, void *module)
{
    struct device_facts f = {0};
    struct hone_error e = {0};
    struct head h = {0};
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    h.rc = facts_here(&f, api, module, &e);
    memcpy(h.message, e.message, sizeof h.message);
    h.bytes = h.rc ? 0 : f.bytes;
    h.n = h.rc ? 0 : f.n;
    bool done = put(fd, &h, sizeof h) && put(fd, f.table, h.bytes) && put(fd, f.functions, h.n * sizeof *f.functions);
    _exit(done ? 0 : 1); /* without the driver's own farewell, which takes a second */
}

/* Exactly n bytes; false: the child ended or took too long. */
static bool get(int fd, void *data, size_t n, int64_t end)
{
    for (char *at = data; n;) {
        int64_t left = (end - clock_ns()) / 1000000;
        struct pollfd p = {fd, POLLIN, 0};
        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            return false;
        ssize_t got = read(fd, at, n);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static int receive(struct device_facts *f, int fd, struct hone_error *e)
{
    struct head h;
    int64_t end = clock_ns() + (int64_t)LIMIT_MS * 1000000;
    bool got = get(fd, &h, sizeof h, end);
    if (got && h.rc) {
        h.message[sizeof h.message - 1] = 0;
        return err_set(e, h.rc, "%s", h.message);
    }
    if (got && h.n && h.n <= PLUGIN_MAX_KERNELS && h.bytes < MOST) {
        *f = (struct device_facts){malloc(h.bytes + 1), h.bytes, calloc(h.n, sizeof *f->functions), h.n};
        if (!f->table || !f->functions)
            return err_set(e, HONE_ERESOURCE, "no memory for its table");
        if (get(fd, f->table, f->bytes, end) && get(fd, f->functions, f->n * sizeof *f->functions, end))
            return 0;
    }
    return err_set(e, HONE_EINPUT, "the driver did not come to an end with it within %d s, or crashed", LIMIT_MS / 1000);
}

int device_facts_read(struct device_facts *f, const struct module_api *api, void *module, struct hone_error *e)
{
    int fd[2];
    *f = (struct device_facts){0};
    if (api->started())
        return facts_here(f, api, module, e);
    if (pipe2(fd, O_CLOEXEC))
        return err_set(e, HONE_ERESOURCE, "no pipe to a child that would look at it: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        child(fd[1], api, module);
    }
    close(fd[1]);
    int rc = pid < 0 ? err_set(e, HONE_ERESOURCE, "no child process to look at it: %s", strerror(errno)) : receive(f, fd[0], e);
    close(fd[0]);
    if (pid > 0) {
        if (rc)
            kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    return rc;
}
