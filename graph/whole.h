/* whole.h: nodes of a segment that its backend runs in one launch, where the gate `persistent` asks for it (backend.h:
 * whole_api).
 *
 * It is a way of running steps, as a capture is, and not a rewrite: the steps stay, with their kernels, and whoever observes
 * runs them one by one. So nothing has to be checked that is no node, and a whole that cannot be is its nodes. */
#ifndef GRAPH_WHOLE_H
#define GRAPH_WHOLE_H

#include "graph/plan.h"

/* Whether a place of the plan has a backend that knows wholes, and the gates ask for them. */
bool wholes_wanted(const struct plan *p, const struct gates *g);
/* Once places and offsets of values are known: one a segment, where its backend finds one. */
int wholes_claim(struct plan *p, const struct gates *g, struct hone_error *e);
/* Adds their memory to the places' blocks, behind all else. */
void wholes_measure(struct plan *p);
/* Makes g's whole ready to be launched; what cannot be is its nodes from now on, and that is said. */
void whole_prepare(const struct plan *p, struct segment *g);
/* Of streams that are synchronised: an error where one gave up. */
int wholes_check(const struct plan *p, struct hone_error *e);
void wholes_release(struct plan *p);

#endif
