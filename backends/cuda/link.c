/* link.c: see link.h. Makes and resets the memory that ranks on devices meet through, and says what their kernels report.
 *
 * Devices that reach each other are told to (a mapping once a pair and process; it stays). Ranks of one card need nothing.
 * Where one pair does not reach each other, all ends lie in the host's memory, since an end that half of the group cannot write
 * is of no use; that costs a trip over the bus each way and works with any two devices.
 *
 * Memory of CUDA's own IPC and NCCL were the alternatives: the first is for ranks of several processes, which meet over MPI at
 * the host here; the second brings its own order of sums, its own kernels, and no fusion. */
#include "backends/cuda/link.h"

#include <stdatomic.h>
#include <stdlib.h>

extern const struct backend backend_cuda;

struct group {
    atomic_int ends; /* not yet freed */
    int n;
    bool mapped; /* ends lie at the host */
    struct link_status *status;
};

struct end {
    struct link link;
    struct group *group;
    int device;
};

struct link link_of(const struct exec *x, const struct node *n)
{
    struct link l = {.size = 1};
    if (x->link)
        l = ((const struct end *)x->link)->link;
    l.where = (uint64_t)(uintptr_t)n->out->name;
    return l;
}

static int failed(cudaError_t error, int device, const char *what, struct hone_error *e)
{
    int rc = cuda_code(error);
    return rc ? err_set(e, rc, "cuda%d: %s: %s", device, what, backend_cuda.api->why()) : 0;
}

/* Whether each device can read and write each other's memory. */
static bool all_reach(const int *devices, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int can = devices[i] == devices[j];
            if (!can && cudaDeviceCanAccessPeer(&can, devices[i], devices[j]) != cudaSuccess)
                cudaGetLastError();
            if (!can)
                return false;
        }
    return true;
}

static int reach(const int *devices, int n, struct hone_error *e)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (devices[i] == devices[j])
                continue;
            cudaError_t error = cudaSetDevice(devices[i]);
            if (error == cudaSuccess)
                error = cudaDeviceEnablePeerAccess(devices[j], 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled) {
                cudaGetLastError();
                error = cudaSuccess;
            }
            if (error != cudaSuccess)
                return failed(error, devices[i], "access to another device's memory", e);
        }
    return 0;
}

static int end_memory(struct end *d, char **memory, struct hone_error *e)
{
    size_t bytes = link_end_bytes(d->link.size);
    void *end = NULL, *turns = NULL;
    cudaError_t error = cudaSetDevice(d->device);
    if (error == cudaSuccess)
        error = d->group->mapped ? cudaHostAlloc(&end, bytes, cudaHostAllocPortable | cudaHostAllocMapped)
                                 : cudaMalloc(&end, bytes);
    *memory = end;
    if (error == cudaSuccess)
        error = cudaMalloc(&turns, LINK_CHANNELS * sizeof(uint32_t));
    d->link.turns = turns;
    return failed(error, d->device, "memory for exchange between ranks", e);
}

/* As new: no turn was ever taken. */
static int end_clear(struct end *d, struct hone_error *e)
{
    char *mine = d->link.ends[d->link.rank];
    size_t bytes = link_end_bytes(d->link.size);
    cudaError_t error = cudaSetDevice(d->device);
    if (error == cudaSuccess && d->group->mapped)
        memset(mine, 0, bytes);
    else if (error == cudaSuccess)
        error = cudaMemset(mine, 0, bytes);
    if (error == cudaSuccess)
        error = cudaMemset(d->link.turns, 0, LINK_CHANNELS * sizeof(uint32_t));
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cudaStreamLegacy);
    return failed(error, d->device, "memory for exchange between ranks", e);
}

static int links_reset(void *const *links, int n, struct hone_error *e)
{
    int rc = 0;
    struct end *first = links[0];
    memset(first->group->status, 0, sizeof *first->group->status);
    for (int i = 0; i < n && !rc; i++)
        rc = end_clear(links[i], e);
    return rc;
}

static void link_free(void *link)
{
    struct end *d = link;
    if (!d)
        return;
    struct group *g = d->group;
    char *mine = d->link.ends[d->link.rank];
    if (cudaSetDevice(d->device) == cudaSuccess) {
        cudaFree(d->link.turns);
        if (mine && g->mapped)
            cudaFreeHost(mine);
        else
            cudaFree(mine);
    }
    cudaGetLastError();
    free(d);
    if (atomic_fetch_sub(&g->ends, 1) == 1) {
        if (g->status)
            cudaFreeHost(g->status);
        cudaGetLastError();
        free(g);
    }
}

