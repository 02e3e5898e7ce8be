/* trace.h: one step of a model, node by node: which kernel ran and why, how long it took, how many bytes it had to move, and what share
 * of the measured read roof that is. Plan and outcome are kept apart: the plan says what was chosen, the outcome what declined. */
#ifndef LAB_TRACE_H
#define LAB_TRACE_H

#include "engine/engine.h"
#include "lab/collectives.h"

#include <jansson.h>

struct trace_options {
    int32_t n_tokens; /* of the traced step: 1 is a decode step, more a prefill */
    int32_t depth;    /* positions that the sequence holds before it */
    int32_t repeats;  /* steps measured; the median of each node counts */
    int n_threads;    /* for the read roof */
    bool timed;       /* ranks meet before each collective, so that waiting is told from moving: perturbs what it measures */
};

struct trace_node {
    char kernel[96];
    double ns;           /* median over the repeats */
    double wait_ns;      /* of a collective, where timed: until the last rank had come */
    struct cost cost;
};

struct trace {
    const struct plan *planned; /* the session's; valid until its next step */
    const struct plan *plan;    /* what ran: the same, unless something declined */
    struct trace_node *nodes; /* plan->n_steps */
    double step_ns;      /* median of whole steps that nobody watched */
    double roof;         /* bytes a second; 0: not measured */
    int repeats;
    double *steps;       /* what those took, in their order: repeats of them, ns; malloc'd */
    double spin;         /* debug.spin: the share by which steps were made longer; 0 of an honest one */
    bool skips;          /* debug.skip_all_reduce: no collective ran, and the output is wrong */
    bool timed;          /* the watched steps met before each collective */
    struct collectives collectives; /* of this rank */
    struct decline declines[32]; /* by fusion: the outcome */
};

/* Plans the step and, unless repeats is 0, runs it: `repeats` unwatched steps, then as many watched ones, each from the same depth. The
 * session's sequence 0 is left as it was found. Token ids are drawn from a fixed seed. */
int trace_run(struct trace *t, struct hone_session *s, const struct hone_model *m, const struct trace_options *o, struct hone_error *e);
void trace_free(struct trace *t);
/* The whole as JSON: nodes, sums by op, by layer kind and by fusion. */
json_t *trace_json(const struct trace *t);
/* In the Chrome trace event format, which Perfetto opens. */
json_t *trace_chrome(const struct trace *t);

/* A sum over some nodes. */
struct trace_sum {
    const char *name;
    int count;
    double ns, bytes, flops;
};
/* Sums by op, largest time first; at most N_OPS. Returns how many. */
int trace_by_op(const struct trace *t, struct trace_sum *sums);
/* "embedding", "block", "head": where a node of the plan stands. */
const char *trace_layer_kind(const struct trace *t, int step);

#endif
