/* rig.h: the stand that arms are measured on: fresh processes, or sessions in turn within this one; how long a sample must be;
 * who the arms are. It gives contest.h its samples. */
#ifndef LAB_RIG_H
#define LAB_RIG_H

#include "lab/ab.h"
#include "lab/arm.h"
#include "lab/measure.h"

struct rig_options {
    bool in_process;
    /* n_prompt and n_gen both 0: single decode steps at depth 16 (or n_depth); repeats 0: as many as a sample needs, at most
     * 400. */
    struct arm_test test;
    double sample_s;   /* a sample's runs take at least about this together, where test leaves it open; 0: the default of the
                          stand */
    const char *cache; /* folder that remembers hashes of models; NULL: none */
    /* Asked now and then; non-zero ends what goes on with HONE_ECANCELED. NULL: never. */
    int (*cancelled)(void *user);
    void (*session)(void *user,
                    struct hone_session *s);    /* the one that runs from now on (NULL: none), for a cancel; may be NULL */
    void (*tell)(void *user, const char *what); /* what goes on before the first sample; may be NULL */
    void *user;
};

struct rig {
    struct arm *arms; /* the caller's; 0 is the base */
    int n_arms;
    struct rig_options o;
    struct arm_test test;     /* what is run */
    struct hone_model *model; /* of the base; the only one in_process */
    json_t *model_identity;   /* of the base */
    struct model_file {
        const char *path;
        int64_t size, mtime, inode;
    } * files;            /* of each arm, as they were at the start */
    double run_s;         /* one run of the test, about */
    double sample_s;      /* a whole sample with the start of its process or session, about */
    struct sha256 *first; /* of each arm: the hash of its first run's output; hex "": unknown */
};

/* Opens all arms, runs each once, and finds out who they are (arm->identity) and how long a sample has to be. An arm that
 * cannot be measured is an error with its spec. rig_close in any case, before the arms are freed. */
int rig_open(struct rig *r, struct arm *arms, int n_arms, const struct rig_options *o, struct hone_error *e);
void rig_close(struct rig *r);
/* One sample of an arm; user: the rig. */
int rig_sample(void *user, int arm, struct ab_sample *s, struct hone_error *e);
/* After the last sample: HONE_ECHECK when a model's file is not what it was. (A binary that changed was noticed with its
 * sample.) */
int rig_check(const struct rig *r, struct hone_error *e);
/* "tg32", "pp512", "pp64+tg16 @ d128" */
char *rig_test_name(const struct rig *r, char *text, size_t size);
/* The gate that makes an arm a diagnostic ("debug.spin", "debug.skip_all_reduce"), whose speed is no result; NULL: none. */
const char *rig_diagnostic(const struct arm *a);

#endif
