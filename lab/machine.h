/* machine.h: what this machine is, and what else happened on it while something was measured: time stolen by the hypervisor,
 * other processes, throttling, quotas, swapping. What makes a figure doubtful is said beside the figure. */
#ifndef LAB_MACHINE_H
#define LAB_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct machine {
    char cpu[128], features[128]; /* features: after --mask */
    char system[128];             /* kernel's name and release */
    char hypervisor[32];          /* "kvm", "" when none is seen */
    char governor[32];            /* of the first processor; "" when the kernel tells none, as in most virtual machines */
    char huge_pages[16];          /* "always", "madvise", "never", "": unknown */
    int cores, processors;        /* physical cores and logical processors that this process may use */
    double quota;                 /* processors' worth of time that the control group may use; 0: no limit */
    int64_t memory_total;         /* bytes */
};

/* root: a folder in whose place / is read, for tests; "" is the real one. Unknown things stay empty or 0. */
void machine_describe(struct machine *m, const char *root);
json_t *machine_json(const struct machine *m);

/* Counters at one moment; -1 where the kernel tells none. */
struct machine_state {
    int64_t ns;                /* monotonic */
    int64_t busy, steal, idle; /* of all processors together, in nanoseconds */
    int64_t own;               /* processor time of this process and of its children that have ended */
    int64_t throttled,
        quota_throttled;      /* thermal events of all cores; nanoseconds that the control group waited for its quota */
    int64_t swapped;          /* pages in and out */
    int64_t switched;         /* involuntary context switches of this process */
    double load;              /* average of one minute */
    int64_t memory_available; /* bytes */
};
void machine_look(struct machine_state *s, const char *root);

/* What happened between two looks. */
struct machine_change {
    double seconds;
    double steal, others; /* shares of all processors' time: taken by the hypervisor, spent by other processes; -1: unknown */
    int64_t throttled, quota_throttled, swapped, switched; /* differences; -1: unknown */
    double load;
    int64_t memory_available; /* the smaller */
};
struct machine_change machine_between(const struct machine_state *before, const struct machine_state *after);
json_t *machine_change_json(const struct machine_change *c);

/* A list of sentences, empty where all is well: what about the machine, the build (hone_build()) or the number of threads makes
 * what was measured doubtful. c may be NULL: nothing was measured yet. */
json_t *machine_warnings(const struct machine *m, const struct machine_change *c, const char *build, int n_threads);

/* Those of what happened alone. */
json_t *machine_change_warnings(const struct machine_change *c);

/* Resets the kernel's mark of this process' largest resident set, where it lets us; the mark, in bytes. */
bool machine_peak_reset(void);
int64_t machine_peak(void);

#endif
