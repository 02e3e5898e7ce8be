/* shard.h: one model over several ranks: which part of each weight and state a rank has, and a rank's graph made from the whole
 * one.
 *
 * Each tensor of the whole graph is, seen from the ranks, one of three things:
 *   mirrored  every rank has all of it;
 *   split     along one axis each rank has its part (split.h);
 *   partial   each rank has a tensor of the whole shape, and the value is their sum.
 * A product whose matrix is split by rows gives a split output; one whose rows are split themselves, along k, takes a split
 * input and gives a partial output. Where a partial tensor is read by what is not linear in it the rank's graph has an
 * `all_reduce` node, named as what it sums with ".sum" behind: "attn_output-63.sum". Sums, scalings and reshapes stay partial,
 * so that what is summed is summed once. In the graphs that architectures build all_reduce stands before the addition of the
 * residual (a scale may stand between product and all_reduce), or, in the last layer, before the get_rows of the tokens whose
 * logits are wanted.
 *
 * The other way to divide, by layers, gives each rank a stretch of them; what one leaves to the next goes over by an all_gather
 * to which it alone brings something, "l_out-15.handover". */
#ifndef GRAPH_SHARD_H
#define GRAPH_SHARD_H

#include "base/threads.h"
#include "graph/graph.h"
#include "graph/split.h"

enum shard_mode { SHARD_TENSOR, SHARD_LAYER };
enum { SHARD_MAX_RANKS = 256 };

struct shard_params {
    enum shard_mode mode;
    int n_ranks;          /* 2 to SHARD_MAX_RANKS */
    const double *shares; /* n_ranks, each above 0, of any sum; NULL: even */
    bool gather_logits;   /* every rank's graph ends with all logits; else each ends with its part (shard_logits) */
};

struct shard; /* how one model is cut; its ranks' weights */

/* Works out the cut from a graph of any one step. Weights are not read. HONE_EUSAGE where nothing of the model can be split
 * over so many ranks. The graph may go afterwards, its weights and states may not. */
int shard_create(struct shard **out, const struct graph *whole, const struct shard_params *p, struct hone_error *e);
void shard_free(struct shard *s); /* may be NULL; nobody reads its weights any more */

/* What a rank has of a weight or a state of the whole graph; NULL: all of it. */
const struct split *shard_split(const struct shard *s, int rank, const struct tensor *whole);
/* The rank's own tensor of a weight of which it has a part; NULL: it reads the whole one. */
const struct tensor *shard_weight(const struct shard *s, int rank, const struct tensor *whole);
/* What of the logits a rank's graph gives: NULL: all of them. By layers all ranks but the last give none: n_pieces 0. */
const struct split *shard_logits(const struct shard *s, int rank);
/* By layers: whether the rank runs this one; by tensors each rank runs all. */
bool shard_runs_layer(const struct shard *s, int rank, int layer);

/* An input or state of the whole graph, and what stands for it in a rank's. */
struct shard_pair {
    const struct tensor *whole;
    struct tensor *local;
};
/* Emits the rank's part of `whole` into `local`, a graph without nodes. Weights are the shard's own. */
int shard_graph(struct shard *s, int rank, const struct graph *whole, const struct shard_pair *pairs, int n_pairs,
                struct graph *local);

/* Bytes, in their stored format, of the weights that only this rank has, and of those that it shares with the others (without
 * tables whose rows are looked up in the file). */
void shard_bytes(const struct shard *s, int rank, double *own, double *mirrored);

/* The cut as data: weights of the same name in all layers that are cut alike are one row. */
struct shard_row {
    char name[NAME_SIZE]; /* "blk.*.attn_q.weight" */
    const char *how;      /* "rows", "columns", "mirrored" */
    const char *why;      /* of a mirrored one: "looked up by row"; "" */
    int64_t total;        /* along the axis that is cut; of a mirrored one 0 */
    const int64_t *parts; /* by rank; NULL: mirrored */
    int n_tensors;
    double bytes;
};
const struct shard_row *shard_rows(const struct shard *s, int *n);
int shard_n_ranks(const struct shard *s);
/* Equal cuts of equal models have equal hashes, in every process. */
uint64_t shard_hash(const struct shard *s);

#endif
