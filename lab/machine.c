/* machine.c: the kernel's own files, read with care: any of them may be missing (a container, a virtual machine, another
 * kernel), and then the fact is unknown, never zero. Counters are taken for all processors together: in a virtual machine the
 * ones that a process ran on say little about who had them meanwhile.
 *
 * What is a cause for doubt has its threshold here: 1 % of the time stolen or 5 % used by others is what moves a median of
 * short samples by more than half a per cent on two virtual cores. Reading hardware counters (instructions, cycles) would say
 * more; most virtual machines hide them. */
#include "lab/machine.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool read_text(const char *root, const char *path, char *text, size_t size)
{
    char full[1024];
    text[0] = 0;
    if ((size_t)snprintf(full, sizeof full, "%s%s", root, path) >= sizeof full)
        return false;
    FILE *f = fopen(full, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, size - 1, f);
    fclose(f);
    text[n] = 0;
    while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = 0;
    return n > 0;
}

/* The number behind `key` at the start of a line of text; -1: none. */
static int64_t number_after(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        long long v;
        if (!strncmp(p, key, n) && sscanf(p + n, " %lld", &v) == 1 && v >= 0)
            return v;
    }
    return -1;
}

/* ---- what it is */

static void hypervisor_name(char *name, size_t size)
{
    name[0] = 0;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    static const struct {
        const char *signature, *name;
    } known[] = {{"KVMKVMKVM", "kvm"},
                 {"Microsoft Hv", "hyper-v"},
                 {"VMwareVMware", "vmware"},
                 {"XenVMMXenVMM", "xen"},
                 {"TCGTCGTCGTCG", "qemu"}};
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 31))
        return;
    char signature[13] = "";
    __cpuid(0x40000000, a, b, c, d);
    memcpy(signature, &b, 4);
    memcpy(signature + 4, &c, 4);
    memcpy(signature + 8, &d, 4);
    snprintf(name, size, "unknown");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(signature, known[i].signature))
            snprintf(name, size, "%s", known[i].name);
#else
    (void)size;
#endif
}

static void features_list(char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < CPU_N_FEATURES; i++)
        if (cpu_features() & 1u << i) {
            size_t n = strlen(text);
            snprintf(text + n, size - n, "%s%s", n ? " " : "", cpu_feature_name(1u << i));
        }
}

/* The file of this process' control group, version 2, or of the nearest group above that has it. */
static bool group_text(const char *root, const char *file, int *up, char *text, size_t size)
{
    char groups[2048], path[1024];
    if (!read_text(root, "/proc/self/cgroup", groups, sizeof groups))
        return false;
    const char *p = !strncmp(groups, "0::", 3) ? groups : strstr(groups, "\n0::");
    if (!p)
        return false;
    p = strchr(p, '/');
    char group[512] = "";
    if (p)
        snprintf(group, sizeof group, "%.*s", (int)strcspn(p, "\n"), p);
    for (int level = 0;; level++) {
        size_t n = strlen(group);
        if (n && group[n - 1] == '/')
            group[--n] = 0;
        if (level >= *up) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, file);
            if (read_text(root, path, text, size)) {
                *up = level;
                return true;
            }
        }
        char *slash = strrchr(group, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
}

