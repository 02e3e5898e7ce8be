/* graph.h: building a graph. An architecture calls graph_op for each node, in an order in which every source comes before its
 * reader; that order is also the order of running. The first error sticks: later calls return NULL and do nothing,
 * so a builder checks once, at the end (graph_error). */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/arena.h"
#include "ops/ops.h"

struct graph {
    struct arena *arena; /* of everything here; not owned */
    struct node **nodes; /* in running order */
    int n_nodes, cap_nodes;
    int layer;           /* what new nodes are marked with; -1: none. Set by the builder. */
    struct tensor *logits; /* the graph's result [n_vocab, n_outputs]; set by the builder */
    struct hone_error error;
};

void graph_init(struct graph *g, struct arena *arena);

/* A new input of the given shape (see tensor_shape); NULL when an error stuck. */
struct tensor *graph_input(struct graph *g, const char *name, enum format_id format, int n_dims, const int64_t *ne);

/* Adds a node and returns its output. params is the op's struct or NULL; src may hold NULL for an absent optional source, but
 * a NULL where the op needs one is the stuck error of an earlier call. */
struct tensor *graph_add(struct graph *g, enum op op, const void *params, struct tensor *const *src, int n_src);
#define graph_op(g, op, params, ...)                                    \
    graph_add((g), (op), (params), (struct tensor *[]){__VA_ARGS__},    \
              (int)(sizeof((struct tensor *[]){__VA_ARGS__}) / sizeof(struct tensor *)))

/* Room for a node at place `at` of the running order, zeroed, those from there on move up: for passes that know what they put there. NULL when
 * an error stuck. */
struct node *graph_insert(struct graph *g, int at);

/* Names a tensor (printf-style); within a layer "-<layer>" follows. Returns t. */
struct tensor *graph_name(struct graph *g, struct tensor *t, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Shorthands for the alias ops. */
struct tensor *graph_reshape(struct graph *g, struct tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
/* Elements [start, start + n) along dimension 0 of every row. */
struct tensor *graph_slice(struct graph *g, struct tensor *t, int64_t start, int64_t n);

/* 0, or the stuck error copied to *e. */
int graph_error(const struct graph *g, struct hone_error *e);

#endif
