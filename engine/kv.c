/* kv.c: cells and their map. The free cells are a stack filled so that a lone sequence gets cells 0, 1, 2 ... in order: its keys
 * then lie one behind the other, and a kernel streams them. Physical memory comes on first touch, so a long context costs
 * nothing until it is used; the need is checked all the same, before anything is allocated.
 *
 * A cache may have eight formats, those for which every kernel that writes or reads it has vector code. Others that can be packed are
 * refused: a K-quant searches for its scales, at each step and in scalar code, and nobody would see why that is slow. */
#include "engine/kv.h"

#include "base/mmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum format_id formats[] = {FORMAT_F32,  FORMAT_F16,  FORMAT_BF16, FORMAT_Q8_0,
                                         FORMAT_Q5_1, FORMAT_Q5_0, FORMAT_Q4_1, FORMAT_Q4_0};
enum { N_KV_FORMATS = sizeof formats / sizeof *formats };

const char *kv_format_names(void)
{
    return "f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0";
}

int kv_format(const char *name, const char *flag, enum format_id *out, struct hone_error *e)
{
    enum format_id id;
    if (format_by_name(name, &id))
        return err_set(e, HONE_EUSAGE, "%s %.40s: no such format; a cache may be %s", flag, name, kv_format_names());
    for (int i = 0; i < N_KV_FORMATS; i++)
        if (formats[i] == id) {
            *out = id;
            return 0;
        }
    return err_set(e, HONE_EUSAGE, "%s %.40s: no format for a cache, which may be %s", flag, name, kv_format_names());
}

static size_t row_bytes(enum format_id f, int32_t n)
{
    return format_row_bytes(format_get(f), n);
}

static size_t layer_bytes(const struct layer_memory *y, enum format_id k, enum format_id v)
{
    return (size_t)y->n_kv_head * (row_bytes(k, y->head_dim_k) + row_bytes(v, y->head_dim_v));
}

size_t kv_bytes(const struct model *m, enum format_id k, enum format_id v, int64_t n_cells)
{
    size_t bytes = 0;
    for (int i = 0; i < m->n_layer; i++)
        bytes += layer_bytes(&m->memory[i], k, v);
    return bytes * (size_t)n_cells;
}

void kv_bytes_at(const struct model *m, enum format_id k, enum format_id v, int64_t n_cells, const struct places *places,
                 size_t bytes[MAX_PLACES])
{
    memset(bytes, 0, MAX_PLACES * sizeof *bytes);
    for (int i = 0; i < m->n_layer; i++)
        bytes[places ? places->kv[i] : 0] += layer_bytes(&m->memory[i], k, v) * (size_t)n_cells;
}

/* Heads are whole blocks in every layer. */
static int check_format(const struct model *m, enum format_id id, bool values, struct hone_error *e)
{
    const struct format *f = format_get(id);
    for (int i = 0; i < m->n_layer; i++) {
        int32_t dim = values ? m->memory[i].head_dim_v : m->memory[i].head_dim_k;
        if (dim % f->block)
            return err_set(e, HONE_EUSAGE, "%s cannot be kept as %s (%s): layer %d has heads of %d, no multiple of its block of %d; f32, f16 and bf16 "
                           "take heads of any size", values ? "values" : "keys", f->name, values ? "-ctv" : "-ctk", i, dim, f->block);
    }
    return 0;
}

/* What is kept for a cell beside its keys and values: a place in the map, its users, one on the list of free ones. */
enum { CELL_BOOKS = 3 * sizeof(int32_t), FORESEEN = 64 /* positions */ };

