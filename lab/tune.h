/* tune.h: which kernel is the fastest for each op and weight format of a model on this machine: measured in the running graph, written
 * as gates. */
#ifndef LAB_TUNE_H
#define LAB_TUNE_H

#include "lab/compare.h"
#include "lab/texts.h"

enum { TUNE_MAX_VARIANTS = 12 };

/* One op with one format of src[0], over all its nodes. */
struct tune_choice {
    enum op op;
    enum format_id format;
    int nodes;               /* of the decode plan */
    int n_variants;
    const char *variants[TUNE_MAX_VARIANTS]; /* those that fit every one of the nodes; the table's own choice first */
    double decode_ns[TUNE_MAX_VARIANTS], prefill_ns[TUNE_MAX_VARIANTS]; /* sums of the nodes' medians; 0: not measured */
    int best;                /* index of the fastest: the smallest sum of decode and prefill times, each relative to its best */
};

struct tune_options {
    struct hone_session_params session;
    int prefill;             /* tokens of the prefill step */
    int repeats;
    int n_threads;
    const char *base;        /* gates that stand in every round and in the recipe, a line each ("fuse=off\n"); "": none */
    void (*session_runs)(void *user, struct hone_session *s); /* the one that runs from now on (NULL: none), for a cancel; may be NULL */
    double margin;           /* how much faster than the table's own choice another must be, e.g. 0.02 */
};

struct tune {
    struct tune_choice *choices; /* malloc'd */
    int n;
    char gates[4000];        /* the recipe: "" when the table's own choices are the fastest everywhere */
    struct comparison right; /* of the recipe, against the reference */
};

int tune_run(struct tune *t, const struct hone_model *m, const struct tune_options *o, int (*progress)(void *user, float done), void *user,
             struct hone_error *e);
void tune_free(struct tune *t);

#endif
