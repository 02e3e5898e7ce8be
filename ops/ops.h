/* ops.h: what an op means. One file an op: its shape rule, its reference in double precision, its cost, its tolerance and the
 * cases that every kernel of it must pass. Kernels (backends/) promise to equal the reference within the tolerance.
 *
 * References share no code with fast kernels, accumulate in double, read every format, layout and stride through
 * tensor_read_row, and give the same bits for any number of threads: a thread owns whole outputs. */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "ops/node.h"

/* What one run of a node must move and do: the floor under its time. */
struct cost {
    double read, written; /* bytes: each source and the output once, weights in their stored format */
    double flops;         /* a multiply-add counts two */
};

/* How the check fills one source of a case. */
enum fill {
    FILL_NONE,      /* the source is absent */
    FILL_NORMAL,    /* standard normal */
    FILL_HOSTILE,   /* normal with zeros, denormals, values of 1e4 and whole rows of equal values strewn in; finite */
    FILL_INDEX,     /* i32: random in [0, limit) */
    FILL_DISTINCT,  /* i32: distinct values in [0, limit), random order; limit >= elements */
    FILL_ASCENDING, /* i32: limit, limit + 1, ...: positions of consecutive tokens from `limit` on */
    FILL_IDENTITY,  /* i32: the element's index along dimension 0 */
    FILL_ZERO,
    FILL_UNIT,      /* normal rows, scaled to length one: keys and queries behind their norm */
    FILL_NEGATIVE,  /* -|normal|: logarithms of decays */
    FILL_SHARE,     /* uniform in [0, 1): gates behind their sigmoid */
};

enum strides {
    STRIDES_PLAIN,      /* contiguous */
    STRIDES_PADDED,     /* rows with a gap behind each, and an offset before the first */
    STRIDES_PERMUTED,   /* a view with dimensions 1 and 2 exchanged in memory */
    STRIDES_TRANSPOSED, /* dimensions 0 and 1 exchanged in memory: the elements of a row lie apart; formats of block 1 only */
};

struct case_src {
    enum format_id format;
    int64_t ne[MAX_DIMS]; /* 0 stands for 1, -1 for an empty dimension */
    enum fill fill;
    enum strides strides;
    int64_t limit; /* for the integer fills */
};

struct op_case {
    const char *name; /* unique within the op: "one_row", "odd_tail" */
    struct case_src src[MAX_SRC];
    const void *params; /* the op's params struct, or NULL */
};

/* One field of an op's params struct, for those who know it by its name: traces and plug-ins. Four bytes: a float, or an
 * int32_t, which `word`, if given, turns into what it means
 * (NULL: no such value). */
struct op_param {
    const char *name; /* NULL: the end of the list */
    size_t offset;
    bool real;
    const char *(*word)(int32_t value);
};
#define OP_REAL(type, field)       #field, offsetof(type, field), true, NULL
#define OP_WHOLE(type, field)      #field, offsetof(type, field), false, NULL
#define OP_WORD(type, field, word) #field, offsetof(type, field), false, word

struct op_desc {
    const char *name; /* "mul_mat": as in kernel names, gates and traces */
    int min_src, max_src;
    size_t params_size; /* of the op's struct in ops/<op>.h; 0: none */
    const struct op_param *params; /* its fields; NULL: none, or an alias op */
    bool alias;         /* view, reshape, permute: names memory anew; never runs, costs nothing */
    int updates;        /* 1 + the source that the op writes in place beside its output, a state that outlives the step; 0: none */
    bool collective;    /* meets the other ranks: src[0] is what this rank brings, which they may read until the next collective is over */
    bool fused;         /* made by a fusion (graph/fuse.def): shape, reference, scratch and cost are those of node->parts */
    /* Checks sources and params; sets out's format, ne and nb (alias and in-place ops: base and offset too). 0, or
     * HONE_EINPUT with a message that gives the shapes. Called once, when the node is added to a graph. */
    int (*shape)(struct node *n, struct hone_error *e);
    /* Computes w's share of the node. All workers call it. NULL for alias ops. */
    void (*reference)(const struct node *n, const struct worker *w);
    /* Bytes of scratch each worker needs for reference; NULL: none. */
    size_t (*scratch)(const struct node *n);
    struct cost (*cost)(const struct node *n);
    /* Largest normalised mean squared error, sum (y - ref)^2 / sum ref^2 over the output, that a kernel may show on a case;
     * the op's file gives the reason. */
    double tolerance;
    const struct op_case *cases;
    int n_cases;
};

const struct op_desc *op_get(enum op op);
/* The reference of any node that runs: the op's own, or for a fused node its parts', one after the other. Same for scratch and
 * cost (a fused node moves its sources and what it leaves, not what stays inside). */
void node_reference(const struct node *n, const struct worker *w);
size_t node_scratch(const struct node *n);
struct cost node_cost(const struct node *n);
/* The source that n's own op writes in place beside its output, or NULL; of a fused node, ask its parts. */
struct tensor *node_updates(const struct node *n);
/* Whether n, or a part of it, meets the other ranks. */
bool node_collective(const struct node *n);
/* n itself, or the first of its parts, of this op; NULL: there is none. */
const struct node *node_part(const struct node *n, enum op op);
/* Whether the node must leave t in memory: its out, or one of also. */
bool node_leaves(const struct node *n, const struct tensor *t);
/* 0, or -1 when there is no op of this name. */
int op_by_name(const char *name, enum op *op);

/* For shape rules: HONE_EINPUT with "op <name>: <printf-style text>". */
int op_refuse(const struct node *n, struct hone_error *e, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What every shape rule begins with: as many sources as the op takes, none that it needs absent, each of a shape that can
 * exist, an output to fill. 0 or a refusal. */
int op_check(const struct node *n, struct hone_error *e);
/* Source i is of the given format; is a float format, in any layout; is in file order (no packed layout). 0 or a refusal. */
int op_check_format(const struct node *n, int i, enum format_id format, struct hone_error *e);
int op_check_float(const struct node *n, int i, struct hone_error *e);
int op_check_unpacked(const struct node *n, int i, struct hone_error *e);
/* Gives the output format, shape and contiguous strides, if such a tensor can exist. 0 or a refusal. */
int op_set_out(struct node *n, enum format_id format, const int64_t ne[MAX_DIMS], struct hone_error *e);
/* Makes the output a view of source i that begins `offset` bytes behind its first; format, ne and nb are the caller's. */
void op_set_view(struct node *n, int i, size_t offset);
/* Bytes that a tensor's elements take, without gaps; of a packed tensor, what they take in the file. */
double op_stored_bytes(const struct tensor *t);
/* The plain cost: every source's and the output's bytes once, and flops_per_element times the output's elements. */
struct cost cost_elementwise(const struct node *n, double flops_per_element);

#endif
