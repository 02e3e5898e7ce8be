/* cuda.c: NVIDIA GPUs as a backend: devices, memory, streams, captures, timers, and the rows of kernels.def.
 *
 * The runtime library is linked statically and finds the driver by itself: without a driver, or without a device, there are no
 * devices and nothing else happens. Machine code is for sm_90a alone, so a device of another kind is shown and has no
 * feature, and every kernel needs CUDA_SM90.
 *
 * The driver must not be touched before a fork (a child could not use it any more), so nothing here runs until somebody asks
 * for a device. Streams do not wait for the default stream, and captures are those of one thread: sessions on other threads go
 * on. A pool of memory of our own was the alternative to cudaMalloc; a session allocates a few dozen blocks when it is made and
 * none in a step. */
#include "backends/cuda/link.h"

#include "backends/cuda/module.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MAX_DEVICES = 16 };

extern const struct backend backend_cuda;
extern const struct link_api cuda_links;
extern const struct whole_api cuda_wholes;

#define KERNEL(op, variant) extern const struct kernel cuda_##op##_##variant;
#include "backends/cuda/kernels.def"
#undef KERNEL

static const struct kernel *const table[] = {
#define KERNEL(op, variant) &cuda_##op##_##variant,
#include "backends/cuda/kernels.def"
#undef KERNEL
    NULL,
};

static const struct kernel *const *kernels(int *n)
{
    return backend_with_registered(&backend_cuda, table, (int)(sizeof table / sizeof *table) - 1, n);
}

/* ---- errors */

static _Thread_local char last_error[256];

const char *cuda_why(void)
{
    return last_error[0] ? last_error : "no reason was kept";
}

int cuda_code(cudaError_t error)
{
    if (error == cudaSuccess)
        return 0;
    cudaGetLastError(); /* so that the next call is not blamed */
    snprintf(last_error, sizeof last_error, "%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? HONE_ERESOURCE : HONE_EFAULT;
}

int cuda_fault(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(last_error, sizeof last_error, format, ap);
    va_end(ap);
    return HONE_EFAULT;
}

/* 0, or the error's code with "cuda0: <what>: <the error>". */
static int failed(cudaError_t error, int device, const char *what, struct hone_error *e)
{
    int rc = cuda_code(error);
    return rc ? err_set(e, rc, "cuda%d: %s: %s", device, what, last_error) : 0;
}

static int select_device(int device, struct hone_error *e)
{
    return failed(cudaSetDevice(device), device, "cannot be used", e);
}

/* ---- devices */

static atomic_int n_known = -1;

bool cuda_started(void)
{
    return atomic_load(&n_known) >= 0;
}

static int n_devices(void)
{
    int n = atomic_load(&n_known);
    if (n >= 0)
        return n;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        cudaGetLastError();
        n = 0; /* no driver, or no device: both are an ordinary machine */
    }
    n = n < MAX_DEVICES ? n : MAX_DEVICES;
    atomic_store(&n_known, n);
    return n;
}

static int attribute(enum cudaDeviceAttr a, int device)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, a, device) != cudaSuccess)
        cudaGetLastError();
    return value;
}

int cuda_units(int device)
{
    static atomic_int known[MAX_DEVICES];
    int n = atomic_load(&known[device]);
    if (!n)
        atomic_store(&known[device], n = attribute(cudaDevAttrMultiProcessorCount, device));
    return n;
}

