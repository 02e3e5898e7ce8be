/* attention.c: attention and writes into the cache gone wrong, each in one way. */
#include "poison.h"

#include <math.h>

#define ATTENTIONS(X)                                                                                                          \
    X(right)                                                                                                                   \
    X(window_off_by_one) /* one position too many */                                                                           \
    X(kv_head_mapping)   /* heads read KV heads in turn, not in groups */                                                      \
    X(last_token_missed) /* a token does not attend to itself */                                                               \
    X(first_token_missed)                                                                                                      \
    X(scale_missing)                                                                                                           \
    X(map_ignored)      /* takes cell and position for the same */                                                             \
    X(sequence_ignored) /* reads the first sequence's cells */

#define WRITES(X)                                                                                                              \
    X(write_right)                                                                                                             \
    X(cell_unchecked) /* writes a cell that the cache does not have */                                                         \
    X(heads_swapped)  /* the cache is [head_dim, n_kv_head, n_cells], it thinks */                                             \
    X(half_truncated) /* rounds halves toward zero */

#define FAULT(name) FAULT_##name,
enum fault { ATTENTIONS(FAULT) WRITES(FAULT) };
#undef FAULT

enum { MOST = 4096 };

static int fits(const struct hone_node *n, char *why, size_t size)
{
    if (n->n_src > 6 && n->src[6])
        return refuse(why, size, "sinks");
    if (hone_number(n, "softcap", 0) != 0)
        return refuse(why, size, "a soft cap");
    if (hone_number(n, "temperature", 0) != 0)
        return refuse(why, size, "a temperature");
    if (n->src[5]->ne[0] > MOST || n->src[0]->ne[0] > MOST || n->src[2]->ne[0] > MOST)
        return refuse(why, size, "too long");
    return 1;
}

static int64_t cell_of(const struct hone_node *n, int64_t position, int64_t token, enum fault fault)
{
    int64_t sequence = fault == FAULT_sequence_ignored ? 0 : whole(n->src[4], token, 0);
    return fault == FAULT_map_ignored ? position : whole(n->src[5], position, sequence);
}

/* One query: its scores, then the weighted sum of values. */
static void attend(const struct hone_ctx *ctx, const struct hone_node *n, int64_t token, int64_t head, enum fault fault)
{
    const struct hone_tensor *q = n->src[0], *k = n->src[1], *v = n->src[2];
    double *scores = ctx->scratch, *sum = scores + MOST, total = 0, max = -INFINITY, scale = hone_number(n, "scale", 1);
    float *room = (float *)(void *)(sum + MOST), *query = room + MOST;
    int64_t window = (int64_t)hone_number(n, "window", 0), last = whole(n->src[3], token, 0), group = q->ne[1] / k->ne[2];
    int64_t kv_head = fault == FAULT_kv_head_mapping ? head % k->ne[2] : head / group;
    int64_t first = window && last >= window ? last - window + (fault != FAULT_window_off_by_one) : 0;
    first += fault == FAULT_first_token_missed && last > first;
    last -= fault == FAULT_last_token_missed && last > first;
    memcpy(query, ctx->read_row(q, head, token, 0, room), (size_t)q->ne[0] * sizeof *query);
    memset(sum, 0, (size_t)v->ne[0] * sizeof *sum);
    for (int64_t p = first; p <= last; p++) {
        const float *key = ctx->read_row(k, cell_of(n, p, token, fault), kv_head, 0, room);
        scores[p] = 0;
        for (int64_t i = 0; i < q->ne[0]; i++)
            scores[p] += (double)query[i] * (double)key[i];
        scores[p] *= fault == FAULT_scale_missing ? 1 : scale;
        max = fmax(max, scores[p]);
    }
    for (int64_t p = first; p <= last; p++) {
        const float *value = ctx->read_row(v, cell_of(n, p, token, fault), kv_head, 0, room);
        double weight = exp(scores[p] - max);
        total += weight;
        for (int64_t i = 0; i < v->ne[0]; i++)
            sum[i] += weight * (double)value[i];
    }
    for (int64_t i = 0; i < v->ne[0]; i++)
        put_f32(row_of(n->out, head, token, 0) + i * n->out->nb[0], total > 0 ? sum[i] / total : 0);
}

static int attention(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    int64_t first, last, heads = n->out->ne[1];
    hone_share(heads * n->out->ne[2], 1, ith, nth, &first, &last);
    for (int64_t i = first; i < last; i++)
        attend(ctx, n, i / heads, i % heads, fault);
    return 0;
}

static uint64_t scratch(const struct hone_node *n)
{
    (void)n;
    return MOST * (2 * sizeof(double) + 2 * sizeof(float));
}

/* ---- kv_write */

/* f32 and f16 caches only. */
static int fits_write(const struct hone_node *n, char *why, size_t size)
{
    if (strcmp(n->src[1]->format, "f32") != 0 && strcmp(n->src[1]->format, "f16") != 0)
        return refuse(why, size, "a cache neither f32 nor f16");
    return n->src[0]->ne[0] > MOST ? refuse(why, size, "too long") : 1;
}

static int fits_half(const struct hone_node *n, char *why, size_t size)
{
    return strcmp(n->src[1]->format, "f16") ? refuse(why, size, "a cache not f16") : fits_write(n, why, size);
}

static void truncate(float *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        bits &= ~0x1fffu; /* the bits that a half has not */
        memcpy(&row[i], &bits, sizeof bits);
    }
}

static int kv_write(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *rows = n->src[0], *cache = n->src[1];
    int64_t first, last;
    float *room = ctx->scratch;
    hone_share(rows->ne[1], 1, ith, nth, &first, &last);
    for (int64_t head = first; head < last; head++)
        for (int64_t t = 0; t < rows->ne[2]; t++) {
            int64_t cell = whole(n->src[2], t, 0);
            if ((cell < 0 || cell >= cache->ne[1]) && fault != FAULT_cell_unchecked)
                continue;
            memcpy(room, ctx->read_row(rows, head, t, 0, room + rows->ne[0]), (size_t)rows->ne[0] * sizeof *room);
            if (fault == FAULT_half_truncated)
                truncate(room, rows->ne[0]);
            if (fault == FAULT_heads_swapped && cell < cache->ne[2] && head < cache->ne[1])
                ctx->write_row(n->out, head, cell, 0, room);
            else if (fault == FAULT_cell_unchecked && !strcmp(cache->format, "f32"))
                memcpy(row_of(cache, cell, head, 0), room, (size_t)rows->ne[0] * sizeof *room);
            else if (cell >= 0 && cell < cache->ne[1])
                ctx->write_row(n->out, cell, head, 0, room);
        }
    return 0;
}

#define ATTENTION(name) POISON(attention, name, attention, fits, .scratch = scratch)
#define WRITE(name)                                                                                                            \
    POISON(kv_write, name, kv_write, FAULT_##name == FAULT_half_truncated ? fits_half : fits_write, .scratch = scratch)
ATTENTIONS(ATTENTION)
WRITES(WRITE)

#define ATTENTION_ROW(name) &attention_##name,
#define WRITE_ROW(name)     &kv_write_##name,
    static const struct hone_kernel *const kernels[] = {ATTENTIONS(ATTENTION_ROW) WRITES(WRITE_ROW) NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "poison-attention", .kernels = kernels};
