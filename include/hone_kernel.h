/* hone_kernel.h: bring your own kernel. All that a plug-in needs to know of hone: one file to include, nothing to link.
 *
 * A plug-in is a shared object that exports one constant, `hone_plugin`: a table of kernels, and of packed layouts where a
 * kernel wants one. A kernel computes one op ("mul_mat") and has a name of its own (its variant, "mine"). It runs only where a
 * gate names it: `hone run --plugin ./mine.so --set kernel.mul_mat.q4_0=mine`. The kernel gets plain views of the tensors: no
 * type of hone's inside appears here. docs/plugin.md is the how-to, examples/kernel/ a worked example.
 *
 * Versions. HONE_KERNEL_ABI grows when something here changes its meaning; hone refuses plug-ins of another number. Fields are
 * only ever added at the end of a struct: each begins with its size. Of a table's structs the plug-in writes its own sizeof
 * there, and hone reads what is missing as zero. Of views hone writes the size; a plug-in that wants a field newer than its
 * first release asks for it: HONE_HAS(tensor, field).
 *
 * Ownership. Everything the table points to must live as long as the process (constants do). Everything that hone passes lives
 * until the call returns; copy what you keep. Strings are UTF-8 and end with NUL.
 *
 * Threads. `run` is called on every worker of a session at once, several sessions may run at once, and one plan may call `fits`
 * while another runs: kernels keep no state that is not their own node's, or guard it.
 *
 * Names. Ops and their sources are described in ops/<op>.c, formats in formats/<name>.c. Formats: f32 f16 bf16 i32 q4_0 q4_1
 * q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq4_nl iq4_xs mxfp4, and a8, hone's own 8-bit activation. In what hone passes they
 * are spelled exactly so; in your tables case does not matter. */
#ifndef HONE_KERNEL_H
#define HONE_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HONE_KERNEL_ABI   1u
#define HONE_KERNEL_MAGIC 0x656e6f68u /* "hone" in memory */

/* Whether the struct that x points to, as hone passed it, is long enough to hold the field. */
#define HONE_HAS(x, field) ((x)->size >= (size_t)((const char *)(&(x)->field + 1) - (const char *)(x)))

/* ---- what hone passes */

/* A view of a tensor. Dimension 0 is the fastest. A row is the ne[0] values at one (i1, i2, i3); it begins at
 *   (char *)data + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]
 * and is ne[0] / block blocks, nb[0] bytes from one to the next. Strides are those of the tensor: rows may have gaps,
 * dimensions may be exchanged, and nothing promises an alignment beyond that of the format's block in a weight's rows. Follow
 * the strides, or refuse in `fits`. */
struct hone_tensor {
    uint32_t size;       /* bytes of this struct */
    int32_t block;       /* values a block: 1 for f32, 32 for q4_0, 256 for q4_K */
    int32_t block_bytes; /* bytes a block: 4, 18, 144 */
    int32_t packed;      /* 1: not in file order; data is the packed matrix of `layout`, and nb[] means nothing */
    const char *name;    /* "ffn_up-3": the node that made it and its layer, or the weight's name in the file */
    const char *kind;    /* "weight", "input" (tokens, positions), "state" (KV cells), "value" (a node's result) */
    const char *format;  /* of the values: "f32", "q4_K" */
    const char *layout;  /* "rows": file order; else the name of a packed layout */
    int64_t ne[4];       /* values in each dimension; 1 where it is not used, 0 in an empty tensor */
    int64_t nb[4];       /* bytes from one to the next in each dimension */
    void *data;          /* the first value; NULL in fits and scratch. Only outputs may be written. */
};

/* A parameter of an op, by name: "eps" of rms_norm. Whole numbers are exact in a double. */
struct hone_param {
    const char *name;
    const char *word; /* where the parameter is a choice: "silu"; else NULL */
    double number;    /* where it is a number */
};

