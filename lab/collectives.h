/* collectives.h: the collectives of a step, planned and as they ran. A plan that fuses a collective and a step that declined
 * the fusion are different things (rule 4), so both are kept for each; and what one graph does is kept apart from what a
 * session has done so far, since warm-ups count there. */
#ifndef LAB_COLLECTIVES_H
#define LAB_COLLECTIVES_H

#include "engine/engine.h"

#include <jansson.h>

#define COLLECTIVE_PATHS(X)                                                                                                    \
    X(PATH_ADD, "add")                                                                                                         \
    X(PATH_GET_ROWS, "get_rows")                                                                                               \
    X(PATH_ADD_RMS_NORM, "add_rms_norm")                                                                                       \
    X(PATH_PLAIN, "plain")
#define PATH_ENUM(name, word) name,
enum collective_path { COLLECTIVE_PATHS(PATH_ENUM) N_PATHS };
#undef PATH_ENUM
const char *path_word(enum collective_path p);

struct collective {
    const struct node *node; /* of the plan that ran; its first part the all_reduce, or itself */
    int step;                /* of that plan */
    const char *name;        /* of the partial */
    const char *op;          /* that made it */
    const char *next;        /* what reads the sum */
    size_t bytes, next_bytes;
    enum collective_path planned, outcome;
    double ns, wait_ns; /* of the node; until the last rank had come (0 unless timed); 0: not measured */
};

struct collectives {
    struct collective *list; /* the all_reduces in running order; malloc'd */
    int n, n_gathers;        /* all_gathers are counted only */
    int devices;
    int path[N_PATHS], fallback;          /* of one graph: by outcome; fallback: planned fused, ran plain (not in plain) */
    double bytes;                         /* of one graph */
    int64_t graphs, raw_count, raw_bytes; /* of the session so far: steps that were run, collectives and bytes of this rank */
};

/* planned: what the session would run; ran: what it did run, the same one unless something declined. */
int collectives_find(struct collectives *c, const struct plan *planned, const struct plan *ran, int devices,
                     struct hone_error *e);
void collectives_free(struct collectives *c);

/* "allreduce summary devices=3 graphs=1 count=128 total_bytes=2621440 path add=127 get_rows=1 plain=0 fallback=0": of one
 * graph. */
char *collectives_summary(const struct collectives *c, char *text, size_t size);
/* "allreduce n=0 name=attn_output-0 nbytes=20480 path=add us=3.21" and, where timed, " wait_us=0.40" */
char *collectives_line(const struct collectives *c, int i, bool timed, char *text, size_t size);
/* "partial_probe name=attn_output-63 op=MUL_MAT nbytes=20480 next=GET_ROWS next_nbytes=20480 plan=get_rows outcome=get_rows" */
char *collectives_probe(const struct collectives *c, int i, char *text, size_t size);
/* Their sums alone: {devices, count, bytes, gathers, path}. */
json_t *collectives_sum_json(const struct collectives *c);
json_t *collectives_json(const struct collectives *c, bool timed);

#endif
