/* backend.h: what the planner and the run loop know of a backend: its devices, its memory, its kernels.
 *
 * A backend is one folder and one row in backends.def. A kernel is one const struct (rule 2): `fits` alone decides whether it
 * may run a node, and whatever it accepts must run. */
#ifndef BACKENDS_BACKEND_H
#define BACKENDS_BACKEND_H

#include "ops/ops.h"

/* Why a kernel was passed over, in one sentence. */
struct reason {
    char text[128];
};
/* Fills *r (printf-style) and returns false: `return fits_not(r, "k %% 32 is %d", ...)`. */
bool fits_not(struct reason *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a kernel reads in another form than the graph builder made it; the planner materialises it, shared by its readers, before
 * the first run. `fits` is asked about the node as built (an f32 activation, a weight in whatever layout it has now). */
struct wants {
    const struct layout *layout; /* of src[0], a weight; NULL: rows */
    /* Instead of layout, for a kernel that takes weights of several formats (each weight of a fused node): the layout it wants
     * a matrix of this format in; NULL: it does not take that format. */
    const struct layout *(*layout_for)(enum format_id format);
    bool any_layout;             /* reads src[0] through its layout's unpack_row, whichever it is; layout must be NULL */
    bool quantized;              /* wants the activation in `activation`: src[1] of mul_mat; of a fused node, see its op */
    enum format_id activation;
};

/* One worker's view of a running step. */
struct exec {
    struct worker worker;  /* thread, barrier, scratch */
    void *shared;          /* one block for all workers of the node, of the bytes that the kernel asked for; aligned to 64 */
    void *stream;          /* the backend's queue; NULL on the CPU */
};

struct kernel {
    enum op op;
    const char *variant; /* "ref", "q4_K_avx512": the full name is <backend>_<op>_<variant> */
    unsigned needs;      /* CPU_... bits (base/cpu.h) or the backend's device features */
    bool by_name_only;   /* runs only where a gate names it, and is not even asked elsewhere: a plug-in's */
    const char *origin;  /* SHA-256 of the plug-in's file that brought it, in hex; NULL: hone's own */
    struct wants wants;
    bool (*fits)(const struct node *n, struct reason *r);
    size_t (*scratch)(const struct node *n); /* bytes a worker; NULL: none */
    size_t (*shared)(const struct node *n);  /* bytes for all workers together, whose contents are undefined at first; NULL: none */
    int (*run)(const struct exec *x, const struct node *n); /* 0 or a HONE_E code */
    /* A fused kernel only: asked before each step whether it must decline this one; says why. Then the parts run (rule 4).
     * NULL: never. */
    bool (*declines)(const struct node *n, struct reason *r);
};

struct device_info {
    char name[128];       /* as the vendor calls it */
    char features[256];   /* words, space between */
    size_t memory_total, memory_free; /* bytes; 0: unknown */
    int units;            /* cores, multiprocessors, compute units */
};

struct backend {
    const char *name; /* "cpu" */
    bool host;        /* its memory is plain host memory, and its kernels run on every thread of the pool */
    int (*n_devices)(void);
    int (*device)(int i, struct device_info *info, struct hone_error *e);
    unsigned (*features)(int device); /* bits that kernels' needs are compared with */
    const char *(*feature_name)(unsigned bit);
    const struct kernel *const *(*kernels)(int *n); /* plainest first: the last that fits wins */
};

/* Adds kernels to a backend at run time (backends/plugin): from now on they follow those of its table. They, and what they point to,
 * live as long as the process. Thread-safe. 0, or HONE_ERESOURCE and nothing was added. */
int backend_register(const struct backend *b, const struct kernel *const *kernels, int n, struct hone_error *e);
/* What a backend's `kernels` returns: its table, and what was registered behind it. A list once returned stays valid. */
const struct kernel *const *backend_with_registered(const struct backend *b, const struct kernel *const *own, int n_own, int *n);

/* Whether a plug-in with this SHA-256 has brought kernels to this process. */
bool backend_has_origin(const char *sha256);

/* The backends of this build, in the order of backends.def. */
const struct backend *const *backend_list(int *n);
const struct backend *backend_by_name(const char *name);

#endif