size_t cuda_block_shared(int device)
{
    static atomic_int known[MAX_DEVICES];
    int n = atomic_load(&known[device]);
    if (!n)
        atomic_store(&known[device], n = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return (size_t)n;
}

bool cuda_overlap(const struct exec *x)
{
    enum { UNKNOWN, NEVER, ALWAYS, FEW };
    static atomic_int known = UNKNOWN;
    int when = atomic_load(&known);
    if (when == UNKNOWN) {
        const char *word = getenv("HONE_CUDA_OVERLAP");
        atomic_store(&known, when = !word || !*word ? FEW : strcmp(word, "0") == 0 ? NEVER : ALWAYS);
    }
    return when == ALWAYS || (when == FEW && x->few);
}

/* Kernels that may have all the shared memory there is, and on which devices. Open addressing: entries come and never go. */
enum { ALLOWED = 4096 };
static struct {
    _Atomic(const void *) kernel;
    atomic_uint devices; /* a bit each */
} allowed[ALLOWED];

/* The entry of a kernel, which takes a free one the first time; NULL: there is none left. */
static atomic_uint *allowed_on(const void *kernel)
{
    size_t at = (size_t)((uintptr_t)kernel * 0x9e3779b97f4a7c15u >> 20);
    for (int i = 0; i < ALLOWED; i++) {
        size_t slot = (at + (size_t)i) % ALLOWED;
        const void *there = atomic_load(&allowed[slot].kernel);
        if (!there && atomic_compare_exchange_strong(&allowed[slot].kernel, &there, kernel))
            there = kernel;
        if (there == kernel)
            return &allowed[slot].devices;
    }
    return NULL;
}

int cuda_allow_shared(const void *kernel, int device)
{
    atomic_uint *devices = allowed_on(kernel);
    struct cudaFuncAttributes of;
    if (devices && atomic_load(devices) >> device & 1)
        return 0;
    int rc = cuda_code(cudaFuncGetAttributes(&of, kernel));
    if (!rc)
        rc = cuda_code(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)(cuda_block_shared(device) - of.sharedSizeBytes)));
    if (!rc && devices)
        atomic_fetch_or(devices, 1u << device);
    return rc;
}

static unsigned features(int device)
{
    static atomic_int known[MAX_DEVICES]; /* 1 + the bits */
    if (device < 0 || device >= n_devices())
        return 0;
    int bits = atomic_load(&known[device]);
    if (!bits) {
        int major = attribute(cudaDevAttrComputeCapabilityMajor, device),
            minor = attribute(cudaDevAttrComputeCapabilityMinor, device);
        atomic_store(&known[device], bits = 1 + (major == 9 && minor == 0 ? (int)CUDA_SM90 : 0));
    }
    return (unsigned)(bits - 1);
}

static const char *feature_name(unsigned bit)
{
    return bit == CUDA_SM90 ? "sm_90" : NULL;
}

static int device_describe(int i, struct device_info *info, struct hone_error *e)
{
    struct cudaDeviceProp p;
    if (i < 0 || i >= n_devices())
        return err_set(e, HONE_EUSAGE, "the cuda backend has %d device(s), no %d", n_devices(), i);
    int rc = failed(cudaGetDeviceProperties(&p, i), i, "cannot be described", e);
    if (!rc)
        rc = select_device(i, e);
    *info = (struct device_info){0};
    if (!rc)
        rc = failed(cudaMemGetInfo(&info->memory_free, &info->memory_total), i, "its memory", e);
    if (rc)
        return rc;
    info->units = p.multiProcessorCount;
    snprintf(info->name, sizeof info->name, "%.120s", p.name);
    snprintf(info->features, sizeof info->features, "sm_%d%d%s, L2 %d MiB, %zu KiB shared memory a block", p.major, p.minor,
             features(i) & CUDA_SM90 ? "" : " (no kernel of this build runs there)", p.l2CacheSize >> 20,
             p.sharedMemPerBlockOptin >> 10);
    return 0;
}

/* ---- memory */

static int device_alloc(int device, size_t bytes, void **p, struct hone_error *e)
{
    size_t available = 0, total = 0;
    *p = NULL;
    int rc = select_device(device, e);
    if (rc)
        return rc;
    cudaError_t error = cudaMalloc(p, bytes ? bytes : 1);
    if (error != cudaErrorMemoryAllocation)
        return failed(error, device, "an allocation", e);
    cudaGetLastError();
    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        cudaGetLastError();
    return err_set(e, HONE_ERESOURCE, "cuda%d has no memory for %.1f MiB; %.1f of %.1f MiB are free", device,
                   (double)bytes / 0x1p20, (double)available / 0x1p20, (double)total / 0x1p20);
}

