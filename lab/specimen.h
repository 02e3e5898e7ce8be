/* specimen.h: a node that lies on the table: its tensors in guarded memory of their own, filled with known bytes, so that any
 * kernel of its op can run it again and again and every byte that it changed can be told.
 *
 * A specimen is made from a case (of an op, of a fusion, of a file) and holds up to two data sets for the same addresses:
 * results that a kernel keeps under a pointer from the first are wrong in the second. The second is also small: see specimen.c.
 * An arrangement is the specimen as one kernel wants it: weights packed, the activation quantised. */
#ifndef LAB_SPECIMEN_H
#define LAB_SPECIMEN_H

#include "backends/backend.h"
#include "base/arena.h"
#include "graph/fuse.h"
#include "ops/cases.h"

enum { DATA_SETS = 2, MAX_REGIONS = 64, REGION_GUARD = 256, REGION_NOTHING = 0xff, REGION_STALE = 0x5a };

enum region_role {
    REGION_SOURCE, /* is read; must stay as it is */
    REGION_RESULT, /* the node leaves its value there */
    REGION_STATE,  /* is written in place: a KV cache */
    REGION_INNER,  /* a fused node's value that nobody reads: anything may lie there afterwards */
};

/* The memory of one root tensor. */
struct region {
    struct tensor *tensor;
    enum region_role role;
    unsigned char *bytes; /* a guard, the tensor's span from byte `first` on, a guard; 64-aligned */
    size_t size, first, span;
    unsigned char *before[DATA_SETS];   /* what bytes holds when a run begins */
    unsigned char *expected[DATA_SETS]; /* RESULT and STATE: what the reference leaves */
    unsigned char *element;             /* RESULT and STATE: 1 where the byte is an element's that a run may write */
};

struct specimen {
    struct arena arena; /* of everything here but the bytes */
    char name[96];      /* of the case */
    struct node *node;
    struct region *regions;
    int n_regions, n_data;
    struct tensor *results[2 + MAX_ALSO + MAX_SRC]; /* that the node leaves: compared with the reference */
    int n_results;
    int expected_for; /* the enum format_id of the activation that `expected` was computed with; -1: not yet */
};

/* From a case of an op; case i of a fusion. */
int specimen_from_case(struct specimen *s, enum op op, const struct op_case *spec, uint64_t seed, struct hone_error *e);
/* From a case in the size of a model: rows of a weight repeat, since drawing millions of values costs seconds. */
int specimen_from_shape(struct specimen *s, enum op op, const struct op_case *spec, uint64_t seed, struct hone_error *e);
int specimen_from_fusion(struct specimen *s, enum fusion_id f, int i, uint64_t seed, struct hone_error *e);
void specimen_free(struct specimen *s);
/* Memory for every tensor of n and its parts; nothing in it yet. */
int specimen_give_memory(struct specimen *s, const struct node *n, struct hone_error *e);
/* Memory for root t (of nbytes from its first byte) as a further region; t->data is set. NULL when memory is out or
 * there are too many. */
struct region *specimen_region(struct specimen *s, struct tensor *t, enum region_role role, size_t nbytes);
/* Once all regions of s->node's tensors are there and filled: finds roles and results, takes the picture `before[data]`. */
int specimen_seal(struct specimen *s, int data, struct hone_error *e);
/* Memory for t, whose first byte lies `first` bytes in, of size bytes in all, with `before` from the arena. 0, or -1 with what
 * there is left in *r for regions_free. */
int region_place(struct region *r, struct arena *arena, struct tensor *t, enum region_role role, size_t size, size_t first,
                 size_t span);
void regions_free(struct region *r, int n);
/* Puts back data set `data`, with results holding bytes of `unwritten`. */
void region_load(struct region *r, int data, int unwritten);

/* The specimen as kernel k reads it. */
struct arrangement {
    struct arena arena;
    struct node *node;
    struct region regions[MAX_SRC + 1]; /* packed weights, the quantised activation */
    int n_regions;
    int activation; /* enum format_id, or -1: as the specimen has it */
};

/* Weights that the planner would pack get the layout that k wants or, where k reads any, `layout` (NULL: rows); the activation
 * is quantised by the reference if k wants that. 0; HONE_ECHECK when packing proves inexact; or memory. On failure nothing is
 * left to free. */
int specimen_arrange(struct arrangement *a, const struct specimen *s, const struct kernel *k, const struct layout *layout,
                     struct hone_error *e);
void arrangement_free(struct arrangement *a);
/* Computes `expected` of every data set for a's activation, unless it is known. */
int specimen_expect(struct specimen *s, struct pool *pool, const struct arrangement *a, struct hone_error *e);

enum { SPECIMEN_RANKS = 3 };
/* The group of made-up ranks in which a node that meets others is run here (of pool's threads at most); *c NULL for any other node. */
int specimen_group(struct comm **c, const struct node *n, const struct pool *pool, struct hone_error *e);
/* n's reference on every thread of the pool, with scratch of its own. */
int reference_run(const struct node *n, struct pool *pool, struct hone_error *e);

static inline struct tensor *tensor_root(struct tensor *t)
{
    return t->base ? t->base : t;
}

#endif