/* Whether the host has room for its layers. */
static int check_room(const struct kv *kv, size_t per_position, size_t promised, struct hone_error *e)
{
    size_t available = pages_available();
    if (available)
        available = available > promised ? available - promised : 1;
    if ((int64_t)kv->n_ctx * kv->n_seq > INT32_MAX)
        return err_set(e, HONE_EUSAGE, "a context of %d for %d sequences is more than 2^31 cells", kv->n_ctx, kv->n_seq);
    if (!available || (size_t)kv->n_ctx <= available / per_position)
        return 0;
    return err_set(e, HONE_ERESOURCE,
                   "the KV cache needs %.1f GiB for a context of %d (%d sequence(s), %s and %s); %.1f GiB are available, "
                   "enough for a context of %zu (-c)",
                   (double)per_position * kv->n_ctx / 0x1p30, kv->n_ctx, kv->n_seq, format_get(kv->format_k)->name,
                   format_get(kv->format_v)->name, (double)available / 0x1p30, available / per_position);
}

/* Zeroed memory of a device. */
static int device_memory(struct buffer *b, const struct place *at, size_t bytes, struct hone_error *e)
{
    const struct device_api *api = at->backend->api;
    *b = (struct buffer){.backend = at->backend, .device = at->device, .bytes = bytes};
    int rc = api->alloc(at->device, bytes, &b->data, e);
    if (!rc)
        rc = api->fill(at->device, NULL, b->data, 0, bytes, e);
    return rc ? rc : api->synchronise(at->device, NULL, e);
}

/* The cells and the map of each device that has layers. */
static int devices_create(struct kv *kv, const size_t bytes[MAX_PLACES], struct hone_error *e)
{
    const struct placement none = {.n = 1}, *p = kv->places ? &kv->places->placement : &none;
    size_t map = (size_t)kv->n_cells * sizeof *kv->map;
    for (int i = 1; i < p->n; i++) {
        if (!bytes[i])
            continue;
        int rc = device_memory(&kv->cells[i], &p->list[i], bytes[i], e);
        if (rc)
            return err_prefix(e, "the KV cache of %.1f GiB for a context of %d", (double)bytes[i] / 0x1p30, kv->n_ctx);
        rc = device_memory(&kv->maps[i], &p->list[i], map, e);
        if (rc)
            return rc;
        struct tensor *t = &kv->map_twins[kv->n_twins];
        tensor_shape(t, FORMAT_I32, 2, (int64_t[]){kv->n_ctx, kv->n_seq});
        t->kind = TENSOR_STATE;
        t->buffer = &kv->maps[i];
        t->data = kv->maps[i].data;
        snprintf(t->name, sizeof t->name, "kv_map@%s%d", p->list[i].backend->name, p->list[i].device);
        if (kv->n_twins++)
            t[-1].twin = t;
    }
    return 0;
}

/* The host's own memory. The map is copied to devices at every step, so it is theirs to pin where there are any. */
static int host_create(struct kv *kv, const struct model *m, struct hone_error *e)
{
    size_t cells = (size_t)kv->n_cells, layers = (size_t)m->n_layer;
    void *map = NULL;
    kv->memory = pages_alloc(kv->host_bytes);
    kv->length = calloc((size_t)kv->n_seq, sizeof *kv->length);
    kv->changed = calloc(2 * (size_t)kv->n_seq, sizeof *kv->changed);
    kv->ahead = calloc((size_t)kv->n_seq, sizeof *kv->ahead);
    kv->users = calloc(cells, sizeof *kv->users);
    kv->free_list = calloc(cells, sizeof *kv->free_list);
    kv->tensors = calloc(2 * layers, sizeof *kv->tensors);
    kv->k = calloc(layers, sizeof *kv->k);
    kv->v = calloc(layers, sizeof *kv->v);
    if (kv->n_twins) {
        int rc = kv->places->placement.list[1].backend->api->host_alloc(cells * sizeof *kv->map, &map, e);
        if (rc)
            return rc;
        memset(map, 0, cells * sizeof *kv->map);
    }
    kv->map = map ? map : calloc(cells, sizeof *kv->map);
    if (!kv->memory || !kv->map || !kv->length || !kv->changed || !kv->ahead || !kv->users || !kv->free_list || !kv->tensors || !kv->k || !kv->v)
        return err_set(e, HONE_ERESOURCE, "no memory for a KV cache of %.1f GiB", (double)kv->bytes / 0x1p30);
    return 0;
}

