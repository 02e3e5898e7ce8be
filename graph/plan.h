/* plan.h: from a graph to something that can be run again and again: a kernel for every node, the reason for it, a place for
 * every value.
 *
 * The passes, in order: give each node its place (place.h), fuse nodes by named rewrites (fuse.h), choose a kernel for each node that runs
 * (alias nodes never do), materialise what the kernels want (packed weights, quantised activations, copies between places), lay the values
 * out in one block of memory a place. A plan depends on the graph's shapes and the gates, never on positions or lengths (rule 3). */
#ifndef GRAPH_PLAN_H
#define GRAPH_PLAN_H

#include "backends/backend.h"
#include "graph/gates.h"
#include "graph/graph.h"
#include "graph/place.h"

#include <stdatomic.h>

enum { PLAN_INPUTS = 32, PLAN_FEW = 8 };

struct passed_over {
    const struct kernel *kernel;
    bool fits; /* it could have run the node: a slower one, or one that no gate named */
    struct reason reason;
};

struct step {
    struct node *node;
    const struct backend *backend;
    const struct kernel *kernel;
    const struct gate *gate;    /* that decided, or NULL: the last in the table that fits */
    struct passed_over *passed; /* the candidates that were not taken, and why */
    int n_passed;
    const char *moved; /* it runs on the host, since its own place has no kernel for it: why; NULL: it runs where it should */
};

/* What a plan has at one place. */
struct plan_place {
    struct buffer block; /* of values; data is the session's, from plan_bind_place */
    size_t bytes;        /* that the block must have */
    size_t shared_offset;
    bool reads_inputs;   /* the front of the host's block is copied there before a run */
};

/* Steps one behind the other at one place: run without the host between them, and captured as one. */
struct segment {
    int first, n, place;
    void *graph; /* NULL: not captured */
    int runs;    /* so far, at these addresses */
    bool ran;    /* at some addresses: what its kernels load and make once is there */
    bool uncaptured; /* it cannot be captured */
    void *whole;     /* steps that the backend runs in one launch (graph/whole.h); NULL: none, */
    int whole_first, whole_n; /* which, by the plan's numbers, */
    size_t whole_offset;      /* where its memory lies in the place's block, */
    bool whole_ready;         /* whether it is prepared for the addresses of now; */
    struct reason whole_why;  /* and why not more */
};

struct plan {
    struct graph *graph;
    struct step *steps;
    int n_steps;
    const struct placement *placement; /* NULL: everything runs on the host */
    struct plan_place *places;         /* [placement->n]; of the host only reads_inputs means nothing */
    struct tensor *inputs[PLAN_INPUTS]; /* that are read at other places too */
    int n_inputs;
    size_t input_bytes;   /* all inputs, at the front of the host's block */
    struct segment *segments; /* of a plan with a placement */
    int n_segments;
    int n_copies, n_moved; /* copy nodes between places; nodes that run on the host since their place has no kernel for them */
    void *block;          /* from plan_bind */
    bool wholes;          /* some place's nodes may run as a whole: values live a step longer */
    bool few;             /* no product has more than PLAN_FEW rows of results */
    size_t value_bytes;   /* of the block that plan_bind wants */
    size_t scratch_bytes; /* a worker */
    size_t shared_offset; /* within the block: what kernels share among their workers */
    void *shared;
    int n_gates_unfit;    /* nodes that a gate's variant does not fit */
    int n_collectives;    /* steps that meet the other ranks */
    int n_device_collectives;     /* those of them that meet on a device, */
    int64_t device_collective_bytes; /* and what this rank brings to them */
    bool may_decline;     /* some step could (plan_declines); where none can, nothing is asked before a run */
    int guarded;          /* the first step whose guards do not hold now, -1: none; and why */
    struct reason guarded_why;
    uint64_t generation;  /* weights_generation() that it was made for */
    int *fuse_hits;       /* by fusion, N_FUSIONS: how often each fired; */
    struct reason *fuse_misses; /* and why it last did not, "" where it always did or never could */
};

