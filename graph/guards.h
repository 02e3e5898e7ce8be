/* guards.h: when a collective may be fused with what follows it: conditions as rows of a table, so that the planner and the
 * check before each step ask the same ones and a test can make each of them fail. They depend on the graph and the gates alone,
 * which all ranks have alike, so all ranks decide alike without asking each other. */
#ifndef GRAPH_GUARDS_H
#define GRAPH_GUARDS_H

#include "graph/gates.h"
#include "graph/graph.h"

#include "backends/backend.h"

#define GUARD(name) GUARD_##name,
enum guard {
#include "graph/guards.def"
    N_GUARDS
};
#undef GUARD

const char *guard_name(enum guard g);
int guard_by_name(const char *name, enum guard *g); /* 0, or -1 */

/* Whether fused, a node that holds a collective, in g or about to be put there, may run so. forced: a guard that is taken to
 * fail; -1: none. */
bool guards_hold(const struct graph *g, const struct node *fused, const struct gates *gates, int forced, struct reason *r);

#endif
