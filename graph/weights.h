/* weights.h: the layout of a weight as state that changes (rule 5): packing, unpacking, and who may look meanwhile.
 *
 * A weight has one layout at a time, shared by all sessions of its model. Plans record the layouts that they were made for; a
 * run takes the read side of one lock, a change the write side, and a plan whose weights were changed by another session's plan is
 * stale: it is made anew, never run. */
#ifndef GRAPH_WEIGHTS_H
#define GRAPH_WEIGHTS_H

#include "backends/backend.h"

/* Gives weight t the layout (NULL: rows, as in the file). The packed copy replaces the mapped pages, which are given back to the
 * system; each thread packs, and so first-touches, what it will read. The tag changes only once all is packed: on failure (HONE_ERESOURCE)
 * the weight is as before. */
int weight_set_layout(struct tensor *t, const struct layout *layout, struct pool *pool, struct hone_error *e);
/* Gives a rank's part of a weight that is in rows, and that nobody needed until now, its rows. */
int weight_settle(struct tensor *t, struct pool *pool, struct hone_error *e);
/* Frees a packed copy and all twins; the weight is back in rows. For the model's end: nobody may be reading. */
void weight_free(struct tensor *t);
/* The twin of weight t in a device's memory, NULL: none yet; and the same, made if need be, in the layout (NULL: rows; a twin in another
 * is packed anew). Rows come straight from the mapped file through one buffer of the host, and the host's own copy stays as it is. The twin
 * is t's. pool may be NULL. On failure (HONE_ERESOURCE names weight, need and what is free) all is as before. */
struct tensor *weight_twin(const struct tensor *t, const struct backend *b, int device);
int weight_place(struct tensor *t, const struct backend *b, int device, const struct layout *layout, struct pool *pool,
                 struct tensor **out, struct hone_error *e);

/* Around planning, which looks at layouts and may change them: one plan at a time in the process. */
void weights_plan_begin(void);
void weights_plan_end(void);
/* Around a run: no layout changes in between. */
void weights_hold(void);
void weights_release(void);
/* Counts the changes of layouts since the start of the process. */
uint64_t weights_generation(void);

#endif
