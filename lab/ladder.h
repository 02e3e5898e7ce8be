/* ladder.h: from all-reference to all-local, one change a rung, each measured and judged against the reference's logits. A rung that fails is
 * taken back, and the ladder goes on without it. */
#ifndef LAB_LADDER_H
#define LAB_LADDER_H

#include "lab/compare.h"
#include "lab/texts.h"

struct ladder_options {
    /* KV types are the ladder's. gates: kernels that ops take once they are off the reference (a plug-in's, say); NULL: the planner's
     * choice. */
    struct hone_session_params session;
    int n_texts;        /* compared texts */
    size_t prompt_tokens, n_greedy; /* of each: prompt at most, and the reference's continuation, which is compared */
    double seconds;     /* a measurement of throughput takes at most about this */
    double kl_bound;
    const char *cache;  /* folder for the reference's logits; NULL: none */
    const char *resume; /* a file of JSON lines from an earlier run: its rungs are taken over; NULL: none */
};

enum rung_kind { RUNG_REFERENCE, RUNG_KV, RUNG_OP, RUNG_FUSION, RUNG_LOCAL, RUNG_ONE_DEVICE };

struct rung {
    enum rung_kind kind;
    char name[64];       /* "reference", "mul_mat", "fuse.rope_kv", "all local", "one device" */
    int devices;         /* that it ran on */
    char gates[1200];    /* what it ran with */
    char kernels[400];   /* the distinct kernels that the change brought in, by name */
    int nodes;           /* of the decode plan that those run, or that the fusion made */
    int references;      /* nodes of the decode and prefill plans still on a reference */
    double decode, prefill; /* tokens a second, medians */
    struct comparison right;
    bool kept;
    bool resumed;        /* figures are those of the earlier run */
    long long declined;  /* steps in which a fusion declined */
    char why[200];       /* why it was not kept, or had nothing to do */
};

/* Called for each rung as it is done; a non-zero return ends the ladder with HONE_ECANCELED. */
typedef int rung_fn(void *user, const struct rung *r);
/* Called within a rung: what is going on, for a progress line. */
typedef int ladder_progress_fn(void *user, const char *what, float done);

/* *all_local: the rung of that name ran with no skip flag, no reference node, no decline, and was right. */
int ladder_run(const struct hone_model *m, const struct ladder_options *o, rung_fn *each, ladder_progress_fn *progress, void *user,
               bool *all_local, struct hone_error *e);
json_t *rung_json(const struct rung *r);

#endif
