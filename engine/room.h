/* room.h: the memory that the steps of one rank run in: a block of values at the host, one on each of its devices (places.h has
 * them), and scratch for each thread. All plans of a rank share it, so it is as large as the largest of them wants.
 *
 * It grows when a larger plan is made, and what lay in it is gone then. A device's old block is freed before the new one is
 * asked for, since a device's memory may be just enough for one of them: so after a failure plans may have lost their place.
 * Whoever keeps plans asks each of them afterwards (room_holds) and binds it again or drops it. Allocating first and keeping
 * everything on failure was the alternative: it fails where there would have been room. */
#ifndef ENGINE_ROOM_H
#define ENGINE_ROOM_H

#include "engine/places.h"
#include "graph/plan.h"

struct room {
    void *values; /* of the host; where there are devices, in memory that they copy fast */
    size_t value_bytes;
    void *scratch;
    size_t scratch_stride;
    int n_threads;
};

/* Room for a plan of a rank with so many threads; without devices places has the host alone. HONE_ERESOURCE says for what there
 * was none. */
int room_reserve(struct room *r, struct places *places, const struct plan *p, int n_threads, struct hone_error *e);
/* Whether a plan that was bound, or is about to be, has its place here. */
bool room_holds(const struct room *r, const struct places *places, const struct plan *p);
/* Gives a plan its addresses. Only what has moved: a plan that stays where it is keeps its captures. */
void room_bind(const struct room *r, const struct places *places, struct plan *p);
/* All of it, on devices too. */
size_t room_bytes(const struct room *r, const struct places *places);
/* Before the places are closed, which free what is on devices. A zeroed one too. */
void room_free(struct room *r, const struct places *places);

#endif
