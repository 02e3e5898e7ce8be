/* iterate.h: one task of the queue, from its lease to its decision: apply, build, check, verify, bench, ab against the tier's
 * best, tier check, and then promote or take back.
 *
 * Each step is a command of hone (or the task's own program) in a process of its own, with a time limit and a log, and says
 * what it found where anybody can read it: in the journal and by its exit code. So whoever would rather do a step by hand types
 * the line that stands at the top of its log. */
#ifndef LAB_ITERATE_H
#define LAB_ITERATE_H

#include "base/arena.h"
#include "lab/change.h"
#include "lab/journal.h"
#include "lab/machine_lock.h"
#include "lab/patch.h"
#include "lab/queue.h"
#include "lab/tier.h"

/* X(step, default limit in seconds) */
#define ITERATE_STEPS(X)                                                                                                       \
    X(work, 3600)                                                                                                              \
    X(build, 1800)                                                                                                             \
    X(lint, 60)                                                                                                                \
    X(check, 600)                                                                                                              \
    X(verify, 1200)                                                                                                            \
    X(bench, 1200)                                                                                                             \
    X(ab, 1800)                                                                                                                \
    X(tier, 120)                                                                                                               \
    X(promote, 120)
#define X(name, limit) ITERATE_##name,
enum iterate_step { ITERATE_STEPS(X) ITERATE_N_STEPS };
#undef X
const char *iterate_step_name(enum iterate_step s);
/* By name: 0, or -1. */
int iterate_step_find(const char *name, size_t n, enum iterate_step *s);
double iterate_step_limit(enum iterate_step s);

/* X(decision, its word) */
#define DECISIONS(X)                                                                                                           \
    X(FAILED, "failed")     /* no answer: it does not apply, build, run, or come to an end */                                  \
    X(NOTED, "noted")       /* its program left a record and no candidate */                                                   \
    X(WRONG, "wrong")       /* check, verify or bench found the output wrong */                                                \
    X(SLOWER, "slower")     /* ab says loss */                                                                                 \
    X(UNCLEAR, "unclear")   /* ab cannot say: its interval holds more than one answer */                                       \
    X(NO_GAIN, "no gain")   /* ab says no difference */                                                                        \
    X(REFUSED, "refused")   /* a win that the tier does not take */                                                            \
    X(PASSED, "passed")     /* it waits for a supervisor, or there is no tier to promote it to */                              \
    X(PROMOTED, "promoted") /* the best of its tier now */
#define X(name, word) DECISION_##name,
enum decision { DECISIONS(X) N_DECISIONS };
#undef X
const char *decision_word(enum decision d);

struct iterate_options {
    const char *binary; /* of hone, which runs the steps unless a patch makes another */
    const char *model;  /* GGUF file */
    const struct tiers *tiers;
    const char *tiers_path, *queue_path, *journal_path, *denylist; /* for the steps; denylist may be NULL */
    const char *plugins;                                           /* paths, a line each, given to every step; NULL: none */
    const char *program;                                           /* for tasks in words, a shell command; NULL: none */
    const char *revision;                                          /* that patches are of: "HEAD" */
    const char *logs;                                              /* a folder for a folder a task */
    const char *cache;                                             /* for builds; may be NULL */
    const char *words[ITERATE_N_STEPS]; /* of check, verify, bench and ab: more words, parted by spaces; NULL: none */
    double limits[ITERATE_N_STEPS];
    int64_t lease_s;
    bool supervisor;              /* what passes is approved and promoted, what does not is rejected */
    bool measure_wrong;           /* compare also what was found wrong */
    bool no_lock;                 /* measure also while others on this machine do */
    const char *reviewer;         /* in whose name */
    int (*cancelled)(void *user); /* 1: end; 2 or more: and wait for nothing but that the task is given back */
    void (*tell)(void *user, int64_t task, const char *step, double seconds, const char *what); /* a step has ended */
    void *user;
};

struct iteration {
    const struct iterate_options *o;
    struct queue *queue;
    struct journal *journal;
    int64_t run;  /* of the journal, of kind "iterate" */
    json_t *task; /* as queue_take gave it; owned */

