/* backend.h: what the planner and the run loop know of a backend: its devices, its memory, its kernels.
 *
 * A backend is one folder and one row in backends.def. A kernel is one const struct (rule 2): `fits` alone decides whether it
 * may run a node, and whatever it accepts must run.
 *
 * Memory of a device is addressed by plain pointers that only the device may follow. What lies there says so: tensor->buffer; NULL is
 * host memory. Nothing is moved behind anybody's back: a value that is read elsewhere than where it was written goes through a copy
 * node (graph/place.h). Managed memory was the alternative; it hides the copies, and faults page by page. */
#ifndef BACKENDS_BACKEND_H
#define BACKENDS_BACKEND_H

#include "base/arena.h"
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
    int device;            /* of the backend; 0 on the CPU */
    bool few;              /* the step is of few tokens: launches may overlap */
    void *link;            /* this rank's end of its group on devices (struct link_api), for collectives; NULL: it is alone, or meets
                            * the others at the host */
};

struct kernel {
    enum op op;
    const char *variant; /* "ref", "q4_K_avx512": the full name is <backend>_<op>_<variant> */
    unsigned needs;      /* CPU_... bits (base/cpu.h) or the backend's device features */
    bool by_name_only;   /* runs only where a gate names it, and is not even asked elsewhere: a plug-in's */
    const char *origin;  /* SHA-256 of the plug-in's file that brought it, in hex; NULL: hone's own */
    struct wants wants;
    double tolerance; /* wider than the op's (struct op_desc), for a kernel that rounds more on purpose and says why; 0: the op's */
    bool (*fits)(const struct node *n, struct reason *r);
    size_t (*scratch)(const struct node *n); /* bytes a worker; NULL: none */
    size_t (*shared)(const struct node *n);  /* bytes for all workers together, whose contents are undefined at first; NULL: none */
    int (*run)(const struct exec *x, const struct node *n); /* 0 or a HONE_E code */
    /* Of a device: its result may lie in the host's memory (device_api's host_alloc), where each value is written once, while it works. */
    bool writes_host;
    /* A fused kernel only: asked before each step whether it must decline this one; says why. Then the parts run (rule 4).
     * NULL: never. */
    bool (*declines)(const struct node *n, struct reason *r);
};

/* The largest normalised mean squared error that k may show. */
static inline double kernel_tolerance(const struct kernel *k)
{
    double of_op = op_get(k->op)->tolerance;
    return k->tolerance > of_op ? k->tolerance : of_op;
}

struct device_info {
    char name[128];       /* as the vendor calls it */
    char features[256];   /* words, space between */
    size_t memory_total, memory_free; /* bytes; 0: unknown */
    int units;            /* cores, multiprocessors, compute units */
};

/* Memory of one device. */
struct buffer {
    const struct backend *backend;
    int device;
    void *data;
    size_t bytes;
};

/* What a backend brings that runs a user's device code: files of it are modules (backends/plugin/device.c). A module whose kernels were
 * registered is for good; each is for all devices of the backend. */
struct module_api {
    const char *suffixes; /* of such files' names, parted by spaces: ".cu .ptx .cubin" */
    /* Reads the file, and compiles it where it is source. Touches no device. HONE_EINPUT has the compiler's first error. */
    int (*load)(const char *path, void **module, struct hone_error *e);
    void (*unload)(void *module); /* that nobody uses; may be NULL */
    /* Whether this process works with the devices already; if not, it may still make children that do. */
    bool (*started)(void);
    /* A constant of the module, copied to the host: malloc'd, the caller's. */
    int (*constant)(void *module, const char *name, void **bytes, size_t *n, struct hone_error *e);
    /* max_threads: of a block; max_shared: bytes of dynamic shared memory. Refused where it takes another argument than one of up to
     * arg_bytes, by value. */
    int (*function)(void *module, const char *name, size_t arg_bytes, void **function, int *max_threads, size_t *max_shared,
                    struct hone_error *e);
    /* On x's stream; arg is copied. 0 or a HONE_E code; `why` says more. */
    int (*launch)(const struct exec *x, void *function, const unsigned grid[2], int threads, size_t shared, const void *arg);
    /* Keeps a text of the caller's as what `why` says on this thread. */
    void (*tell)(const char *text);
};

/* Ranks whose devices are one backend's, and which meet in kernels: each has an end, by its number in the group. Kernels of
 * collectives find it in struct exec. All ranks run the same collectives in the same order. */
struct link_api {
    /* links[r] becomes the end of the rank that runs on devices[r]; a device may have several ranks. limit_ms: of one wait for
     * another rank. way: how they exchange, in the backend's words; NULL: as fast as can be. HONE_EUSAGE: not so. On failure
     * nothing is left. */
    int (*create)(void **links, const int *devices, int n, int limit_ms, const char *way, struct hone_error *e);
    void (*free)(void *link); /* each of them, once nothing runs; may be NULL */
    /* All as new, once the streams of all ranks are idle: after a failure. */
    int (*reset)(void *const *links, int n, struct hone_error *e);
    void (*abort)(void *link); /* nobody of the group waits any longer; from any thread */
    /* Of a synchronised stream: whether a kernel gave up, and for whom it waited at which node. */
    int (*check)(void *link, struct hone_error *e);
    const char *(*way)(const void *link);
};

