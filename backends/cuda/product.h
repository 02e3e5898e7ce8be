/* product.h: a matrix product node as its launches see it, and the host's side of it (product.cu): which nodes the kernels
 * take, how many blocks a launch has. */
#ifndef BACKENDS_CUDA_PRODUCT_H
#define BACKENDS_CUDA_PRODUCT_H

#include "backends/cuda/cuda.h"

#include "backends/cuda/s32.cuh"

extern "C" {
#include "formats/s32.h"
#include "ops/glu.h"

enum {
    PRODUCT_MATRICES = 4,
    PRODUCT_PARTS = 16, /* of a fused node, at most */
    PRODUCT_DECODE = 8, /* tokens up to which a product is done by rows (matvec.cuh), and beyond which by tiles (matmul.cuh) */
    PRODUCT_NORM = 6144,   /* values of a row that a block norms for itself */
    PRODUCT_STREAM = 20000000, /* bytes of weights up to which bulk copies bring them: about as many as are asked for at once */
    PRODUCT_SHARED = 200 << 10 /* bytes of shared memory that the activation of a block may take */
};

struct product_matrix {
    struct s32_matrix weight;
    float *out;       /* NULL: what is quantised is not wanted as f32 */
    const float *add; /* a residual or bias; NULL: none */
    float *alone;     /* the product itself, where it is wanted beside the sum or the glu; NULL: not */
    uint32_t rows;
    size_t out_stride, add_stride, alone_stride; /* floats from token to token */
};

struct product_args {
    struct product_matrix matrix[PRODUCT_MATRICES]; /* of a pair, gate and up: out is the first's */
    int n_matrices;
    uint32_t rows;   /* of all matrices; of a pair, of each */
    uint32_t groups; /* of 32 values in a row; of a format of single values, of 16 bytes */
    int tokens;
    const uint8_t *x;   /* A8 rows, or f32 */
    size_t x_stride;    /* bytes */
    bool pair;          /* for halves.cuh, whose launches have no argument for it */
    int kind;           /* of a pair, gate and up: enum unary_kind */
    int split;          /* warps that share a row */
    uint8_t *quantized; /* of a pair: where its glu goes as A8, or NULL */
    bool from_f32;      /* x is one f32 row, to be quantised by each block */
    const float *norm;  /* and before, under an rms_norm, multiplied with this; NULL: not */
    float eps;
    const char *name;   /* of the first product, in the host's memory: what a block that waits too long tells (wait.cuh) */
};

/* A format's launchers, which the file mul_mat_<format>_s32.cu defines: by rows for any number of tokens; by tiles. Formats of
 * single values (f16, bf16, f32) are read in rows and meet an f32 activation. */
struct product_format {
    enum format_id format;
    const struct layout *layout; /* NULL: rows */
    int values;                  /* in a group */
    int (*rows)(const struct exec *x, const struct product_args *a, bool pair);
    int (*tiles)(const struct exec *x, const struct product_args *a);
    /* mul_mat_id: see experts.cuh */
    int (*experts)(const struct exec *x, const struct node *n);
};

/* NULL: this format has none. */
const struct product_format *product_format(enum format_id format);
const struct layout *product_layout(enum format_id format);

/* n is a mul_mat that the kernels take, once W is packed and X quantised. `single`: W is of a format of single values; else it
 * has an s32 layout. */
bool product_fits(const struct node *n, bool single, struct reason *r);
/* Each product among n's parts is such a one. */
bool product_parts_fit(const struct node *n, bool single, struct reason *r);
/* The same for mul_mat_id. */
bool product_id_fits(const struct node *n, bool single, struct reason *r);
/* Rows of t, through dimensions 1 to 3, are equally far apart, and their elements one behind the other. */
bool product_linear(const struct tensor *t, struct reason *r);

/* W's streams; of experts, those of all of them. */
struct s32_matrix product_weight(const struct tensor *w);
/* The args of one mul_mat node; out may be replaced. */
void product_args_of(const struct node *n, struct product_args *a);
/* Adds the matrix of another product of the same activation. */
void product_args_add(const struct node *n, struct product_args *a);
/* n is a fused node that begins with a quantised norm: its products can take that in. */
bool product_norm_fits(const struct node *n, struct reason *r);
/* Where n begins with a norm, its products quantise what that makes of n's own source. */
void product_norm(const struct node *n, struct product_args *a);
/* One product of any number of tokens. */
int product_run(const struct exec *x, const struct product_args *a, enum format_id format);

/* What does the products of a node: product_run, or another of its kind. */
typedef int product_runner(const struct exec *x, const struct product_args *a, enum format_id format);

/* The launches of a mul_mat_group and of a mul_mat_add node. */
int product_group(const struct exec *x, const struct node *n, product_runner *run);
int product_add(const struct exec *x, const struct node *n, product_runner *run);
/* The args of a linear node's product, of the quantised activation. */
void product_args_of_linear(const struct node *n, struct product_args *a);
/* The glu of a pair should be quantised where it is made, 32 rows a block of threads: they go out evenly over the
 * multiprocessors. */
bool product_quantizes(const struct exec *x, const struct product_args *a);
/* The gate and the up product of a gate_up_glu node; false where their formats differ. */
bool product_gate_up_args(const struct node *n, struct product_args *a);
/* Makes them a pair: the glu is what is written. */
void product_pair(const struct node *n, struct product_args *a);
/* The parts of a gate_up_glu node up to the glu, whose result is written; and quantised to `to` where that is not NULL. */
int product_gate_up(const struct exec *x, const struct node *n, const struct tensor *to, product_runner *run);
/* from, f32 rows, as A8. */
int product_quantize(const struct exec *x, const struct tensor *from, const struct tensor *to);

/* A product of few tokens brings its weights, so many bytes, to shared memory by bulk copies (stream.cuh), not to registers
 * (matvec.cuh), as HONE_CUDA_STREAM says: never (0, and without it), up to PRODUCT_STREAM ("small"), or always (1). */
bool product_streams(size_t bytes);
size_t product_weight_bytes(const struct product_args *a, enum format_id format);
/* Behind a launch of a->tokens tokens: the rest. */
void product_advance(struct product_args *a);
/* Blocks that a multiprocessor holds: at most `most`, given their shared memory. */
int product_resident(size_t shared, int most);
/* Warps that share a row, so that `blocks` blocks are occupied. */
int product_split(uint32_t rows, uint32_t groups, int blocks);

} /* extern "C" */

#endif
