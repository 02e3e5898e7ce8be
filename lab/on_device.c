/* on_device.c: see on_device.h. Every region has memory of its own there, too, with the guards' bytes around it: the planner's
 * one block would put the next value where the guard is. */
#include "lab/on_device.h"

#include "comm/comm.h"
#include "lab/node_copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    FLUSH = 256 << 20,
    MEET_MS = 2000
}; /* five times the L2 of the largest device known; how long ranks that are launched together wait for each other */

static const struct device_api *api_of(const struct on_device *d)
{
    return d->backend->api;
}

static int mirror(struct on_device *d, const struct region *r, struct hone_error *e)
{
    void *bytes;
    if (d->n_mirrors == ON_DEVICE_MIRRORS)
        return err_set(e, HONE_EFAULT, "a case of more than %d tensors", ON_DEVICE_MIRRORS);
    int rc = api_of(d)->alloc(d->device, r->size, &bytes, e);
    if (rc)
        return rc;
    d->mirrors[d->n_mirrors].region = r;
    d->mirrors[d->n_mirrors++].bytes = bytes;
    return 0;
}

static void place(void *user, struct tensor *copy, const struct tensor *of)
{
    struct on_device *d = user;
    const struct tensor *root = of->base ? of->base : of;
    copy->data = NULL;
    for (int i = 0; i < d->n_mirrors && of->data; i++)
        if (d->mirrors[i].region->tensor == root)
            copy->data = d->mirrors[i].bytes + ((const unsigned char *)of->data - d->mirrors[i].region->bytes);
}

static int open_one(struct on_device *d, const struct backend *b, int device, const struct specimen *s,
                    const struct arrangement *a, size_t shared_bytes, struct hone_error *e)
{
    *d = (struct on_device){.backend = b, .device = device, .shared_bytes = shared_bytes};
    void *shared = NULL;
    int rc = b->api->stream_create(device, &d->stream, e);
    for (int i = 0; i < s->n_regions && !rc; i++)
        rc = mirror(d, &s->regions[i], e);
    for (int i = 0; i < a->n_regions && !rc; i++)
        rc = mirror(d, &a->regions[i], e);
    if (!rc && shared_bytes)
        rc = b->api->alloc(device, shared_bytes, &shared, e);
    d->shared = shared;
    d->node = rc ? NULL : node_copy(&d->arena, a->node, place, d);
    if (!rc && !d->node)
        rc = HONE_ERESOURCE;
    if (!rc)
        return 0;
    on_device_close(d);
    return err_set(e, rc, "no memory for case %s on the device", s->name);
}

static int open_others(struct on_device *d, const struct specimen *s, const struct arrangement *a, struct hone_error *e)
{
    int devices[SPECIMEN_RANKS];
    void *links[SPECIMEN_RANKS];
    for (int r = 0; r < SPECIMEN_RANKS; r++)
        devices[r] = d->device;
    d->others = calloc(SPECIMEN_RANKS - 1, sizeof *d->others);
    d->made = malloc(tensor_nbytes(d->node->src[0]) + sizeof *d->made);
    int rc = d->others && d->made ? 0 : err_set(e, HONE_ERESOURCE, "no memory for made-up ranks");
    for (int r = 1; r < SPECIMEN_RANKS && !rc; r++)
        rc = open_one(&d->others[r - 1], d->backend, d->device, s, a, d->shared_bytes, e);
    if (!rc)
        rc = api_of(d)->links->create(links, devices, SPECIMEN_RANKS, MEET_MS, NULL, e);
    for (int r = 0; r < SPECIMEN_RANKS && !rc; r++)
        *(r ? &d->others[r - 1].link : &d->link) = links[r];
    return rc;
}

int on_device_open(struct on_device *d, const struct backend *b, int device, const struct specimen *s,
                   const struct arrangement *a, size_t shared_bytes, struct hone_error *e)
{
    int rc = open_one(d, b, device, s, a, shared_bytes, e);
    if (!rc && node_collective(a->node) && b->api->links)
        rc = open_others(d, s, a, e);
    if (rc)
        on_device_close(d);
    return rc;
}

void on_device_close(struct on_device *d)
{
    for (int r = 1; r < SPECIMEN_RANKS && d->others; r++)
        on_device_close(&d->others[r - 1]);
    free(d->others);
    free(d->made);
    if (d->link)
        api_of(d)->links->free(d->link);
    for (int i = 0; i < d->n_mirrors; i++)
        api_of(d)->free(d->device, d->mirrors[i].bytes);
    if (d->backend) {
        api_of(d)->free(d->device, d->shared);
        api_of(d)->free(d->device, d->flush);
        api_of(d)->stream_free(d->device, d->stream);
    }
    arena_free(&d->arena);
    memset(d, 0, sizeof *d);
}

