/* room.c: see room.h. The session's own rank and the others beside it (ranks.h) have one each. */
#include "engine/room.h"

#include "base/mmap.h"

#include <stdlib.h>
#include <string.h>

/* The first device's, which gives memory of the host; NULL: there is no device. */
static const struct device_api *device_api_of(const struct places *places)
{
    return places->placement.n > 1 ? places->placement.list[1].backend->api : NULL;
}

static void host_free(void *block, size_t bytes, const struct device_api *api)
{
    if (api)
        api->host_free(block);
    else
        pages_free(block, bytes);
}

static int host_block(struct room *r, const struct places *places, size_t bytes, struct hone_error *e)
{
    const struct device_api *api = device_api_of(places);
    void *block = NULL;
    if (!api)
        block = pages_alloc(bytes);
    else if (!api->host_alloc(bytes, &block, e))
        memset(block, 0, bytes);
    if (!block)
        return err_set(e, HONE_ERESOURCE, "no memory for a step's values: %.1f MiB", (double)bytes / 0x1p20);
    host_free(r->values, r->value_bytes, api);
    r->values = block;
    r->value_bytes = bytes;
    return 0;
}

static int device_block(struct places *places, int i, size_t bytes, struct hone_error *e)
{
    const struct place *at = &places->placement.list[i];
    struct buffer *b = &places->values[i];
    at->backend->api->free(at->device, b->data);
    b->data = NULL;
    b->bytes = 0;
    if (at->backend->api->alloc(at->device, bytes, &b->data, e)) {
        b->data = NULL;
        return err_prefix(e, "a step's values");
    }
    b->bytes = bytes;
    return 0;
}

static int scratch_block(struct room *r, size_t stride, int n_threads, struct hone_error *e)
{
    void *scratch = aligned_alloc(64, (stride + 64) * (size_t)n_threads);
    if (!scratch)
        return err_set(e, HONE_ERESOURCE, "no memory for scratch: %.1f MiB a thread", (double)stride / 0x1p20);
    free(r->scratch);
    r->scratch = scratch;
    r->scratch_stride = stride;
    r->n_threads = n_threads;
    return 0;
}

int room_reserve(struct room *r, struct places *places, const struct plan *p, int n_threads, struct hone_error *e)
{
    int rc = 0;
    for (int i = 1; p->placement && i < places->placement.n && !rc; i++)
        if (p->places[i].bytes > places->values[i].bytes)
            rc = device_block(places, i, p->places[i].bytes, e);
    if (!rc && p->value_bytes > r->value_bytes)
        rc = host_block(r, places, p->value_bytes, e);
    size_t stride = (p->scratch_bytes + 63) / 64 * 64;
    if (!rc && (stride > r->scratch_stride || !r->scratch))
        rc = scratch_block(r, stride, n_threads, e);
    return rc;
}

bool room_holds(const struct room *r, const struct places *places, const struct plan *p)
{
    bool holds = p->value_bytes <= r->value_bytes && r->scratch && p->scratch_bytes <= r->scratch_stride;
    for (int i = 1; p->placement && i < places->placement.n; i++)
        holds &= p->places[i].bytes <= places->values[i].bytes;
    return holds;
}

void room_bind(const struct room *r, const struct places *places, struct plan *p)
{
    if (p->block != r->values)
        plan_bind(p, r->values);
    for (int i = 1; p->placement && i < places->placement.n; i++)
        if (p->places[i].block.data != places->values[i].data)
            plan_bind_place(p, i, places->values[i].data);
}

size_t room_bytes(const struct room *r, const struct places *places)
{
    size_t bytes = r->value_bytes + r->scratch_stride * (size_t)r->n_threads;
    for (int i = 1; i < places->placement.n; i++)
        bytes += places->values[i].bytes;
    return bytes;
}

void room_free(struct room *r, const struct places *places)
{
    host_free(r->values, r->value_bytes, device_api_of(places));
    free(r->scratch);
    *r = (struct room){0};
}
