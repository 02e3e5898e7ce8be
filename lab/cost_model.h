/* cost_model.h: how fast one decode step would be on N devices, from what each of its nodes takes on one and what a link takes
 * to carry a message.
 *
 * It answers what one wants to know before buying or wiring anything: how much N devices bring, and from which N on another one
 * brings nothing. It knows what tensor parallelism does to each node (split by heads, split by rows, or done by everybody) and
 * that a collective is one-shot: everybody reads everybody's part. What it assumes it says (cost_model_assumptions). */
#ifndef LAB_COST_MODEL_H
#define LAB_COST_MODEL_H

#include "graph/shard.h"
#include "model/model.h"

#include <jansson.h>

enum { COST_MAX_DEVICES = SHARD_MAX_RANKS };

enum cost_split {
    COST_MIRRORED, /* every device does all of it */
    COST_SPLIT,    /* cut into units, whole ones to a device: the device with the most counts */
};

struct cost_node {
    enum cost_split split;
    int units; /* of a split one: heads, blocks of rows */
    double ns; /* on one device */
};

struct cost_model {
    struct cost_node *nodes; /* malloc'd */
    int n_nodes;
    double floor_ns;                /* what a node takes however little it does: the quickest node's time */
    double step_ns;                 /* of one device, measured whole; the nodes are scaled to it */
    int n_sums;                     /* all_reduces a step */
    double sum_bytes;               /* of a part of one */
    double gather_bytes;            /* of the logits, all parts together; 0: not gathered */
    double latency_ns, bytes_per_s; /* of the link */
};

/* From the JSON of `hone trace` (schema_version 1, one token) and the model that it is of. HONE_EINPUT says what the JSON
 * lacks. */
int cost_model_from_trace(struct cost_model *c, const json_t *trace, const struct model *m, struct hone_error *e);
void cost_model_free(struct cost_model *c);

struct cost_step {
    double ns, compute_ns, sums_ns, gather_ns;
    double
        two_step_ns; /* the same step, were the sums made in two steps (each device sums a part, then reads the others' sums) */
};
struct cost_step cost_model_step(const struct cost_model *c, int n_devices);
/* The fewest devices in [1, most] that no larger number there beats by more than `gain` (0.01: one per cent). */
int cost_model_enough(const struct cost_model *c, int most, double gain);

/* "LATENCY,BANDWIDTH" in microseconds and GB/s, with units if wanted: "3,12", "3us,12GB/s", "40us,1.1GB/s". HONE_EUSAGE. */
int cost_link_parse(const char *text, double *latency_ns, double *bytes_per_s, struct hone_error *e);
/* Between the processes that mpirun started, or else two one-thread ranks of this one: comm_link. A fraction of a second, over a slow network
 * some seconds. */
int cost_link_measure(double *latency_ns, double *bytes_per_s, struct hone_error *e);

/* The assumptions, one a line; NULL behind the last. */
const char *cost_model_assumption(int i);

#endif
