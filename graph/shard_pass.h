/* shard_pass.h: what the files of the shard pass share (graph/shard*.c alone include it).
 *
 * A cut begins at seeds: an attention, a delta rule, a feed-forward block, the head. Each asks for a part of its inputs, and
 * the wish goes back through producers to the rows of weights (shard_wish.c). Then the graph is walked forwards, node by node,
 * with a rule an op that says from where its sources are where its output is (shard_rules.c); splits along k are found there. A
 * rule that cannot hold names the seed that the split came from: it is dropped, with the reason, and what it would have split
 * is mirrored. The same walk with the same rules emits a rank's graph (shard_emit.c), so that what was checked and what runs
 * cannot differ. */
#ifndef GRAPH_SHARD_PASS_H
#define GRAPH_SHARD_PASS_H

#include "graph/shard.h"
#include "graph/slices.h"

struct pass;

/* Where a tensor of the whole graph is, seen from one rank. */
struct spread {
    enum sharding kind;
    struct split split;
    int owner; /* the seed that it comes from; -1: none */
};

/* A weight or state of which a rank has a part. */
struct demand {
    const struct tensor *whole;
    struct split *split; /* by rank; axis alike */
    bool *set;           /* by rank */
    int owner;
    struct tensor *local; /* of a weight, by rank; made once the cut is known */
    struct slice *slices;
};

struct seed {
    const struct node *node;
    void (*ask)(struct pass *p, const struct node *n); /* for this pass's rank */
    bool dropped;
};

/* A weight that a dropped seed would have split. */
struct kept_whole {
    const struct tensor *weight;
    char why[128];
};

struct shard {
    struct arena arena;
    enum shard_mode mode;
    int n_ranks;
    double *ends; /* by rank: the share of it and of those before it, the last 1 */
    bool gather_logits;
    struct demand *demands;
    int n_demands, cap_demands;
    int *index; /* of demands by address of their tensor, plus one; 0: free */
    size_t index_mask;
    struct split *logits; /* by rank; NULL: mirrored */
    struct kept_whole *kept;
    int n_kept, cap_kept;
    struct shard_row *rows;
    int n_rows;
    double mirrored_bytes;
    int *layer_rank; /* by layers: which rank runs each */
    int n_layer;
    double *layer_bytes; /* by layers, by rank: of its weights */
};

/* What the walk knows of a tensor of the whole graph. */
struct mark {
    const struct tensor *whole; /* NULL: a free place */
    struct spread at;
    struct tensor *local; /* while emitting */
    unsigned listed;      /* in the report: as a table, as anything else */
};

struct pass {
    struct shard *s;
    struct arena *arena; /* of what this walk computes */
    const struct graph *whole;
    struct graph *local; /* NULL: only looked at */
    int rank;
    int seed;     /* while one asks */
    bool changed; /* a demand was added or grew */
    struct mark *marks;
    size_t mask; /* of the table of marks, a power of two less one */
    bool failed, out_of_memory;
    int culprit; /* the seed whose split could not be kept; -1: none */
    char why[128];
};

/* How a node wants one of its sources. */
struct need {
    enum { WHOLE, AS_IS, CUT } how; /* the whole of it, summed; as it is; the part `cut` */
    struct split cut;
    int owner; /* of the cut */
};

/* ---- shard.c */
/* The mark of a tensor, made if need be: of a weight or state by the demand for it, of an input mirrored. */
struct mark *mark_of(struct pass *p, const struct tensor *t);
struct demand *demand_find(const struct shard *s, const struct tensor *whole);
/* What the rank has of t, or NULL. */
const struct split *demand_split(const struct pass *p, const struct tensor *t);
/* Asks for a part more of a weight or state; false: it cannot be had (another axis is split, a block would be). */
bool demand_add(struct pass *p, const struct tensor *t, const struct split *split, int owner);
/* Ends the walk: the split that `owner` made cannot be kept (printf-style). Returns false. */
bool pass_fail(struct pass *p, int owner, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The weight stays whole, and the report says why. */
void keep_whole(struct shard *s, const struct tensor *weight, const char *why);
/* Where memory is out: ends the walk, returns false. */
bool pass_memory(struct pass *p);
/* A walk over the whole graph; its marks are of p->arena. */
bool pass_run(struct pass *p);
bool pass_init(struct pass *p, struct shard *s, const struct graph *whole, struct arena *arena, int rank);

/* ---- shard_rules.c */
/* From where the sources of n are: how it needs them, and where its output is. */
bool rule_of(struct pass *p, const struct node *n, struct need *need, struct spread *out);
/* The heads of V that use these heads of K. */
bool delta_value_heads(struct split *out, struct arena *a, const struct split *keys, int32_t heads, int64_t n_k, int64_t n_v);

/* ---- shard_wish.c */
/* Wishes that the rank had only this part of t; the wish ends at weights and states, as a demand. False where nothing will come
 * of it. */
bool wish(struct pass *p, const struct tensor *t, const struct split *split);

/* ---- shard_seeds.c */
/* The seed that n is, or NULL. */
void (*seed_of(const struct graph *g, const struct node *n))(struct pass *p, const struct node *n);
void seed_head(struct pass *p, const struct node *n); /* n: the node that gives the logits */
/* The product that t comes from, through what keeps its values in their places; NULL: none. */
const struct node *product_before(const struct tensor *t);
/* Cuts n units in as many runs as there are ranks, in the proportion of their shares, none empty (n >= n_ranks): where each
 * ends. */
int64_t share_end(const struct shard *s, int rank, int64_t n);

/* ---- shard_emit.c */
/* Sees to it that source j of n is as needed, in the marks, and in the local graph if there is one. *out: its local tensor. */
bool fetch(struct pass *p, const struct node *n, int j, const struct need *need, struct tensor **out);
bool emit(struct pass *p, const struct node *n, struct spread at, struct tensor **src);
/* The graph's result, where every rank shall have all of it. */
struct tensor *emit_gather(struct pass *p, struct tensor *part, int64_t total);

/* ---- shard_layers.c */
int layers_cut(struct shard *s, const struct graph *whole, struct hone_error *e);
int layers_graph(struct shard *s, int rank, const struct graph *whole, const struct shard_pair *pairs, int n_pairs,
                 struct graph *local);

/* ---- shard_report.c */
int shard_report(struct shard *s, const struct graph *whole, struct hone_error *e);

#endif
