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

static size_t cell_bytes(const struct model *m, enum format_id k, enum format_id v)
{
    size_t bytes = 0;
    for (int i = 0; i < m->n_layer; i++)
        bytes += (size_t)m->memory[i].n_kv_head * (row_bytes(k, m->memory[i].head_dim_k) + row_bytes(v, m->memory[i].head_dim_v));
    return bytes;
}

size_t kv_bytes(const struct model *m, enum format_id k, enum format_id v, int64_t n_cells)
{
    return cell_bytes(m, k, v) * (size_t)n_cells;
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
enum { CELL_BOOKS = 3 * sizeof(int32_t) };

int kv_create(struct kv *kv, const struct model *m, int32_t n_ctx, int32_t n_seq, enum format_id k, enum format_id v, size_t promised,
              struct hone_error *e)
{
    *kv = (struct kv){.n_ctx = n_ctx, .n_seq = n_seq, .format_k = k, .format_v = v};
    int rc = check_format(m, k, false, e);
    if (!rc)
        rc = check_format(m, v, true, e);
    if (rc)
        return rc;
    size_t per_position = (cell_bytes(m, k, v) + CELL_BOOKS) * (size_t)n_seq, available = pages_available();
    if (available)
        available = available > promised ? available - promised : 1;
    if ((int64_t)n_ctx * n_seq > INT32_MAX)
        return err_set(e, HONE_EUSAGE, "a context of %d for %d sequences is more than 2^31 cells", n_ctx, n_seq);
    if (available && (size_t)n_ctx > available / per_position)
        return err_set(e, HONE_ERESOURCE,
                       "the KV cache needs %.1f GiB for a context of %d (%d sequence(s), %s and %s); %.1f GiB are available, "
                       "enough for a context of %zu (-c)",
                       (double)per_position * n_ctx / 0x1p30, n_ctx, n_seq, format_get(k)->name, format_get(v)->name,
                       (double)available / 0x1p30, available / per_position);
    kv->n_cells = n_ctx * n_seq;
    size_t cells = (size_t)kv->n_cells, layers = (size_t)m->n_layer;
    kv->bytes = kv_bytes(m, k, v, kv->n_cells);
    kv->memory = pages_alloc(kv->bytes);
    kv->map = calloc(cells, sizeof *kv->map);
    kv->length = calloc((size_t)n_seq, sizeof *kv->length);
    kv->users = calloc(cells, sizeof *kv->users);
    kv->free_list = calloc(cells, sizeof *kv->free_list);
    kv->tensors = calloc(2 * layers, sizeof *kv->tensors);
    kv->k = calloc(layers, sizeof *kv->k);
    kv->v = calloc(layers, sizeof *kv->v);
    if (!kv->memory || !kv->map || !kv->length || !kv->users || !kv->free_list || !kv->tensors || !kv->k || !kv->v) {
        kv_free(kv);
        return err_set(e, HONE_ERESOURCE, "no memory for a KV cache of %.1f GiB", (double)per_position * n_ctx / 0x1p30);
    }
    kv->n_free = kv->n_cells;
    for (int32_t i = 0; i < kv->n_cells; i++)
        kv->free_list[i] = kv->n_cells - 1 - i;
    char *p = kv->memory;
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer_memory *y = &m->memory[i];
        if (!y->n_kv_head)
            continue;
        for (int j = 0; j < 2; j++) {
            struct tensor *t = &kv->tensors[2 * i + j];
            tensor_shape(t, j ? v : k, 3, (int64_t[]){j ? y->head_dim_v : y->head_dim_k, kv->n_cells, y->n_kv_head});
            t->kind = TENSOR_STATE;
            t->data = p;
            snprintf(t->name, sizeof t->name, "cache_%c-%d", j ? 'v' : 'k', i);
            p += tensor_nbytes(t);
            *(j ? &kv->v[i] : &kv->k[i]) = t;
        }
    }
    return 0;
}

void kv_free(struct kv *kv)
{
    pages_free(kv->memory, kv->bytes);
    free(kv->map);
    free(kv->length);
    free(kv->users);
    free(kv->free_list);
    free(kv->tensors);
    free(kv->k);
    free(kv->v);
    *kv = (struct kv){0};
}

int32_t kv_append(struct kv *kv, int32_t seq)
{
    INVARIANT(kv->n_free > 0 && kv->length[seq] < kv->n_ctx);
    int32_t cell = kv->free_list[--kv->n_free];
    kv->users[cell] = 1;
    kv->map[(int64_t)seq * kv->n_ctx + kv->length[seq]++] = cell;
    return cell;
}

int32_t kv_append_shared(struct kv *kv, int32_t seq, int32_t cell)
{
    INVARIANT(kv->users[cell] > 0 && kv->length[seq] < kv->n_ctx);
    kv->users[cell]++;
    kv->map[(int64_t)seq * kv->n_ctx + kv->length[seq]++] = cell;
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
}