struct plan_options {
    const struct gates *gates;
    bool strict;       /* a gate that names a variant which does not fit is an error; else it is counted and logged */
    uint32_t fuse_off; /* a bit a fusion (enum fusion_id): off in this plan, since it declined the step at hand */
    bool dry;          /* only to be looked at: nothing is packed, and the plan must not run */
    struct pool *pool; /* packs weights; NULL: no weight changes its layout, and kernels that want another do not fit */
    const struct placement *placement; /* outlives the plan; NULL: everything on the host */
};

/* Plans g, whose inputs the caller fills before each run. All memory is of g's arena, but for what plan_release gives back. */
int plan_create(struct plan **out, struct graph *g, const struct plan_options *o, struct hone_error *e);
/* The first fused step whose kernel declines to run now (or is made to, by a decline gate), with its reason; -1: none. To be asked before
 * each run; a plan with that fusion off then takes the step (rule 4). */
int plan_declines(const struct plan *p, const struct gates *gates, struct reason *r);
/* No layout has changed since the plan was made, or last found good. Cheap; may be asked at any time. */
bool plan_current(const struct plan *p);
/* Of a plan that is not current, between weights_plan_begin and _end: whether a weight that it reads has another layout now. If so it
 * must not run again; if not it is current again. */
bool plan_stale(struct plan *p);
/* Gives every value, and every input that has no data yet, its address within block (plan->value_bytes, aligned to 64). May
 * be called again with another block. */
void plan_bind(struct plan *p, void *block);
/* The same for a place that is not the host: places[place].bytes of its device's memory, aligned to 256. */
void plan_bind_place(struct plan *p, int place, void *block);
/* Gives back what was captured; p may be NULL. Before its arena is freed or reset. */
void plan_release(struct plan *p);

/* The layout that k wants weight w in (NULL: rows); false with the reason when w cannot have it. */
bool kernel_layout(const struct kernel *k, const struct tensor *w, const struct layout **layout, struct reason *r);

/* "cpu_mul_mat_q4_K_avx512"; writes at most size bytes, returns text. */
char *kernel_name(const struct backend *b, const struct kernel *k, char *text, size_t size);

/* The lab's eyes: called on thread 0 while the other threads wait. A non-zero return ends the run with that code. */
struct observer {
    void *user;
    int (*before)(void *user, const struct plan *p, int step);
    int (*after)(void *user, const struct plan *p, int step, int64_t ns);
};

struct run {
    struct pool *pool;
    struct comm *comm;               /* this rank's end of its group; NULL: it is alone */
    void *link;                      /* and of the one on devices (backend.h); NULL: collectives meet at the host */
    void *scratch;                   /* pool_size * scratch_stride bytes, aligned to 64 */
    size_t scratch_stride;           /* a multiple of 64, at least plan->scratch_bytes */
    const struct observer *observer; /* NULL: none; costs one test a node */
    atomic_int *cancel;              /* non-zero: end with HONE_ECANCELED; may be NULL */
    atomic_int *progress;            /* set to the number of steps done; may be NULL */
};

/* A number that two ranks have alike if their plans meet at the same nodes with as many bytes, in the same order (comm_same). */
uint64_t plan_collectives_hash(const struct plan *p);

/* Runs the plan once: the one loop. 0, or the first failing kernel's code with the node's name. When it returns all devices are done.
 * The second and later runs of a plan without an observer replay what was captured in the second. */
int plan_run(const struct plan *p, const struct run *r, struct hone_error *e);

/* For a rank that shares its device with others of its group. What a device does for the first run of a kernel (loading it, making
 * a library's handle) and for a capture may wait until nothing runs there, and so for a kernel that waits for this very rank.
 * So all of it is done beforehand, while nobody meets anybody: a run alone, whose results nobody needs (the real one writes
 * them again), and the captures. All ranks do it before one of them runs. Does nothing where it is done. */
int plan_prepare(const struct plan *p, const struct run *r, struct hone_error *e);
bool plan_prepared(const struct plan *p);
/* Gives the rank's weights that the plan reads in rows at the host their rows (weight_settle). */
int plan_settle(const struct plan *p, struct pool *pool, struct hone_error *e);

#endif
