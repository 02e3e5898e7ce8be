/* shadow.h: every kernel beside its reference, on the tensors of the running graph.
 *
 * Cases are drawn; what a model feeds a kernel is not: outliers a thousand times the rest, caches half full, views that the
 * planner made, memory that another value held before. An observer of the session runs each node's reference on the very inputs
 * that its kernel had, compares what both leave, puts the kernel's results back, and the run goes on as it was. Over a prefill,
 * decode steps, another prefill and a second request. Of a model that is split every device of this process is watched. */
#ifndef LAB_SHADOW_H
#define LAB_SHADOW_H

#include "engine/engine.h"
#include "lab/trial.h"

#include <jansson.h>

struct shadow_options {
    int n_prefill, n_decode; /* tokens of the first prompt; decode steps behind each prefill */
    const char *capture;     /* a glob: the first node whose output's name matches becomes a case file; NULL: none */
    const char *capture_path;
    int (*progress)(void *user, float done); /* non-zero cancels; NULL: none */
    void *user;
};

/* One node in one step. */
struct shadow_node {
    char node[NAME_SIZE], kernel[96], tensor[NAME_SIZE];
    enum op op;
    int device;        /* that it ran on: its rank */
    const char *phase; /* "prefill", "decode", "second prefill", "second request" */
    enum fault fault;  /* FAULT_NONE: among the worst, yet within its tolerance */
    int64_t row[3], column;
    double got, want, nmse, tolerance;
    char message[240];
};

struct shadow_kernel {
    char kernel[96];
    enum op op;
    int compared, faults; /* runs of nodes */
    bool is_reference;    /* nothing to compare; looked at for NaN alone */
    double worst;         /* largest nmse over the tolerance */
};

enum { SHADOW_KERNELS = 256, SHADOW_FAULTS = 32, SHADOW_WORST = 8 };

struct shadow {
    struct shadow_kernel kernels[SHADOW_KERNELS];
    int n_kernels;
    struct shadow_node faults[SHADOW_FAULTS]; /* the first ones */
    int n_faults;                             /* all */
    struct shadow_node worst[SHADOW_WORST];   /* by nmse over tolerance, descending */
    int n_worst;
    struct shadow_node nan; /* the first that left a NaN, with or without its reference; nan.node "" if none did */
    int n_compared;
    int n_devices, n_watched; /* those that the model is split over, and those in this process; 1 and 1 without a split */
    char captured[NAME_SIZE]; /* the node that was captured; "" if none */
};

/* Runs the session, whose sequence 0 is empty before and after. HONE_ECHECK where a node is at fault; HONE_EUSAGE where nothing
 * matches the glob. *s is filled in any case. */
int shadow_run(struct shadow *s, struct hone_session *session, const struct hone_model *m, const struct shadow_options *o,
               struct hone_error *e);
json_t *shadow_json(const struct shadow *s);

#endif