static void place_tensors(struct kv *kv, const struct model *m)
{
    char *next[MAX_PLACES] = {kv->memory};
    for (int i = 1; i < MAX_PLACES; i++)
        next[i] = kv->cells[i].data;
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer_memory *y = &m->memory[i];
        int at = kv->places ? kv->places->kv[i] : 0;
        if (!y->n_kv_head)
            continue;
        for (int j = 0; j < 2; j++) {
            struct tensor *t = &kv->tensors[2 * i + j];
            tensor_shape(t, j ? kv->format_v : kv->format_k, 3, (int64_t[]){j ? y->head_dim_v : y->head_dim_k, kv->n_cells, y->n_kv_head});
            t->kind = TENSOR_STATE;
            t->buffer = at ? &kv->cells[at] : NULL;
            t->data = next[at];
            snprintf(t->name, sizeof t->name, "cache_%c-%d", j ? 'v' : 'k', i);
            next[at] += tensor_nbytes(t);
            *(j ? &kv->v[i] : &kv->k[i]) = t;
        }
    }
}

int kv_create(struct kv *kv, const struct model *m, int32_t n_ctx, int32_t n_seq, enum format_id k, enum format_id v, size_t promised,
              const struct places *places, struct hone_error *e)
{
    size_t bytes[MAX_PLACES];
    *kv = (struct kv){.n_ctx = n_ctx, .n_seq = n_seq, .format_k = k, .format_v = v, .places = places};
    int rc = check_format(m, k, false, e);
    if (!rc)
        rc = check_format(m, v, true, e);
    kv_bytes_at(m, k, v, n_seq, places, bytes);
    if (!rc)
        rc = check_room(kv, bytes[0] + CELL_BOOKS * (size_t)n_seq, promised, e);
    if (rc)
        return rc;
    kv->n_cells = n_ctx * n_seq;
    kv_bytes_at(m, k, v, kv->n_cells, places, bytes);
    kv->host_bytes = bytes[0];
    for (int i = 0; i < MAX_PLACES; i++)
        kv->bytes += bytes[i];
    rc = devices_create(kv, bytes, e);
    if (!rc)
        rc = host_create(kv, m, e);
    if (rc) {
        kv_free(kv);
        return rc;
    }
    kv->n_free = kv->n_cells;
    for (int32_t i = 0; i < kv->n_cells; i++)
        kv->free_list[i] = kv->n_cells - 1 - i;
    place_tensors(kv, m);
    return 0;
}

void kv_free(struct kv *kv)
{
    if (kv->n_twins && kv->map)
        kv->places->placement.list[1].backend->api->host_free(kv->map);
    else
        free(kv->map);
    for (int i = 1; i < MAX_PLACES; i++) {
        if (kv->cells[i].data)
            kv->cells[i].backend->api->free(kv->cells[i].device, kv->cells[i].data);
        if (kv->maps[i].data)
            kv->maps[i].backend->api->free(kv->maps[i].device, kv->maps[i].data);
    }
    pages_free(kv->memory, kv->host_bytes);
    free(kv->length);
    free(kv->changed);
    free(kv->ahead);
    free(kv->users);
    free(kv->free_list);
    free(kv->tensors);
    free(kv->k);
    free(kv->v);
    *kv = (struct kv){0};
}

static void change(struct kv *kv, int32_t seq, int32_t from, int32_t to)
{
    int32_t *c = kv->changed + 2 * (int64_t)seq;
    bool none = c[0] == c[1];
    c[0] = none || from < c[0] ? from : c[0];
    c[1] = none || to > c[1] ? to : c[1];
    kv->ahead[seq] = 0;
}