/* Hardware queues that streams of one device are dealt to, as the driver reads it when it begins. hone asks for no more than
 * there are by default: 32 make every process begin 0.7 s later, and more so where several begin at once. */
static int queues(void)
{
    const char *word = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int n = word ? atoi(word) : 0;
    return n >= 1 && n <= 32 ? n : 8;
}

/* Ranks of the device that has most of them. */
static int most_on_one(const int *devices, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++) {
        int here = 0;
        for (int j = 0; j < n; j++)
            here += devices[j] == devices[i];
        most = here > most ? here : most;
    }
    return most;
}

static int refuse(const int *devices, int n, const char *how, struct hone_error *e)
{
    if (n < 1 || n > LINK_RANKS)
        return err_set(e, HONE_EUSAGE, "%d ranks on devices; 1 to %d can meet there", n, LINK_RANKS);
    if (how && strcmp(how, "peer") != 0 && strcmp(how, "mapped") != 0)
        return err_set(e, HONE_EUSAGE, "ranks on cuda devices meet by 'peer' or 'mapped', not by '%.40s'", how);
    /* A kernel that waits for another rank must not keep that rank's launches from the device, and the driver takes queues for
     * itself: four ranks of one device meet through eight, six did not. */
    int most = most_on_one(devices, n);
    if (most > 1 && 2 * most > queues())
        return err_set(e, HONE_EUSAGE,
                       "%d ranks on one device need %d queues there, and have %d: CUDA_DEVICE_MAX_CONNECTIONS=%d "
                       "in the environment gives them (32 at most)",
                       most, 2 * most, queues(), 2 * most);
    if (how && how[0] == 'p' && !all_reach(devices, n))
        return err_set(e, HONE_EUSAGE, "these devices do not reach each other's memory");
    return 0;
}

static int ends_make(void **links, struct group *g, const int *devices, int limit_ms, struct hone_error *e)
{
    char *memory[LINK_RANKS] = {NULL};
    int rc = 0;
    for (int r = 0; r < g->n && !rc; r++) {
        struct end *d = calloc(1, sizeof *d);
        if (!d)
            return err_set(e, HONE_ERESOURCE, "no memory for %d ranks", g->n);
        *d = (struct end){.group = g, .device = devices[r]};
        d->link = (struct link){.rank = r,
                                .size = g->n,
                                .limit_ms = (uint32_t)limit_ms,
                                .crowded = most_on_one(devices, g->n) > 1,
                                .status = g->status};
        atomic_fetch_add(&g->ends, 1);
        links[r] = d;
        rc = end_memory(d, &memory[r], e);
        d->link.ends[r] = memory[r];
    }
    for (int r = 0; r < g->n && !rc; r++)
        memcpy(((struct end *)links[r])->link.ends, memory, sizeof memory);
    return rc ? rc : links_reset(links, g->n, e);
}

static int links_create(void **links, const int *devices, int n, int limit_ms, const char *how, struct hone_error *e)
{
    memset(links, 0, (size_t)(n > 0 ? n : 0) * sizeof *links);
    int rc = refuse(devices, n, how, e);
    if (rc)
        return rc;
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, HONE_ERESOURCE, "no memory for %d ranks", n);
    void *status = NULL;
    g->n = n;
    g->mapped = how ? how[0] == 'm' : !all_reach(devices, n);
    atomic_store(&g->ends, 1); /* this call's own */
    if (!g->mapped)
        rc = reach(devices, n, e);
    if (!rc)
        rc = failed(cudaHostAlloc(&status, sizeof *g->status, cudaHostAllocPortable | cudaHostAllocMapped), devices[0],
                    "memory for exchange between ranks", e);
    g->status = status;
    if (!rc)
        rc = ends_make(links, g, devices, limit_ms, e);
    for (int r = 0; r < n && rc; r++) {
        link_free(links[r]);
        links[r] = NULL;
    }
    if (atomic_fetch_sub(&g->ends, 1) == 1) { /* nothing was made */
        if (status)
            cudaFreeHost(status);
        free(g);
    }
    return rc;
}

static const char *link_way(const void *link)
{
    return ((const struct end *)link)->group->mapped ? "mapped" : "peer";
}

static void link_abort(void *link)
{
    __atomic_store_n(&((struct end *)link)->group->status->stop, 1, __ATOMIC_RELEASE);
}

static int link_check(void *link, struct hone_error *e)
{
    const struct end *d = link;
    const struct link_status *s = d->group->status;
    if (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE))
        return 0;
    return link_told(s, d->group->n, d->link.limit_ms, e);
}

const struct link_api cuda_links = {
    .create = links_create, .free = link_free, .reset = links_reset, .abort = link_abort, .check = link_check, .way = link_way};