static int load_one(struct on_device *d, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < d->n_mirrors && !rc; i++)
        rc = api_of(d)->copy(d->device, d->stream, d->mirrors[i].bytes, d->mirrors[i].region->bytes, d->mirrors[i].region->size,
                             e);
    if (!rc && d->shared_bytes)
        rc = api_of(d)->fill(d->device, d->stream, d->shared, REGION_NOTHING, d->shared_bytes, e);
    return rc ? rc : api_of(d)->synchronise(d->device, d->stream, e);
}

int on_device_load(struct on_device *d, struct hone_error *e)
{
    int rc = load_one(d, e);
    for (int r = 1; r < SPECIMEN_RANKS && d->others && !rc; r++) {
        struct on_device *o = &d->others[r - 1];
        size_t bytes = tensor_nbytes(o->node->src[0]);
        rc = load_one(o, e);
        comm_rehearsal_values(r, (bytes + sizeof(float) - 1) / sizeof(float), d->made);
        if (!rc)
            rc = api_of(d)->copy(o->device, o->stream, o->node->src[0]->data, d->made, bytes, e);
        if (!rc)
            rc = api_of(d)->synchronise(o->device, o->stream, e);
    }
    return rc;
}

/* One rank's; alone: it meets nobody. */
static int launch_one(struct on_device *d, const struct kernel *k, bool alone, struct hone_error *e)
{
    struct exec x = {.worker = {.ith = 0, .nth = 1},
                     .shared = d->shared,
                     .stream = d->stream,
                     .device = d->device,
                     .link = alone ? NULL : d->link};
    int rc = api_of(d)->select(d->device, e);
    if (rc)
        return rc;
    rc = k->run(&x, d->node);
    return rc ? err_set(e, rc, "%s", api_of(d)->why()) : 0;
}

/* All ranks. Where one cannot be launched, those that were do not wait for it. */
static int launch(struct on_device *d, const struct kernel *k, struct hone_error *e)
{
    int rc = 0;
    for (int r = 1; r < SPECIMEN_RANKS && d->others && !rc; r++)
        rc = launch_one(&d->others[r - 1], k, false, e);
    if (!rc)
        rc = launch_one(d, k, false, e);
    if (rc && d->link)
        api_of(d)->links->abort(d->link);
    return rc;
}

/* Waits for all ranks, whatever becomes of one of them: what they use is freed behind this. */
static int settle(struct on_device *d, struct hone_error *e)
{
    int rc = api_of(d)->synchronise(d->device, d->stream, e);
    for (int r = 1; r < SPECIMEN_RANKS && d->others; r++) {
        int other = api_of(d)->synchronise(d->others[r - 1].device, d->others[r - 1].stream, e);
        rc = rc ? rc : other;
    }
    return rc || !d->link ? rc : api_of(d)->links->check(d->link, e);
}

/* A first launch may load the kernel, or make ready what a stream needs, and that may wait for what runs: so each rank runs
 * alone once before they meet, as those of a plan do (engine/ranks_device.c). What that wrote is put right again. */
static int warm(struct on_device *d, const struct kernel *k, struct hone_error *e)
{
    int rc = 0;
    for (int r = 0; r < SPECIMEN_RANKS && !rc; r++) {
        struct on_device *one = r ? &d->others[r - 1] : d;
        rc = launch_one(one, k, true, e);
        rc = rc ? rc : api_of(d)->synchronise(one->device, one->stream, e);
    }
    d->warm = !rc;
    return rc ? rc : on_device_load(d, e);
}

int on_device_run(struct on_device *d, const struct kernel *k, void *shared, struct hone_error *e)
{
    int rc = d->others && !d->warm ? warm(d, k, e) : 0;
    rc = rc ? rc : launch(d, k, e);
    int settled = settle(d, e);
    rc = rc ? rc : settled;
    for (int i = 0; i < d->n_mirrors && !rc; i++)
        rc = api_of(d)->copy(d->device, d->stream, d->mirrors[i].region->bytes, d->mirrors[i].bytes, d->mirrors[i].region->size,
                             e);
    if (!rc && shared && d->shared_bytes)
        rc = api_of(d)->copy(d->device, d->stream, shared, d->shared, d->shared_bytes, e);
    return rc ? rc : api_of(d)->synchronise(d->device, d->stream, e);
}

int on_device_time(struct on_device *d, const struct kernel *k, bool cold, int64_t *ns, struct hone_error *e)
{
    int rc = 0;
    void *flush = d->flush;
    if (cold && !flush) {
        rc = api_of(d)->alloc(d->device, FLUSH, &flush, e);
        d->flush = flush;
    }
    if (!rc && cold)
        rc = api_of(d)->fill(d->device, d->stream, d->flush, 0, FLUSH, e);
    if (!rc)
        rc = api_of(d)->timer_start(d->device, d->stream, e);
    if (!rc)
        rc = launch(d, k, e);
    if (!rc)
        rc = api_of(d)->timer_stop(d->device, d->stream, ns, e);
    return rc || !d->others ? rc : settle(d, e);
}

bool on_device_works(const struct backend *b, int device)
{
    struct hone_error ignored = {0};
    return !b->api->synchronise(device, NULL, &ignored);
}
