/* affinity.c: threads inherit the mask of the thread that starts them, so the pool needs no word of it. Strict places are given
 * from outside, through the list of this process' threads in /proc: the alternative is a parameter through session and pool for
 * one flag of one command. Linux gives thread numbers in ascending order as threads are started, wrap-around aside, in which
 * case two threads change places. */
#include "lab/affinity.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int threads_now(pid_t *list)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *f; d && n < AFFINITY_THREADS && (f = readdir(d));)
        if (isdigit((unsigned char)f->d_name[0]))
            list[n++] = (pid_t)strtol(f->d_name, NULL, 10);
    if (d)
        closedir(d);
    return n;
}

static int parse(const char *text, cpu_set_t *set, struct hone_error *e)
{
    const char *q = !strncmp(text, "0x", 2) ? text + 2 : text;
    size_t n = strlen(q);
    CPU_ZERO(set);
    if (!n || strspn(q, "0123456789abcdefABCDEF") != n || n > AFFINITY_CPUS / 4)
        return err_set(e, HONE_EUSAGE, "--cpu-mask %.60s: not a mask of up to %d hexadecimal digits", text, AFFINITY_CPUS / 4);
    for (size_t i = 0; i < n; i++) {
        int c = tolower((unsigned char)q[n - 1 - i]), v = isdigit(c) ? c - '0' : c - 'a' + 10;
        for (int b = 0; b < 4; b++)
            if (v & 1 << b)
                CPU_SET(4 * i + (size_t)b, set);
    }
    return 0;
}

int affinity_enter(struct affinity *a, const char *mask, struct hone_error *e)
{
    cpu_set_t wanted;
    *a = (struct affinity){0};
    int rc = parse(mask, &wanted, e);
    if (rc)
        return rc;
    if (sched_getaffinity(0, sizeof a->before, &a->before))
        return err_set(e, HONE_ERESOURCE, "the processors of this process cannot be asked for: %s", strerror(errno));
    CPU_AND(&a->mask, &wanted, &a->before);
    if (!CPU_COUNT(&wanted))
        a->mask = a->before;
    else if (!CPU_COUNT(&a->mask))
        return err_set(e, HONE_EUSAGE, "--cpu-mask %.60s names no processor that this process may use", mask);
    if (sched_setaffinity(0, sizeof a->mask, &a->mask))
        return err_set(e, HONE_ERESOURCE, "--cpu-mask %.60s: %s", mask, strerror(errno));
    a->n_known = threads_now(a->known);
    a->on = true;
    return 0;
}

static int ascending(const void *x, const void *y)
{
    pid_t a = *(const pid_t *)x, b = *(const pid_t *)y;
    return a < b ? -1 : a > b;
}

/* The k-th processor of the mask, round and round. */
static size_t processor(const cpu_set_t *mask, int k)
{
    size_t cpu = 0;
    for (k %= CPU_COUNT(mask);; cpu++)
        if (CPU_ISSET(cpu, mask) && k-- == 0)
            return cpu;
}

static int place(pid_t thread, const cpu_set_t *mask, int k, struct hone_error *e)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor(mask, k), &one);
    return sched_setaffinity(thread, sizeof one, &one) ? err_set(e, HONE_ERESOURCE, "--cpu-strict: %s", strerror(errno)) : 0;
}

int affinity_pin(const struct affinity *a, struct hone_error *e)
{
    pid_t now[AFFINITY_THREADS];
    int n = threads_now(now), k = 1, rc = place(0, &a->mask, 0, e);
    qsort(now, (size_t)n, sizeof *now, ascending);
    for (int i = 0; i < n && !rc; i++) {
        bool old = false;
        for (int j = 0; j < a->n_known; j++)
            old |= a->known[j] == now[i];
        if (!old)
            rc = place(now[i], &a->mask, k++, e);
    }
    return rc;
}

void affinity_leave(struct affinity *a)
{
    if (a->on)
        sched_setaffinity(0, sizeof a->before, &a->before);
    a->on = false;
}