/* A view of a node: one op, its sources, its output. Within one view the same tensor has the same address. */
struct hone_node {
    uint32_t size;  /* bytes of this struct */
    int32_t layer;  /* of the model, from 0; -1: none */
    const char *op; /* "mul_mat" */
    int32_t n_src;
    int32_t n_params;
    int32_t n_also;
    int32_t n_parts;
    const struct hone_tensor *const *src; /* [n_src]; NULL for an optional source that is absent */
    const struct hone_tensor *out;
    const struct hone_param *params; /* [n_params] */
    /* Of a fused node ("mul_mat_group", "rope_kv"; see ops/<op>.c): the nodes that it stands for, in running order, and the
     * results besides `out` that it must leave in memory, because others read them. Results of parts that are neither may be
     * left unwritten. An ordinary node has none. */
    const struct hone_node *const *parts;  /* [n_parts] */
    const struct hone_tensor *const *also; /* [n_also] */
};

/* What a running worker may use. */
struct hone_ctx {
    uint32_t size; /* bytes of this struct */
    uint32_t reserved;
    void *scratch;          /* this worker's own, aligned to 64; what `scratch` asked for, contents undefined */
    uint64_t scratch_bytes; /* at least what was asked for */
    void *stream;           /* on a GPU backend its queue; NULL on the CPU */
    const void *host;       /* hone's */
    /* Waits until all nth workers are here, and makes what each wrote before visible to all. Every worker must call it equally
     * often. hone itself waits behind every node: a kernel needs a barrier only between steps of its own. */
    void (*barrier)(const struct hone_ctx *ctx);
    /* Row (i1, i2, i3) of a float tensor of this node as ne[0] floats, from any format, layout and strides: in place where it
     * is plain f32, else unpacked into room (ne[0] floats). */
    const float *(*read_row)(const struct hone_tensor *t, int64_t i1, int64_t i2, int64_t i3, float *room);
    /* Packs ne[0] floats into row (i1, i2, i3) of an output of this node, following its format and strides. */
    void (*write_row)(const struct hone_tensor *t, int64_t i1, int64_t i2, int64_t i3, const float *row);
};

/* ---- what a plug-in brings */

/* Another order of a weight matrix [k, rows] of one format. hone packs a weight when a kernel that is named by a gate wants it,
 * one layout a weight at a time, and its own kernels that cannot read it step aside. Bytes are moved, never changed: when the
 * plug-in is loaded hone packs matrices of several shapes and proves that restore_row gives every bit back, that unpack_row
 * reads what the format says, and that nothing beyond `bytes` is touched. Functions get the same arguments always: `packed` is
 * the whole packed matrix, aligned to 64. */
struct hone_layout {
    uint32_t size;      /* sizeof(struct hone_layout) */
    int32_t grain;      /* rows packed together, 1 to 4096: pack gets ranges that begin at multiples of it */
    const char *name;   /* "q4_0.mine": letters, digits and "_.-", at most 40; unique among all layouts */
    const char *format; /* of the matrix */
    /* NULL when a matrix of this shape can be packed, else why not (a constant text). May be NULL: every shape can. */
    const char *(*refuses)(int64_t k, int64_t rows);
    uint64_t (*bytes)(int64_t k, int64_t rows); /* of the packed matrix; at most twice the file's, plus 1 MiB */
    /* Packs rows [first, first + n) of src, the whole matrix in file order without gaps, into packed, whose contents
     * are undefined at first. Ranges run in parallel. */
    void (*pack)(const void *src, void *packed, int64_t k, int64_t rows, int64_t first, int64_t n);
    void (*unpack_row)(const void *packed, float *to, int64_t k, int64_t rows, int64_t row); /* row as k floats */
    void (*restore_row)(const void *packed, void *to, int64_t k, int64_t rows, int64_t row); /* row as in the file */
};

