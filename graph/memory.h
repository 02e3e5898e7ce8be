/* memory.h: where the values of a step lie. */
#ifndef GRAPH_MEMORY_H
#define GRAPH_MEMORY_H

#include "graph/plan.h"

/* Gives every value and input of p's graph an offset in one block, so that no two that live at the same time overlap, and sets
 * p->value_bytes. An offset is kept in tensor->offset, which only views use otherwise. */
int memory_plan(struct plan *p, struct hone_error *e);
/* Every value's and input's address, from the blocks that p has. */
void memory_bind(struct plan *p);

#endif