static void device_free(int device, void *p)
{
    if (p && cudaSetDevice(device) == cudaSuccess)
        cudaFree(p);
    cudaGetLastError();
}

static int host_alloc(size_t bytes, void **p, struct hone_error *e)
{
    *p = NULL;
    int rc = cuda_code(cudaHostAlloc(p, bytes ? bytes : 1, cudaHostAllocPortable));
    return rc ? err_set(e, HONE_ERESOURCE, "no pinned memory for %.1f MiB: %s", (double)bytes / 0x1p20, last_error) : 0;
}

static void host_free(void *p)
{
    if (p)
        cudaFreeHost(p);
    cudaGetLastError();
}

/* ---- what blocks that waited too long have left (wait.cuh) */

static _Atomic(struct cuda_late *) lates[MAX_DEVICES];
static struct {
    pthread_mutex_t mutex;
    char text[MAX_DEVICES][160]; /* what was told first: the node may be gone when it is told again */
} told = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct cuda_late *cuda_late(int device)
{
    return atomic_load(&lates[device]);
}

/* A few bytes that stay until the process ends. */
static int late_open(int device, struct hone_error *e)
{
    void *p = NULL;
    struct cuda_late *none = NULL;
    if (cuda_late(device))
        return 0;
    int rc = failed(cudaHostAlloc(&p, sizeof *none, cudaHostAllocPortable | cudaHostAllocMapped), device,
                    "memory that kernels report to", e);
    if (rc)
        return rc;
    memset(p, 0, sizeof *none);
    if (!atomic_compare_exchange_strong(&lates[device], &none, p))
        cudaFreeHost(p); /* another thread was first */
    return 0;
}

static int late_check(int device, struct hone_error *e)
{
    const struct cuda_late *l = cuda_late(device);
    if (!l || !__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE))
        return 0;
    pthread_mutex_lock(&told.mutex);
    char *text = told.text[device];
    if (!text[0])
        snprintf(text, sizeof told.text[device], "cuda%d: node %.63s: a block waited %d s for block %u of its kernel", device,
                 (const char *)(uintptr_t)l->where, CUDA_LATE_MS / 1000, l->block);
    pthread_mutex_unlock(&told.mutex);
    return err_set(e, HONE_EFAULT, "%s", text);
}

/* ---- streams */

/* A word of the environment that nobody reads as anything would be taken for a setting that was measured. */
static int settings_check(struct hone_error *e)
{
    static const struct {
        const char *name, *words;
    } settings[] = {{"HONE_CUDA_OVERLAP", "0 1"}, {"HONE_CUDA_STREAM", "0 1 small"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *word = getenv(settings[i].name);
        bool known = !word || !*word;
        for (const char *w = settings[i].words; *w && !known; w += strcspn(w, " "), w += strspn(w, " "))
            known = strcspn(w, " ") == strlen(word) && !strncmp(w, word, strlen(word));
        if (!known)
            return err_set(e, HONE_EUSAGE, "%s=%.60s: %s are possible", settings[i].name, word, settings[i].words);
    }
    return 0;
}

static int stream_create(int device, void **stream, struct hone_error *e)
{
    cudaStream_t s = NULL;
    int rc = settings_check(e);
    *stream = NULL;
    rc = rc ? rc : select_device(device, e);
    if (!rc)
        rc = late_open(device, e);
    if (!rc)
        rc = failed(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), device, "a stream", e);
    *stream = s;
    return rc;
}

static void stream_free(int device, void *stream)
{
    if (stream && cudaSetDevice(device) == cudaSuccess)
        cudaStreamDestroy(stream);
    cudaGetLastError();
}

static int copy(int device, void *stream, void *to, const void *from, size_t bytes, struct hone_error *e)
{
    int rc = select_device(device, e);
    return rc || !bytes ? rc : failed(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), device, "a copy", e);
}

static int fill(int device, void *stream, void *to, int byte, size_t bytes, struct hone_error *e)
{
    int rc = select_device(device, e);
    return rc || !bytes ? rc : failed(cudaMemsetAsync(to, byte, bytes, stream), device, "a fill", e);
}

