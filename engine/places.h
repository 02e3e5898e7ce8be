/* places.h: which devices a session uses, which layers of its model go where, and the streams and blocks that it has there.
 *
 * As in llama.cpp, -ngl N puts the last N layers on devices, the output counting as the last; with all of them the embedding
 * goes along. Several devices share the layers in order, evenly or as -ts says. */
#ifndef ENGINE_PLACES_H
#define ENGINE_PLACES_H

#include "graph/gates.h"
#include "graph/place.h"
#include "graph/plan.h"
#include "model/model.h"

struct places {
    struct placement placement; /* n 1: everything on the host */
    int8_t *layers;             /* [n_layer], as in placement */
    int8_t *kv, *states; /* [n_layer]: where a layer's cells and recurrent state lie; the host where their ops run there */
    struct buffer values[MAX_PLACES]; /* the block that plans of the session share, by place (room.h) */
};

struct places_options {
    const char *devices;       /* "cuda0,cuda1"; "none" or "cpu"; NULL or "auto": every device that can run kernels */
    int32_t n_gpu_layers;      /* -1: all */
    const char *tensor_split;  /* "3/1": shares of the devices; NULL or "0": even ones */
    const struct gates *gates; /* what they put on the reference stays on the host with its state */
    bool all_reference;
};

/* The device of a name of n bytes, "cuda0", or "cuda" for its first; false: there is none. */
bool places_device(const char *name, size_t n, const struct backend **backend, int *device);
/* HONE_EUSAGE that says that there is no device of this name, and which there are. */
int places_unknown(const char *name, size_t n, struct hone_error *e);
/* The i-th device of all on which kernels could run; false: there are no more. */
bool places_nth(int i, const struct backend **backend, int *device);
/* HONE_EUSAGE: no such device; HONE_ERESOURCE where a stream cannot be had. On failure nothing is left. */
int places_open(struct places *p, const struct model *m, const struct places_options *o, struct hone_error *e);
void places_close(struct places *p); /* a zeroed one too */
/* Whether the weights of each device's layers and `kv_bytes[place]` more fit its free memory now; HONE_ERESOURCE says what
 * would. */
int places_fit(const struct places *p, const struct model *m, const size_t *kv_bytes, struct hone_error *e);

#endif
