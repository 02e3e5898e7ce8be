/* cuts.h: the ways in which open models are cut over ranks.
 *
 * A cut belongs to a model, as its packed weights do: sessions that want the same one share it, and it stays when they go, so
 * that the next one need not pack again. One that nobody uses goes when another is made of that model. */
#ifndef ENGINE_CUTS_H
#define ENGINE_CUTS_H

#include "graph/shard.h"
#include "model/model.h"

struct cut {
    struct shard *shard;
    const struct model *ranks; /* by rank: the model with that rank's layer memory, for kv_create and states_create */
    struct tensor **k, **v, **conv,
        **delta; /* by layer, of the whole graph: what stands for states; shapes but for cells and slots */
};

/* 0, or a code. The cut stays valid until cut_put. */
int cut_get(struct cut **out, const struct model *m, const struct shard_params *p, struct hone_error *e);
void cut_put(struct cut *c); /* may be NULL */
/* Before the model is closed: nobody uses its cuts. */
void cuts_forget(const struct model *m);

#endif
