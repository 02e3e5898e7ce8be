/* workload.h: what a throughput test makes the machine do, told by the plans that it runs: which kernels, which nodes stayed on
 * a reference, and how many bytes of weights and of the cache each token has to bring in. */
#ifndef LAB_WORKLOAD_H
#define LAB_WORKLOAD_H

#include "lab/measure.h"

#include <jansson.h>

struct workload {
    double weights, kv, state; /* bytes read for one token, on average over the test's tokens; state: recurrent layers' */
    int references;            /* nodes of these plans on a reference */
    int gates_unfit;           /* nodes that a gate's kernel did not fit */
    json_t *kernels;           /* [{step: "prefill" | "decode", op, kernel, nodes}], in the order of the graph; owned */
    json_t *fallbacks;         /* the same rows, of references alone */
};

/* step: tokens a step at most, the session's n_batch. Plans what the test runs, and runs nothing. */
int workload_of(struct workload *w, struct hone_session *s, const struct hone_model *m, const struct measure_test *t,
                int32_t step, struct hone_error *e);
void workload_free(struct workload *w);
/* [{fusion, steps, reason}] of what declined in the session so far, less what had before (session_declines' counts at an
 * earlier moment, or NULL). */
json_t *workload_declines(const struct hone_session *s, const int64_t *before);
void workload_declined(const struct hone_session *s, int64_t *counts); /* N_FUSIONS of them */

#endif
