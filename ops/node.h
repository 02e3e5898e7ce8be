/* node.h: the two nouns of a graph. A tensor is a typed, strided block of up to four dimensions; a node is one op that reads
 * tensors and writes one. Everything that is shared, moved or summed is a node (rule 1), so that it can be
 * planned, traced and checked.
 *
 * Dimension 0 is the fastest; ne[] counts elements, nb[] is the stride in bytes (nb[0]: from block to block). A shape in
 * a comment, [k, m], is written from dimension 0 on, as GGUF does. */
#ifndef OPS_NODE_H
#define OPS_NODE_H

#include "base/err.h"
#include "base/threads.h"
#include "formats/formats.h"

enum { MAX_DIMS = 4, MAX_SRC = 16, MAX_ALSO = 3, NAME_SIZE = 64, PARAMS_SIZE = 64 };

#define OP(NAME, name) OP_##NAME,
enum op {
#include "ops/ops.def"
    N_OPS
};
#undef OP

enum tensor_kind {
    TENSOR_WEIGHT, /* owned by the model, immutable but for its layout */
    TENSOR_INPUT,  /* filled by the engine before each step: tokens, positions, maps */
    TENSOR_STATE,  /* owned by the session, lives across steps: KV cells */
    TENSOR_VALUE,  /* the result of a node; lives within a step */
};

/* What one rank of several holds of a tensor (graph/shard.c). Of a single rank everything is mirrored. */
enum sharding {
    SHARDING_MIRRORED, /* all of it, the same as on every rank */
    SHARDING_SPLIT,    /* its part along one axis */
    SHARDING_PARTIAL,  /* a summand of each value */
};

struct buffer; /* a backend's memory (backends/backend.h) */
struct slice;  /* a rank's part of a weight (graph/slices.h) */

struct tensor {
    char name[NAME_SIZE];
    enum tensor_kind kind;
    enum format_id format;
    const struct layout *layout; /* NULL: rows, as in the file (rule 5) */
    int64_t ne[MAX_DIMS];        /* unused dimensions are 1 */
    size_t nb[MAX_DIMS];
    struct node *producer; /* the node that writes it; NULL for weights, inputs and states */
    struct tensor *base;   /* a view: whose memory this is (never itself a view); else NULL */
    size_t offset;         /* a view: bytes from base's first byte */
    enum sharding sharding;
    int axis;              /* of a split one */
    struct buffer *buffer; /* where it lives; NULL: plain host memory */
    struct tensor *twin;   /* the same in another memory, kept the same by its owner, and so on: of weights, and of the KV map */
    void *data;            /* address of the first element, once placed; of the packed copy where layout says so */
    const void *rows;      /* a weight: its rows in the mapped file, to which data goes back when it is unpacked */
    size_t packed_bytes;   /* of the packed copy that data points to, owned by the model; 0: none */
    struct slice *slice;   /* a rank's weight: which part of which; NULL: a whole one */
};

struct node {
    enum op op;
    int layer; /* of the model; -1: none */
    struct tensor *out;
    struct tensor *src[MAX_SRC]; /* NULL behind n_src, and for an absent optional source */
    int n_src;
    _Alignas(16) unsigned char params[PARAMS_SIZE]; /* the op's own struct (ops/<op>.h); read it with node_params */
    /* Of a fused node: the nodes that it stands for, in running order, whose results it must leave in `out` (the last
     * part's) and `also` (those that others read); its reference is to run them. n_parts 0: not fused. */
    struct node **parts;
    int n_parts;
    int fusion; /* which one made it: enum fusion_id (graph/fuse.h) */
    int place;  /* which of the plan's places runs it (graph/place.h); 0: the host */
    struct tensor *also[MAX_ALSO];
    int n_also;
};

#define node_params(node, type) ((const type *)(const void *)(node)->params)

/* A tensor of this shape can exist: no negative dimension, rows of whole blocks, and bytes and elements that fit an int64_t
 * with room for the arithmetic of strides. To be asked before tensor_shape wherever a shape comes from outside. */
bool tensor_shape_fits(enum format_id format, const int64_t ne[MAX_DIMS]);
/* Sets format, shape and contiguous strides; leaves name, kind and memory alone. ne has n_dims entries. */
void tensor_shape(struct tensor *t, enum format_id format, int n_dims, const int64_t *ne);
/* Elements; rows (all dimensions but the first); 0 when any dimension is 0. */
int64_t tensor_elements(const struct tensor *t);
int64_t tensor_rows(const struct tensor *t);
/* Bytes from the first to behind the last byte that the tensor touches: for a view, its span (rule 8). Of a packed tensor,
 * the layout's size. */
size_t tensor_nbytes(const struct tensor *t);
/* Elements one behind the other, without gaps, in the order of the dimensions. */
bool tensor_contiguous(const struct tensor *t);
/* Each row on its own is contiguous (nb[0] is one block). */
bool tensor_rows_contiguous(const struct tensor *t);
bool tensor_same_shape(const struct tensor *a, const struct tensor *b);
/* a can be repeated along whole dimensions to b's shape: each ne of b is a multiple of a's. */
bool tensor_broadcasts(const struct tensor *a, const struct tensor *b);
/* "f32 [64, 24, 1, 1]" with trailing ones left out; writes at most size bytes. Returns text. */
char *tensor_describe(const struct tensor *t, char *text, size_t size);

/* Address of row (i1, i2, i3); only for tensors in file order. */
static inline void *tensor_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3)
{
    return (char *)t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
}

/* The row (i1, i2, i3) as ne[0] floats: any float format, any layout, any strides. A contiguous f32 row is returned in
 * place; else it is unpacked into dst (ne[0] floats). The one way in which references read. Float formats only. */
const float *tensor_read_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, float *dst);
/* Writes ne[0] floats as the row (i1, i2, i3): packs, follows strides. Not for packed layouts or integer formats. */
void tensor_write_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, const float *src);
/* Element (i0, i1, 0, 0) of an i32 tensor, at any alignment. */
int64_t tensor_read_index(const struct tensor *t, int64_t i0, int64_t i1);
/* Splits a row number [0, tensor_rows) into (i1, i2, i3). */
static inline void tensor_row_index(const struct tensor *t, int64_t row, int64_t i[3])
{
    i[0] = row % t->ne[1];
    i[1] = row / t->ne[1] % t->ne[2];
    i[2] = row / t->ne[1] / t->ne[2];
}

#endif
