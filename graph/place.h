/* place.h: where the nodes of a plan run, and what must move for that.
 *
 * A place is a device with a stream; place 0 is the host. The session says where each layer goes; a node that has no kernel
 * there goes to the host, and says why. What is read at another place than where it lies is brought there: weights by a twin
 * that stays, the step's inputs all at once before the step, values by copy nodes that all readers of the place share. */
#ifndef GRAPH_PLACE_H
#define GRAPH_PLACE_H

#include "backends/backend.h"

#include <stdint.h>

enum { MAX_PLACES = 16 };

struct place {
    const struct backend *backend;
    int device;
    void *stream; /* of the session; NULL at the host */
};

struct placement {
    int n; /* places, the host among them; each device stands here once */
    struct place list[MAX_PLACES];
    int n_layer;
    const int8_t *layer; /* the place of each layer */
    int first, last;     /* of what comes before the first layer, and behind the last */
    bool meets_at_host;  /* a rank that has no link to the others on its devices: collectives run on the host */
};

/* Whether t, a root, lies in the memory of that place. */
bool place_holds(const struct place *p, const struct tensor *t);
/* "host", "cuda0"; returns text. */
char *place_name(const struct placement *s, int place, char *text, size_t size);

struct plan_state;
/* Gives every node of the graph its place: that of its layer, or of a state that it reads. */
void place_nodes(struct plan_state *s);
/* Once all kernels are chosen: every source of every node is at the node's place, and the logits at the host. */
int place_copies(struct plan_state *s, struct hone_error *e);

#endif