/* n entries of the map, from `first` on, to the twins of one rank. */
static int twins_upload(const struct kv *to, const int32_t *map, size_t first, size_t n, struct hone_error *e)
{
    int rc = 0;
    for (int i = 1; to->n_twins && i < to->places->placement.n && !rc; i++) {
        const struct place *at = &to->places->placement.list[i];
        if (to->maps[i].data)
            rc = at->backend->api->copy(at->device, at->stream, (int32_t *)to->maps[i].data + first, map + first, n * sizeof *map, e);
    }
    return rc;
}

/* Writes the cells that seq will get next, if no other takes them, behind its length. Returns the position behind them. */
static int32_t foresee(struct kv *kv, int32_t seq)
{
    int32_t length = kv->length[seq], n = kv->n_ctx - length < FORESEEN ? kv->n_ctx - length : FORESEEN;
    n = n < kv->n_free ? n : kv->n_free;
    for (int32_t i = 0; i < n; i++)
        kv->map[(int64_t)seq * kv->n_ctx + length + i] = kv->free_list[kv->n_free - 1 - i];
    return length + n;
}

int kv_upload(struct kv *kv, struct hone_error *e)
{
    int rc = 0;
    if (!kv->n_twins && !kv->also)
        return 0;
    for (int32_t q = 0; q < kv->n_seq; q++) {
        int32_t *c = kv->changed + 2 * (int64_t)q;
        if (c[0] == c[1])
            continue;
        int32_t end = c[1] == kv->length[q] ? foresee(kv, q) : c[1];
        size_t first = (size_t)q * (size_t)kv->n_ctx + (size_t)c[0], n = (size_t)(end - c[0]);
        for (const struct kv *to = kv; to && !rc; to = to->also)
            rc = twins_upload(to, kv->map, first, n, e);
        if (!rc) {
            c[0] = c[1] = 0;
            kv->ahead[q] = end;
        }
    }
    return rc;
}

void kv_changed(struct kv *kv)
{
    for (int32_t q = 0; q < kv->n_seq; q++)
        change(kv, q, 0, kv->length[q]);
}

/* The next position's cell. */
static void set(struct kv *kv, int32_t seq, int32_t cell)
{
    int32_t at = kv->length[seq]++, *entry = &kv->map[(int64_t)seq * kv->n_ctx + at];
    if (at >= kv->ahead[seq] || *entry != cell)
        change(kv, seq, at, at + 1);
    *entry = cell;
}

int32_t kv_append(struct kv *kv, int32_t seq)
{
    INVARIANT(kv->n_free > 0 && kv->length[seq] < kv->n_ctx);
    int32_t cell = kv->free_list[--kv->n_free];
    kv->users[cell] = 1;
    set(kv, seq, cell);
    return cell;
}

int32_t kv_append_shared(struct kv *kv, int32_t seq, int32_t cell)
{
    INVARIANT(kv->users[cell] > 0 && kv->length[seq] < kv->n_ctx);
    kv->users[cell]++;
    set(kv, seq, cell);
    return cell;
}

void kv_truncate(struct kv *kv, int32_t seq, int32_t length)
{
    while (kv->length[seq] > length) {
        int32_t cell = kv->map[(int64_t)seq * kv->n_ctx + --kv->length[seq]];
        if (--kv->users[cell] == 0)
            kv->free_list[kv->n_free++] = cell;
    }
}

void kv_fork(struct kv *kv, int32_t from, int32_t to)
{
    if (from == to)
        return;
    kv_truncate(kv, to, 0);
    const int32_t *source = kv->map + (int64_t)from * kv->n_ctx;
    for (int32_t p = 0; p < kv->length[from]; p++)
        kv->users[source[p]]++;
    memcpy(kv->map + (int64_t)to * kv->n_ctx, source, (size_t)kv->length[from] * sizeof *source);
    kv->length[to] = kv->length[from];
    change(kv, to, 0, kv->length[to]);
}