struct hone_kernel {
    uint32_t size;       /* sizeof(struct hone_kernel) */
    uint32_t reserved;   /* 0 */
    const char *op;      /* which op it computes */
    const char *variant; /* its name: letters, digits and "_", at most 40; unique within the op, and not "ref" */
    /* The format of src[0], checked before `fits` is asked. NULL: `fits` looks itself. */
    const char *format;
    /* The order it reads weight matrices in. NULL or "rows": file order. A layout's name, hone's ("q4_K.x16") or this
     * plug-in's: that one. Several names parted by spaces: that of the weight's format. "any": whatever they are in, through
     * read_row. */
    const char *layout;
    /* The format that it wants the activation src[1] of mul_mat, mul_mat_add, mul_mat_group or gate_up_glu quantised to: "a8",
     * "q8_0". NULL: f32 as it is. Quantising is a node of its own, shared by all who want it. */
    const char *activation;
    /* Features of the processor, parted by spaces ("avx2 fma"): where one is lacking or masked the kernel does not fit. NULL:
     * none. */
    const char *needs;
    /* Whether it computes this node: shapes, strides, formats, parameters. 1, or 0 with the reason as text in why (why_size
     * bytes, ends with NUL). What it accepts must run. It is asked about the node as built: activations are f32 still, and
     * weights are in whatever order they happen to be in. May be called on any thread, and more than once. */
    int (*fits)(const struct hone_node *node, char *why, size_t why_size);
    /* Bytes of scratch a worker, at most 1 GiB; NULL: none. Here and in run, sources are what layout and activation asked for.
     */
    uint64_t (*scratch)(const struct hone_node *node);
    /* Computes worker ith's share of nth, 0 <= ith < nth. All workers call it at once; between them they write all of the
     * output, each value once, the same bits for any nth. 0, or anything else to end the step with an error. */
    int (*run)(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth);
    /* A fused op only, and NULL there too if it never does: asked before each step whether it cannot serve this one. 1 with the
     * reason in why: the parts run instead, which is counted, reported, and an error under --strict. */
    int (*declines)(const struct hone_node *node, char *why, size_t why_size);
};

struct hone_plugin {
    uint32_t magic;                           /* HONE_KERNEL_MAGIC */
    uint32_t abi;                             /* HONE_KERNEL_ABI */
    uint32_t size;                            /* sizeof(struct hone_plugin) */
    uint32_t reserved;                        /* 0 */
    const char *name;                         /* "openblas": for messages; letters, digits and "_-.", at most 40 */
    const char *version;                      /* for records, at most 40; may be NULL */
    const struct hone_kernel *const *kernels; /* ends with NULL */
    const struct hone_layout *const *layouts; /* ends with NULL; may be NULL itself: none */
};

/* The one symbol. Begin with HONE_PLUGIN_HEAD:
 *   const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "mine", .kernels = kernels}; */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct hone_plugin hone_plugin;
#define HONE_PLUGIN_HEAD .magic = HONE_KERNEL_MAGIC, .abi = HONE_KERNEL_ABI, .size = sizeof(struct hone_plugin)

/* ---- small help */

/* A parameter as a number; `otherwise` where the op has none of this name. */
static inline double hone_number(const struct hone_node *node, const char *name, double otherwise)
{
    for (int32_t i = 0; i < node->n_params; i++)
        if (!strcmp(node->params[i].name, name))
            return node->params[i].number;
    return otherwise;
}

/* A parameter as a word; "" where the op has none of this name. */
static inline const char *hone_word(const struct hone_node *node, const char *name)
{
    for (int32_t i = 0; i < node->n_params; i++)
        if (!strcmp(node->params[i].name, name) && node->params[i].word)
            return node->params[i].word;
    return "";
}

/* Rows in all: of a tensor, the product of its dimensions but the first. */
static inline int64_t hone_rows(const struct hone_tensor *t)
{
    return t->ne[1] * t->ne[2] * t->ne[3];
}

/* Worker ith's share [*lo, *hi) of n items, in whole multiples of grain: contiguous, in order, empty for late workers. */
static inline void hone_share(int64_t n, int64_t grain, int32_t ith, int32_t nth, int64_t *lo, int64_t *hi)
{
    int64_t units = (n + grain - 1) / grain, a = units * ith / nth * grain, b = units * (ith + 1) / nth * grain;
    *lo = a < n ? a : n;
    *hi = b < n ? b : n;
}

/* IEEE binary16, as scales are stored, to float. */
static inline float hone_half(uint16_t h)
{
    uint32_t exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu, bits;
    float value;
    if (exponent == 0) { /* a denormal is mantissa * 2^-24, exactly */
        value = (float)mantissa * 5.9604644775390625e-8f;
        return h & 0x8000u ? -value : value;
    }
    bits = (uint32_t)(h & 0x8000u) << 16 | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#ifdef __cplusplus
}
#endif
#endif
