/* node_dump.h: what every node of one step left: a hash of each value, and the values themselves as a file, for laying two runs
 * side by side that may be of two programs.
 *
 * The file is a GGUF file of f32 tensors, named by their place in the list ("0", "1", ...): what reads GGUF can look at it. */
#ifndef LAB_NODE_DUMP_H
#define LAB_NODE_DUMP_H

#include "engine/engine.h"

#include <jansson.h>

struct node_dump {
    const char *file; /* NULL: only the list */
    int first;        /* the first of the list that goes to the file */
    size_t bytes;     /* in the file at most, beside its head */
    /* Private. */
    struct observer observer;
    struct gguf_writer *writer;
    float *room;
    int64_t room_size;
    int n, end; /* listed so far; the first behind those of the file */
    json_t *list;
    struct hone_error error;
};

/* Until node_dump_end the session's runs are watched; there should be one. */
int node_dump_begin(struct node_dump *d, struct hone_session *s, struct hone_error *e);
/* keep: the run went well. *list: [{"tensor", "op", "kernel", "format", "shape", "src": [names], "hash", "file": bool}], a new
 * reference; each tensor that a node left for others, in running order, with inner ones of a fusion where it leaves them. */
int node_dump_end(struct node_dump *d, struct hone_session *s, bool keep, json_t **list, struct hone_error *e);

#endif
