/* weights.c: packing weights in place of their mapped pages. One lock for all models: layouts change when a first plan is made,
 * seconds apart, while a held read side costs 20 ns a step. A copy a session was the alternative; it doubles the memory for
 * every second recipe, and an embedding that is also the head would then exist three times. */
#include "graph/weights.h"

#include "base/mmap.h"
#include "graph/slices.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t planning = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_ullong generation;

void weights_plan_begin(void)
{
    pthread_mutex_lock(&planning);
}

/* Of the host, where a weight is packed before it goes to a device: kept while plans are made. */
static struct {
    const struct backend *backend;
    void *bytes;
    size_t size;
} bounce;

static void bounce_free(void)
{
    if (bounce.bytes)
        bounce.backend->api->host_free(bounce.bytes);
    bounce.bytes = NULL;
    bounce.size = 0;
}

static int bounce_reserve(const struct backend *b, size_t size, struct hone_error *e)
{
    if (bounce.bytes && bounce.backend == b && bounce.size >= size)
        return 0;
    bounce_free();
    int rc = b->api->host_alloc(size, &bounce.bytes, e);
    bounce.backend = b;
    bounce.size = rc ? 0 : size;
    return rc;
}

void weights_plan_end(void)
{
    bounce_free();
    pthread_mutex_unlock(&planning);
}

void weights_hold(void)
{
    pthread_rwlock_rdlock(&lock);
}

void weights_release(void)
{
    pthread_rwlock_unlock(&lock);
}

uint64_t weights_generation(void)
{
    return atomic_load(&generation);
}

struct packing {
    const struct tensor *t;
    const struct layout *layout;
    const void *rows;
    void *to;
};

static void pack_share(void *arg, int ith, int nth)
{
    struct packing *p = arg;
    int64_t lo, hi, rows = p->t->ne[1] * p->t->ne[2] * p->t->ne[3];
    worker_range(&(struct worker){.ith = ith, .nth = nth}, rows, p->layout->grain, &lo, &hi);
    if (lo < hi)
        p->layout->pack(p->rows, p->to, p->t->ne[0], rows, lo, hi - lo);
}