    /* the rest is iterate_task's */
    struct arena memory;
    int64_t id, began; /* of the task; when, in milliseconds since 1970 */
    const char *token;
    const struct tier *tier; /* NULL: none decides */
    struct change change;
    struct patch_base source;                                   /* of a change of sources */
    struct patch_tree tree;                                     /* for its program */
    char folder[4200], base[4300], candidate[4300], kept[4300]; /* logs; recipes; plug-ins */
    char *base_text, *start_text, *plugins; /* what is to be beaten; what the change is laid over; of plug-ins,
                                               those of base and candidate, a line each */
    struct recipe recipe;                   /* the candidate */
    bool same_recipe;                       /* as the base */
    bool from_best;                         /* the base is the best of the tier */
    char commit[65];                        /* of the changed sources; "": none */
    const char *binary;                     /* that runs the candidate */
    int64_t lease_until, renewed;           /* monotonic, ns */
    char stop[200];                         /* why the step at hand was ended */
    bool lost;                              /* the lease: another has the task */
    struct machine_lock machine;            /* held while a step uses the processors */
    bool worked;                            /* the task's program ran, and may have left anything */

    enum decision decision;
    char why[600];
    bool wrong;
    char output[40];     /* verify's class; "": not asked */
    char outcome[20];    /* ab's: "win"; "": not asked */
    double gain, lo, hi; /* of ab; NAN */
    json_t *runs;        /* ids, of the steps */
};

/* The task's way, and its hand-in. it: o, queue, journal, run and task are set, all else is zero. 0 with a decision;
 * HONE_ECANCELED with the task ready again; else an error that has nothing to do with the task. iteration_free in any case. */
int iterate_task(struct iteration *it, struct hone_error *e);
void iteration_free(struct iteration *it);
/* What came of it, as it is recorded and handed in. */
json_t *iteration_json(const struct iteration *it);

/* ---- the parts, for each other */

enum { ITERATE_DECIDED = 1 };
/* iterate_call.c: command lines, the lease, and running a step. */
struct call {
    const char *list[400];
    int n;
};
void call_add(struct iteration *it, struct call *l, const char *word);
void call_pair(struct iteration *it, struct call *l, const char *flag, const char *value); /* value NULL: nothing */
void call_words(struct iteration *it, struct call *l, const char *words);                  /* parted by spaces; may be NULL */
/* -m, --journal, hypothesis, plug-ins: of every command that runs the model. */
void call_model(struct iteration *it, struct call *l);
/* Waits until no other measurement uses this machine, for a step that would disturb it or be disturbed: 0, or as iterate_run.
 * What a step waits for counts for the task's budget, and not for the step's limit. */
int iterate_take_machine(struct iteration *it, enum iterate_step s, struct hone_error *e);
/* Runs it as the step, its stdout in <folder>/<out> where given. 0: it ran, and *exit_code is 0 or 1; ITERATE_DECIDED: it
 * failed. */
int iterate_run(struct iteration *it, enum iterate_step s, const struct call *l, const char *binary, const char *const *env,
                const char *folder, const char *out, int *exit_code, char said[400], struct hone_error *e);
/* One of hone's commands, by the candidate's program. */
int iterate_hone(struct iteration *it, enum iterate_step s, const struct call *l, const char *out, int *exit_code,
                 char said[400], struct hone_error *e);
/* Non-zero: end what runs, 2 or more without waiting; it->stop says why. For a step's tick. */
int iterate_tick(void *it);
/* The decision, with its reason: returns ITERATE_DECIDED. */
int iterate_decide(struct iteration *it, enum decision d, const char *format, ...) __attribute__((format(printf, 3, 4)));
double iterate_limit(const struct iteration *it, enum iterate_step s);

/* iterate_apply.c: base, candidate, program and build. */
int iterate_prepare(struct iteration *it, struct hone_error *e);
int iterate_apply(struct iteration *it, struct hone_error *e);
/* iterate_judge.c: the steps that measure, and what follows from them. */
int iterate_measure(struct iteration *it, struct hone_error *e);
int iterate_judge(struct iteration *it, struct hone_error *e);
/* The newest run of a kind (NULL: any but iterate) that this task has left since it was taken; *run NULL: none. */
int iterate_newest(struct iteration *it, const char *kind, json_t **run, struct hone_error *e);

#endif