static int synchronise(int device, void *stream, struct hone_error *e)
{
    int rc = select_device(device, e);
    if (!rc)
        rc = failed(cudaStreamSynchronize(stream), device, "what it was given to do", e);
    return rc ? rc : late_check(device, e);
}

/* ---- captures */

static int capture_begin(int device, void *stream, struct hone_error *e)
{
    int rc = select_device(device, e);
    return rc ? rc : failed(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), device, "a capture", e);
}

static int capture_end(int device, void *stream, void **out, struct hone_error *e)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    *out = NULL;
    int rc = failed(cudaStreamEndCapture(stream, &graph), device, "the end of a capture", e);
    if (!rc)
        rc = failed(cudaGraphInstantiate(&made, graph, 0), device, "what was captured", e);
    if (!rc) { /* now, and not at its first replay, when other ranks may wait for this one */
        rc = failed(cudaGraphUpload(made, stream), device, "what was captured", e);
        if (rc)
            cudaGraphExecDestroy(made);
    }
    if (graph)
        cudaGraphDestroy(graph);
    if (!rc)
        *out = made;
    return rc;
}

static int replay(int device, void *stream, void *graph, struct hone_error *e)
{
    int rc = select_device(device, e);
    return rc ? rc : failed(cudaGraphLaunch(graph, stream), device, "a replay", e);
}

static void graph_free(int device, void *graph)
{
    if (graph && cudaSetDevice(device) == cudaSuccess)
        cudaGraphExecDestroy(graph);
    if (graph)
        cudaGetLastError();
}

/* ---- time */

/* A pair of events a thread and device; a few bytes that stay until the process ends. */
static _Thread_local cudaEvent_t events[MAX_DEVICES][2];

static int timer_start(int device, void *stream, struct hone_error *e)
{
    int rc = select_device(device, e);
    for (int i = 0; i < 2 && !rc; i++)
        if (!events[device][i])
            rc = failed(cudaEventCreate(&events[device][i]), device, "an event", e);
    return rc ? rc : failed(cudaEventRecord(events[device][0], stream), device, "an event", e);
}

static int timer_stop(int device, void *stream, int64_t *ns, struct hone_error *e)
{
    float ms = 0;
    int rc = failed(cudaEventRecord(events[device][1], stream), device, "an event", e);
    if (!rc)
        rc = failed(cudaEventSynchronize(events[device][1]), device, "what it was given to do", e);
    if (!rc)
        rc = failed(cudaEventElapsedTime(&ms, events[device][0], events[device][1]), device, "an event", e);
    *ns = (int64_t)((double)ms * 1e6);
    return rc ? rc : late_check(device, e);
}

static int read_rate(int device, double *bytes_per_second, struct hone_error *e)
{
    int rc = cuda_read_rate(device, bytes_per_second);
    return rc ? err_set(e, rc, "cuda%d: its read rate: %s", device, last_error) : 0;
}

/* ---- copies between places */

static int transfer(const struct exec *x, const struct node *n)
{
    size_t bytes = tensor_nbytes(n->src[0]);
    return bytes ? cuda_code(cudaMemcpyAsync(n->out->data, n->src[0]->data, bytes, cudaMemcpyDefault, x->stream)) : 0;
}

static const struct kernel copy_transfer = {.op = OP_COPY, .variant = "transfer", .run = transfer};

static const struct device_api api = {
    .select = select_device,
    .alloc = device_alloc,
    .free = device_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .stream_create = stream_create,
    .stream_free = stream_free,
    .copy = copy,
    .fill = fill,
    .synchronise = synchronise,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .graph_free = graph_free,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
    .read_rate = read_rate,
    .why = cuda_why,
    .transfer = &copy_transfer,
    .modules = &cuda_modules,
    .links = &cuda_links,
    .wholes = &cuda_wholes,
};

const struct backend backend_cuda = {
    .name = "cuda",
    .api = &api,
    .n_devices = n_devices,
    .device = device_describe,
    .features = features,
    .feature_name = feature_name,
    .kernels = kernels,
};