static size_t file_bytes(const struct tensor *t)
{
    return format_row_bytes(format_get(t->format), t->ne[0]) * (size_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

static void drop_packed(struct tensor *t)
{
    if (t->packed_bytes)
        pages_free(t->data, t->packed_bytes);
    t->data = (void *)(uintptr_t)t->rows;
    t->layout = NULL;
    t->packed_bytes = 0;
}

/* rows: what was gathered of a slice and stays; NULL: nothing does. */
static void keep_rows(struct tensor *t, void *rows)
{
    if (t->slice->gathered)
        pages_free(t->slice->gathered, t->slice->bytes);
    t->slice->gathered = rows;
    t->rows = rows;
}

/* What a packed weight no longer needs: its mapped pages, or the rows that were gathered for it. */
static void forget_rows(struct tensor *t)
{
    if (t->slice && t->slice->gathered)
        keep_rows(t, NULL);
    else if (t->rows)
        pages_forget(t->rows, file_bytes(t));
}

static void *pack(const struct tensor *t, const struct layout *layout, const void *rows, size_t bytes, struct pool *pool)
{
    void *packed = pages_alloc(bytes);
    struct packing p = {t, layout, rows, packed};
    if (packed)
        pool_run(pool, pack_share, &p);
    return packed;
}

int weight_set_layout(struct tensor *t, const struct layout *layout, struct pool *pool, struct hone_error *e)
{
    if (t->layout == layout)
        return 0;
    bool gathers = t->slice && !t->rows;
    INVARIANT(t->kind == TENSOR_WEIGHT && (t->rows || gathers) && !t->base);
    void *packed = NULL, *gathered = NULL;
    size_t bytes = layout ? layout->bytes(t->ne[0], t->ne[1] * t->ne[2] * t->ne[3]) : 0;
    int rc = gathers ? slice_gather(t, pool, &gathered, e) : 0;
    if (!rc && layout && !(packed = pack(t, layout, gathers ? gathered : t->rows, bytes, pool)))
        rc = err_set(e, HONE_ERESOURCE, "no memory to pack weight %s as %s: %.1f MiB", t->name, layout->name, (double)bytes / 0x1p20);
    if (!rc) {
        pthread_rwlock_wrlock(&lock);
        if (!layout && gathers) {
            keep_rows(t, gathered);
            gathered = NULL;
        }
        drop_packed(t);
        if (layout) {
            t->data = packed;
            t->layout = layout;
            t->packed_bytes = bytes;
            forget_rows(t);
        }
        atomic_fetch_add(&generation, 1);
        pthread_rwlock_unlock(&lock);
    }
    if (gathered)
        pages_free(gathered, t->slice->bytes);
    return rc;
}

int weight_settle(struct tensor *t, struct pool *pool, struct hone_error *e)
{
    void *rows;
    if (t->data)
        return 0;
    int rc = slice_gather(t, pool, &rows, e);
    if (rc)
        return rc;
    pthread_rwlock_wrlock(&lock);
    keep_rows(t, rows);
    t->data = rows;
    pthread_rwlock_unlock(&lock);
    return 0;
}

/* ---- on devices */

enum { TWIN_SLACK = 512 }; /* behind each: kernels read whole vectors */

struct tensor *weight_twin(const struct tensor *t, const struct backend *b, int device)
{
    for (struct tensor *twin = t->twin; twin; twin = twin->twin)
        if (twin->buffer->backend == b && twin->buffer->device == device)
            return twin;
    return NULL;
}

/* A twin without memory, not yet in the list. */
static struct tensor *twin_make(const struct tensor *t, const struct backend *b, int device)
{
    struct tensor *twin = calloc(1, sizeof *twin);
    struct buffer *buffer = calloc(1, sizeof *buffer);
    if (!twin || !buffer) {
        free(twin);
        free(buffer);
        return NULL;
    }
    *twin = *t;
    *buffer = (struct buffer){.backend = b, .device = device};
    twin->buffer = buffer;
    twin->layout = NULL;
    twin->data = NULL;
    twin->packed_bytes = 0;
    twin->twin = NULL;
    return twin;
}

static void twin_free(struct tensor *twin)
{
    if (!twin)
        return;
    twin->buffer->backend->api->free(twin->buffer->device, twin->buffer->data);
    free(twin->buffer);
    free(twin);
}

static void copy_share(void *arg, int ith, int nth)
{
    struct packing *p = arg;
    int64_t lo, hi;
    worker_range(&(struct worker){.ith = ith, .nth = nth}, (int64_t)file_bytes(p->t), 1 << 20, &lo, &hi);
    if (lo < hi)
        memcpy((char *)p->to + lo, (const char *)p->rows + lo, (size_t)(hi - lo));
}

/* As fresh pages are: a layout may leave gaps. */
static void zero_share(void *arg, int ith, int nth)
{
    struct packing *p = arg;
    int64_t lo, hi;
    size_t bytes = p->layout->bytes(p->t->ne[0], p->t->ne[1] * p->t->ne[2] * p->t->ne[3]);
    worker_range(&(struct worker){.ith = ith, .nth = nth}, (int64_t)bytes, 1 << 20, &lo, &hi);
    if (lo < hi)
        memset((char *)p->to + lo, 0, (size_t)(hi - lo));
}

static void all_shares(struct pool *pool, pool_fn *fn, struct packing *p)
{
    if (pool)
        pool_run(pool, fn, p);
    else
        fn(p, 0, 1);
}

/* What the device shall have, from these rows into the bounce buffer. */
static void fill_bounce(const struct tensor *t, const struct layout *layout, const void *rows, struct pool *pool)
{
    struct packing p = {t, layout, rows, bounce.bytes};
    if (layout)
        all_shares(pool, zero_share, &p);
    all_shares(pool, layout ? pack_share : copy_share, &p);
}

int weight_place(struct tensor *t, const struct backend *b, int device, const struct layout *layout, struct pool *pool,
                 struct tensor **out, struct hone_error *e)
{
    const struct device_api *api = b->api;
    struct tensor *old = weight_twin(t, b, device), *twin = old;
    *out = old;
    if (old && old->layout == layout)
        return 0;
    size_t bytes = layout ? layout->bytes(t->ne[0], t->ne[1] * t->ne[2] * t->ne[3]) : file_bytes(t);
    void *memory = NULL, *gathered = NULL;
    bool gathers = t->slice && !t->rows;
    INVARIANT(t->kind == TENSOR_WEIGHT && (t->rows || gathers) && !t->base && !t->buffer);
    if (!twin && !(twin = twin_make(t, b, device)))
        return err_set(e, HONE_ERESOURCE, "no memory for a twin of weight %s", t->name);
    int rc = gathers ? slice_gather(t, pool, &gathered, e) : 0;
    if (!rc)
        rc = bounce_reserve(b, bytes, e);
    if (!rc)
        rc = api->alloc(device, bytes + TWIN_SLACK, &memory, e);
    if (!rc) {
        fill_bounce(t, layout, gathers ? gathered : t->rows, pool);
        rc = api->copy(device, NULL, memory, bounce.bytes, bytes, e);
    }
    if (!rc)
        rc = api->synchronise(device, NULL, e);
    if (gathered)
        pages_free(gathered, t->slice->bytes);
    if (rc) {
        api->free(device, memory);
        if (!old)
            twin_free(twin);
        return err_prefix(e, "weight %s", t->name);
    }
    if (t->rows && !(t->slice && t->slice->gathered)) /* what was gathered is nowhere else */
        pages_forget(t->rows, file_bytes(t));
    pthread_rwlock_wrlock(&lock);
    api->free(device, twin->buffer->data);
    *twin->buffer = (struct buffer){b, device, memory, bytes};
    twin->data = memory;
    twin->layout = layout;
    if (old) {
        atomic_fetch_add(&generation, 1);
    } else {
        twin->twin = t->twin;
        t->twin = twin;
    }
    pthread_rwlock_unlock(&lock);
    *out = twin;
    return 0;
}

void weight_free(struct tensor *t)
{
    drop_packed(t);
    if (t->slice && t->slice->gathered) {
        keep_rows(t, NULL);
        t->data = NULL;
    }
    while (t->twin) {
        struct tensor *twin = t->twin;
        t->twin = twin->twin;
        twin_free(twin);
    }
}
