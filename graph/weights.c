/* weights.c: packing weights in place of their mapped pages. One lock for all models: layouts change when a first plan is made,
 * seconds apart, while a held read side costs 20 ns a step. A copy a session was the alternative; it doubles the memory for
 * every second recipe, and an embedding that is also the head would then exist three times. */
#include "graph/weights.h"

#include "base/mmap.h"
#include "graph/slices.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t planning = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_ullong generation;

void weights_plan_begin(void)
{
    pthread_mutex_lock(&planning);
}

void weights_plan_end(void)
{
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
        pages_forget(t->rows, format_row_bytes(format_get(t->format), t->ne[0]) * (size_t)(t->ne[1] * t->ne[2] * t->ne[3]));
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

void weight_free(struct tensor *t)
{
    drop_packed(t);
    if (t->slice && t->slice->gathered) {
        keep_rows(t, NULL);
        t->data = NULL;
    }
}
