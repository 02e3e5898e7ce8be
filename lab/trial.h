/* trial.h: one kernel on one specimen: right, on every number of threads, on every call, and nothing else touched. */
#ifndef LAB_TRIAL_H
#define LAB_TRIAL_H

#include "lab/difference.h"
#include "lab/specimen.h"

/* X(name, word): what a fault is. */
#define FAULTS(X)                                                                                                              \
    X(FAULT_NONE, "none")                                                                                                      \
    X(FAULT_NAN, "nan")           /* not finite where the reference is */                                                      \
    X(FAULT_VALUE, "value")       /* one value errs beyond its bound */                                                        \
    X(FAULT_NMSE, "nmse")         /* all together err beyond the tolerance */                                                  \
    X(FAULT_BITS, "bits")         /* an exact op is not */                                                                     \
    X(FAULT_THREADS, "threads")   /* another number of threads, other bits */                                                  \
    X(FAULT_REPEAT, "repeat")     /* the same call again, other bits */                                                        \
    X(FAULT_DAMAGE, "damage")     /* wrote where it must not */                                                                \
    X(FAULT_SCRATCH, "scratch")   /* wrote behind the scratch that it declared */                                              \
    X(FAULT_REFUSED, "refused")   /* fits accepted, and run failed */                                                          \
    X(FAULT_LAYOUT, "layout")     /* its weight's layout is not exact */                                                       \
    X(FAULT_CRASH, "crash")       /* ended by a signal, or exited */                                                           \
    X(FAULT_HANG, "hang")         /* did not end in time */                                                                    \
    X(FAULT_OVERLAP, "overlap")   /* the plan put a result over a source */                                                    \
    X(FAULT_UNTESTED, "untested") /* no case fits it: nothing proves it */

#define FAULT_ENUM(name, word) name,
enum fault { FAULTS(FAULT_ENUM) N_FAULTS };
#undef FAULT_ENUM
const char *fault_word(enum fault f);

enum trial_status { TRIAL_NOT_RUN, TRIAL_OK, TRIAL_UNFIT, TRIAL_FAULT };

/* What came of it. Holds no pointers that do not outlive the process: it may lie in memory shared with a child. */
struct trial_result {
    enum trial_status status;
    enum fault fault;
    /* When: threads, the call of the same data (1 or 2), the data set; the weight's layout where the kernel reads any. */
    int threads, call, data;
    char layout[24];
    /* Where, and what was found there. */
    char tensor[NAME_SIZE];
    int64_t row[3], column;
    double got, want;
    double nmse, tolerance; /* the largest of all outputs; when ok too */
    double largest;         /* share of a single value's bound that the worst value used; when ok too */
    char message[240];      /* a sentence: the fault, or why it does not fit */
};

enum { TRIAL_POOLS = 4 };
struct trial_pools {
    struct pool *pools[TRIAL_POOLS]; /* of 1, 2, 3 and 7 threads */
};
int trial_pools_create(struct trial_pools *p, struct hone_error *e);
void trial_pools_free(struct trial_pools *p);

/* May k run the specimen's node, as the planner would ask? features: of the device, or what a mask leaves of them. */
bool trial_fits(const struct backend *b, const struct kernel *k, const struct specimen *s, unsigned features, struct reason *r);
/* Runs kernel k of backend b, on its device 0 where it is no host; only what fits. With layouts, for a kernel that reads any, in each of them that the weight
 * can have (n_layouts of them; rows always). *r is filled as it goes, so that a crash leaves in it how far it came. */
void trial_run(struct trial_result *r, struct specimen *s, const struct backend *on, const struct kernel *k, const struct layout *const *layouts,
               int n_layouts, const struct trial_pools *pools);

#endif
