/* node_copy.h: a node and its parts once more, with tensors of their own that may lie elsewhere: on a device for a trial, on
 * the host for who looks at what a device computed. */
#ifndef LAB_NODE_COPY_H
#define LAB_NODE_COPY_H

#include "backends/backend.h"
#include "base/arena.h"

/* A copy of n in the arena. Equal tensors stay equal, bases are copied too; `place` gives each copy its data. NULL: memory is
 * out. */
struct node *node_copy(struct arena *arena, const struct node *n,
                       void (*place)(void *user, struct tensor *copy, const struct tensor *of), void *user);

/* The host's picture of a node that ran on a device, or is about to. */
struct mirror {
    struct arena arena;
    struct node *node; /* of the host: its reference can run on it, and changes nothing on the device */
    struct mirrored {
        const struct tensor *root; /* where it comes from */
        unsigned char *bytes;
        size_t size;
    } * roots;
    int n_roots;
    bool short_of_memory;
};

/* Memory for all that n touches, but for weights, which the host has; nothing in it yet. */
int mirror_make(struct mirror *m, const struct node *n, struct hone_error *e);
/* Brings everything as it is now. */
int mirror_load(struct mirror *m, struct hone_error *e);
void mirror_free(struct mirror *m); /* a zeroed one too */

#endif