/* Several nodes that a backend runs in one launch, as a whole, though they are no fused node: whoever observes gets them one by one, and
 * so does a plan of ranks that meet. A whole is made with the plan and lives as long. */
struct whole_api {
    /* Of the plan's n_all nodes in running order, with the kernels that were chosen for them, those from `from` to `end` - 1 run
     * one behind the other on this device: *whole for the longest stretch of them that it can run, of *n from *first on, in
     * memory of the arena; and in *r why not more, or "". 0; NULL in *whole: there is none. */
    int (*claim)(struct arena *arena, const struct node *const *nodes, const struct kernel *const *kernels, int n_all, int from, int end,
                 int device, void **whole, int *first, int *n, struct reason *r, struct hone_error *e);
    size_t (*bytes)(const void *whole); /* of the device's memory, which nobody else writes */
    /* With the addresses that tensors have now, and that memory, aligned to 256. Again when they change. */
    int (*prepare)(void *whole, int device, void *stream, void *memory, struct hone_error *e);
    /* As a kernel's run: on x's stream, may be captured. */
    int (*launch)(const struct exec *x, const void *whole);
    /* Of a synchronised stream: whether it gave up. Then it must be prepared again. */
    int (*check)(const void *whole, struct hone_error *e);
    void (*release)(void *whole); /* what is not of the arena */
};

/* What a backend brings whose memory is not the host's. Every call says which device it is about; one that can fail returns 0 or a code
 * with the message in *e. A stream runs what it is given in order, and belongs to one thread at a time; the stream NULL is the
 * device's own, for what is done apart from any run. */
struct device_api {
    /* Makes the device the one that this thread's next kernels are launched on. */
    int (*select)(int device, struct hone_error *e);
    /* bytes of undefined contents, aligned to 256. HONE_ERESOURCE names the need and what is free. */
    int (*alloc)(int device, size_t bytes, void **p, struct hone_error *e);
    void (*free)(int device, void *p); /* p may be NULL */
    /* Host memory that copies to and from devices run fastest with, and beside other work. */
    int (*host_alloc)(size_t bytes, void **p, struct hone_error *e);
    void (*host_free)(void *p); /* p may be NULL */
    int (*stream_create)(int device, void **stream, struct hone_error *e);
    void (*stream_free)(int device, void *stream); /* stream may be NULL */
    /* Between any two of host, this device and its peers. Memory of the host must stay as it is until the stream is synchronised. */
    int (*copy)(int device, void *stream, void *to, const void *from, size_t bytes, struct hone_error *e);
    int (*fill)(int device, void *stream, void *to, int byte, size_t bytes, struct hone_error *e);
    int (*synchronise)(int device, void *stream, struct hone_error *e); /* waits until all that was given to it is done */
    /* Between begin and end what the stream is given is not run but recorded; replay runs it, with the addresses of then. */
    int (*capture_begin)(int device, void *stream, struct hone_error *e);
    int (*capture_end)(int device, void *stream, void **graph, struct hone_error *e); /* on failure nothing is left to free */
    int (*replay)(int device, void *stream, void *graph, struct hone_error *e);
    void (*graph_free)(int device, void *graph); /* graph may be NULL */
    /* The time on the device from start to stop; stop waits. */
    int (*timer_start)(int device, void *stream, struct hone_error *e);
    int (*timer_stop)(int device, void *stream, int64_t *ns, struct hone_error *e);
    /* How fast the device reads its memory, measured now; NULL: nobody knows. */
    int (*read_rate)(int device, double *bytes_per_second, struct hone_error *e);
    /* What the last kernel of this thread that returned a code had to say. */
    const char *(*why)(void);
    /* Moves a span of bytes as it is, between memories: what copy nodes between places run. */
    const struct kernel *transfer;
    const struct module_api *modules; /* NULL: no code of a user's own */
    const struct link_api *links; /* NULL: ranks on its devices meet at the host */
    const struct whole_api *wholes; /* NULL: every node is a launch */
};

struct backend {
    const char *name; /* "cpu" */
    bool host;        /* its memory is plain host memory, and its kernels run on every thread of the pool */
    const struct device_api *api; /* NULL where host is true */
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

/* Adds a whole backend at run time: a test's. It lives as long as the process. HONE_ERESOURCE: there are too many. */
int backend_add(const struct backend *b, struct hone_error *e);

/* The backends of this build, in the order of backends.def, then those that were added. The first is the CPU. */
const struct backend *const *backend_list(int *n);
const struct backend *backend_by_name(const char *name);

#endif