/* The narrowest limit of the groups that this process is in. */
static double quota_of(const char *root)
{
    char text[128];
    double best = 0;
    for (int up = 0; up < 64 && group_text(root, "cpu.max", &up, text, sizeof text); up++) {
        double quota, period;
        if (sscanf(text, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 && (best == 0 || quota / period < best))
            best = quota / period;
    }
    if (read_text(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text) && best == 0) {
        double quota = atof(text);
        if (read_text(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text) && quota > 0 && atof(text) > 0)
            best = quota / atof(text);
    }
    return best;
}

void machine_describe(struct machine *m, const char *root)
{
    char text[4096];
    struct utsname u;
    *m = (struct machine){.cores = cpu_cores(), .processors = cpu_processors(), .quota = quota_of(root)};
    snprintf(m->cpu, sizeof m->cpu, "%s", cpu_name());
    features_list(m->features, sizeof m->features);
    if (!uname(&u))
        snprintf(m->system, sizeof m->system, "%.60s %.60s", u.sysname, u.release);
    hypervisor_name(m->hypervisor, sizeof m->hypervisor);
    if (read_text(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text))
        snprintf(m->governor, sizeof m->governor, "%.31s", text);
    if (read_text(root, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) {
        const char *chosen = strchr(text, '[');
        if (chosen)
            snprintf(m->huge_pages, sizeof m->huge_pages, "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
    }
    int64_t kib = read_text(root, "/proc/meminfo", text, sizeof text) ? number_after(text, "MemTotal:") : -1;
    m->memory_total = kib > 0 ? kib * 1024 : 0;
}

json_t *machine_json(const struct machine *m)
{
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:f, s:I}", "cpu", m->cpu, "cores", m->cores, "processors",
                     m->processors, "features", m->features, "system", m->system, "hypervisor", m->hypervisor, "governor",
                     m->governor, "huge_pages", m->huge_pages, "quota", m->quota, "memory_total", (json_int_t)m->memory_total);
}

/* ---- what it does */

static void look_at_processors(struct machine_state *s, const char *root)
{
    char text[512];
    long long t[8] = {0};
    s->busy = s->steal = s->idle = -1;
    if (!read_text(root, "/proc/stat", text, sizeof text) ||
        sscanf(text, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6, t + 7) < 4)
        return;
    int64_t tick = 1000000000 / sysconf(_SC_CLK_TCK);
    s->busy = (t[0] + t[1] + t[2] + t[5] + t[6]) * tick; /* user, nice, system, irq, softirq */
    s->idle = (t[3] + t[4]) * tick;                      /* idle, waiting for input or output */
    s->steal = t[7] * tick;
}

static int64_t throttle_events(const char *root)
{
    char path[1024], text[64];
    int64_t sum = -1;
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu", root);
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d));) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/%.200s/thermal_throttle/core_throttle_count", f->d_name);
        if (!strncmp(f->d_name, "cpu", 3) && read_text(root, path, text, sizeof text))
            sum = (sum < 0 ? 0 : sum) + atoll(text);
    }
    if (d)
        closedir(d);
    return sum;
}

static int64_t nanoseconds(struct timeval t)
{
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
}

void machine_look(struct machine_state *s, const char *root)
{
    char text[1 << 14];
    struct timespec own;
    struct rusage use;
    int up = 0;
    *s = (struct machine_state){.ns = clock_ns(), .own = -1, .switched = -1, .swapped = -1, .quota_throttled = -1};
    look_at_processors(s, root);
    if (!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own))
        s->own = (int64_t)own.tv_sec * 1000000000 + own.tv_nsec;
    if (s->own >= 0 && !getrusage(RUSAGE_CHILDREN, &use)) /* a sample in a fresh process is not another's work */
        s->own += nanoseconds(use.ru_utime) + nanoseconds(use.ru_stime);
    if (!getrusage(RUSAGE_SELF, &use))
        s->switched = use.ru_nivcsw;
    s->throttled = throttle_events(root);
    if (group_text(root, "cpu.stat", &up, text, sizeof text)) {
        int64_t us = number_after(text, "throttled_usec");
        s->quota_throttled = us < 0 ? -1 : us * 1000;
    }
    if (read_text(root, "/proc/vmstat", text, sizeof text)) {
        int64_t in = number_after(text, "pswpin"), out = number_after(text, "pswpout");
        s->swapped = in < 0 || out < 0 ? -1 : in + out;
    }
    if (read_text(root, "/proc/loadavg", text, sizeof text))
        s->load = atof(text);
    int64_t kib = read_text(root, "/proc/meminfo", text, sizeof text) ? number_after(text, "MemAvailable:") : -1;
    s->memory_available = kib > 0 ? kib * 1024 : 0;
}

static int64_t difference(int64_t before, int64_t after)
{
    return before < 0 || after < before ? -1 : after - before;
}

