/* session.h: a session from within the engine: what it holds, and what the files that work on it do for each other.
 *
 *   session.c            made and freed: parameters, recipe, devices, ranks, memory
 *   session_plans.c      the plans made so far, and the memory that they share
 *   session_eval.c       tokens in, logits out
 *   session_sequences.c  what the sequences hold: forked, cut back, saved, restored
 *   session_facts.c      what the lab asks of a session (engine.h)
 * A session belongs to one thread; cancel alone is written by others. The lab and the command line see it through hone.h and
 * engine.h. */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "engine/engine.h"
#include "engine/places.h"
#include "engine/ranks.h"
#include "engine/room.h"
#include "engine/settings.h"
#include "graph/fuse.h"

#include <stdatomic.h>

enum { MAX_PLANS = 8 };

struct planned {
    struct arena arena;
    struct graph graph;
    struct step_inputs in;
    struct plan *plan; /* NULL: the slot is free */
    const struct ranks *ranks; /* NULL: there are none */
    struct rank_step *others; /* of the other ranks in this process */
    uint64_t meetings;        /* over processes: plan_collectives_hash */
    uint32_t fuse_off; /* fusions that declined the step it was made for */
    uint64_t used;     /* when last, in session->clock's time */
};

struct hone_session {
    const struct model *model;
    struct hone_session_params params;
    struct gates gates;
    struct settings settings; /* of the recipe */
    struct pool *pool;
    struct ranks *ranks; /* NULL: the session is alone */
    int followed;        /* its number where other processes follow it; 0: none does */
    struct places places;
    struct kv kv;
    struct states states;
    struct planned plans[MAX_PLANS];
    uint64_t clock;
    int64_t graphs; /* steps run */
    struct room room;
    float *logits;
    const float *view; /* where the logits of the last eval lie in the block of values instead, which a device wrote; or NULL */
    size_t n_logits, cap_logits; /* rows */
    const struct observer *observer;
    bool dry;
    struct decline declines[N_FUSIONS];
    int all_threads; /* of all ranks in this process; 0: there are none */
    double spin; /* debug.spin: how much longer a step is made */
    atomic_int cancel;
    atomic_int steps_done;
};

/* ---- session_plans.c */

/* The plan that runs a step of so many tokens and outputs, on all ranks, kept or made: where a fused kernel declines, one without that
 * fusion; counted, or an error under strict. On success the layouts of weights are held (weights_hold) until the caller calls
 * weights_release. */
int planned_take(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, struct planned **out, struct hone_error *e);
void planned_free(struct planned *p); /* its slot is free then */

/* ---- session_sequences.c: what a follower does while its leader saves or restores a session */

int session_give_part(struct hone_session *s, struct hone_error *e);
int session_take_part(struct hone_session *s, struct hone_error *e);

#endif
