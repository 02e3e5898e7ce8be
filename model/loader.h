/* loader.h: how an architecture reads its hyper-parameters and tensors from a file that may be wrong in every byte.
 *
 * Keys are given without the architecture's prefix ("attention.head_count"). The first error sticks and later calls do nothing, so
 * an architecture reads everything and checks once; missing tensors are gathered and named together. */
#ifndef MODEL_LOADER_H
#define MODEL_LOADER_H

#include "model/model.h"

struct loader {
    struct model *model;
    const char *prefix;    /* "llama" */
    int layer;             /* for tensor names; -1: none. Set by the architecture. */
    struct hone_error error;
    bool *used;            /* by tensor of the file */
    int n_missing;
    char missing[300];     /* their names, as many as fit */
};

enum { REQUIRED = 0, OPTIONAL = 1 };

/* <prefix>.<key> as a number within [lo, hi]; absent and optional: fallback. */
int32_t loader_int(struct loader *l, const char *key, int optional, int32_t fallback, int32_t lo, int32_t hi);
float loader_float(struct loader *l, const char *key, int optional, float fallback, float lo, float hi);
/* The same where the file may give one value for all layers or an array with one a layer: the value of layer i. */
int32_t loader_layer_int(struct loader *l, const char *key, int layer, int optional, int32_t fallback, int32_t lo, int32_t hi);
/* A string key; "" when absent. Points into the file. */
struct gguf_string loader_string(struct loader *l, const char *key);
/* Sticks an error (printf-style) if none did before. */
void loader_refuse(struct loader *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The tensor "blk.<layer>.<name>.weight" (layer -1: "<name>.weight"; a name with a suffix ".bias" or ".weight" is taken as it
 * is, one that ends with a dot without it) of shape [ne0, ne1, ne2], trailing 0 for fewer dimensions. NULL when optional and absent, or on error. 1-D tensors and
 * biases must be f32 (norms are), matrices any format that hone reads. */
struct tensor *loader_tensor(struct loader *l, const char *name, int optional, int64_t ne0, int64_t ne1, int64_t ne2);
/* All tensors of block l->layer: known, checked by nobody, and left out of the model, which is logged and kept in model->left_out. */
void loader_leave_out(struct loader *l, const char *what_it_does);

#endif