struct machine_change machine_between(const struct machine_state *a, const struct machine_state *b)
{
    struct machine_change c = {.seconds = (double)(b->ns - a->ns) / 1e9,
                               .steal = -1,
                               .others = -1,
                               .throttled = difference(a->throttled, b->throttled),
                               .quota_throttled = difference(a->quota_throttled, b->quota_throttled),
                               .swapped = difference(a->swapped, b->swapped),
                               .switched = difference(a->switched, b->switched),
                               .load = b->load,
                               .memory_available =
                                   a->memory_available < b->memory_available ? a->memory_available : b->memory_available};
    int64_t busy = difference(a->busy, b->busy), steal = difference(a->steal, b->steal), idle = difference(a->idle, b->idle),
            own = difference(a->own, b->own);
    if (busy >= 0 && steal >= 0 && idle >= 0 && busy + steal + idle > 0) {
        double all = (double)(busy + steal + idle);
        c.steal = (double)steal / all;
        if (own >= 0)
            c.others = busy > own ? (double)(busy - own) / all : 0;
    }
    return c;
}

json_t *machine_change_json(const struct machine_change *c)
{
    return json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:I}", "seconds", c->seconds, "steal", c->steal, "others",
                     c->others, "throttled", (json_int_t)c->throttled, "quota_throttled_ns", (json_int_t)c->quota_throttled,
                     "swapped_pages", (json_int_t)c->swapped, "involuntary_switches", (json_int_t)c->switched, "load", c->load,
                     "memory_available", (json_int_t)c->memory_available);
}

/* ---- what is doubtful */

static void warn(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(json_t *list, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    json_array_append_new(list, json_vsprintf(format, ap));
    va_end(ap);
}

/* Counters of processor time move in ticks of 10 ms: below a fifth of a second a share of one per cent is noise of theirs. */
enum { TICKS_ENOUGH_MS = 200 };

static void warn_of_change(json_t *list, const struct machine_change *c)
{
    bool counted = c->seconds * 1000 >= TICKS_ENOUGH_MS;
    if (counted && c->steal > 0.01)
        warn(list, "the hypervisor took %.1f %% of the processors' time", 100 * c->steal);
    if (counted && c->others > 0.05)
        warn(list, "other processes used %.1f %% of the processors' time", 100 * c->others);
    if (c->throttled > 0)
        warn(list, "the processor throttled %lld times because it was hot", (long long)c->throttled);
    if (c->quota_throttled > 0)
        warn(list, "the control group's quota stopped this process for %.1f ms", (double)c->quota_throttled / 1e6);
    if (c->swapped > 0)
        warn(list, "the machine swapped %lld pages", (long long)c->swapped);
}

json_t *machine_change_warnings(const struct machine_change *c)
{
    json_t *list = json_array();
    warn_of_change(list, c);
    return list;
}

json_t *machine_warnings(const struct machine *m, const struct machine_change *c, const char *build, int n_threads)
{
    json_t *list = json_array();
    if (n_threads > m->processors)
        warn(list, "%d threads on %d processors: they wait for one another at every node", n_threads, m->processors);
    if (m->quota > 0 && n_threads > m->quota)
        warn(list, "%d threads under a quota of %.2f processors", n_threads, m->quota);
    if (m->governor[0] && strcmp(m->governor, "performance") != 0)
        warn(list, "the frequency governor is '%s': clocks follow the load", m->governor);
    if (!strcmp(m->huge_pages, "never"))
        warn(list, "transparent huge pages are off: large weights miss the TLB more often");
    if (build && strstr(build, "-O0"))
        warn(list, "hone was built without optimisation");
    if (build && strstr(build, "-fsanitize"))
        warn(list, "hone was built with sanitizers");
    if (c)
        warn_of_change(list, c);
    return list;
}

bool machine_peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f)
        return false;
    bool ok = fputs("5\n", f) >= 0;
    return fclose(f) == 0 && ok;
}

int64_t machine_peak(void)
{
    char text[4096];
    int64_t kib = read_text("", "/proc/self/status", text, sizeof text) ? number_after(text, "VmHWM:") : -1;
    return kib > 0 ? kib * 1024 : 0;
}
