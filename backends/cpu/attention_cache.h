/* attention_cache.h: what both ways of computing attention (attention_few.h, attention_tile.h) start from and leave: the rows
 * of a KV head for a block of positions, and a partial result.
 *
 * A block is the positions whose result is computed at once, merged in the order of positions. Positions whose cell is absent
 * are dropped here, so that behind this file there are only rows that exist, in ascending order of position; nothing reads a
 * cell that no token attends to, whatever lies in it.
 *
 * F32, F16, BF16, Q8_0 and Q4_0 rows are read where they lie, in the loops that use them. Other formats, odd head sizes and
 * strides are unpacked into scratch first, padded with zeros: more instructions, and no case more for the loops. */
#ifndef BACKENDS_CPU_ATTENTION_CACHE_H
#define BACKENDS_CPU_ATTENTION_CACHE_H

#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "ops/attention.h"

enum { ATTENTION_BLOCK = 128, ATTENTION_STEP = 64 }; /* positions; of a block, what a tile takes at a time */

/* K or V. */
struct cache {
    const struct tensor *t;
    int64_t n, padded;     /* values of a row; and as loops read them, whole vectors */
    bool direct;           /* rows need no unpacking */
    enum format_id format; /* of the rows as loops see them */
};

static inline int64_t attention_padded(int64_t n)
{
    return (n + V - 1) / V * V;
}

static inline struct cache cache_of(const struct tensor *t)
{
    struct cache c = {.t = t, .n = t->ne[0], .padded = attention_padded(t->ne[0])};
    bool known = t->format == FORMAT_F32 || t->format == FORMAT_F16 || t->format == FORMAT_BF16 || t->format == FORMAT_Q8_0 ||
                 t->format == FORMAT_Q4_0;
    c.direct = known && c.n == c.padded && tensor_rows_contiguous(t);
    c.format = c.direct ? t->format : FORMAT_F32;
    return c;
}

/* Floats of room that cache_rows needs. */
static inline size_t cache_room(const struct cache *c)
{
    return c->direct ? 0 : (size_t)(ATTENTION_BLOCK * c->padded);
}

/* rows[i] is the row of cell cells[i] of a KV head, in c->format; of an absent cell, `zeros`. */
static inline void cache_rows(const struct cache *c, int64_t kv_head, const int32_t *cells, int n, const char *zeros,
                              const char **rows, float *room)
{
    const struct tensor *t = c->t;
    const char *head = tensor_row(t, 0, kv_head, 0);
    for (int i = 0; i < n && c->direct; i++)
        rows[i] = cells[i] < 0 ? zeros : head + (size_t)cells[i] * t->nb[1];
    for (int i = 0; i < n && !c->direct; i++) {
        float *row = room + (size_t)i * (size_t)c->padded;
        rows[i] = cells[i] < 0 ? zeros : (const char *)row;
        if (cells[i] < 0)
            continue;
        if (tensor_rows_contiguous(t)) {
            row_unpack(t->format, head + (size_t)cells[i] * t->nb[1], row, c->n);
        } else {
            const float *values = tensor_read_row(t, cells[i], kv_head, 0, row);
            if (values != row)
                memcpy(row, values, sizeof *row * (size_t)c->n);
        }
        for (int64_t j = c->n; j < c->padded; j++)
            row[j] = 0;
    }
}

/* V values from i on, a multiple of V, of a row in `format`, which is a constant wherever this is inlined. */
INLINE vf cache_load(enum format_id format, const char *row, int64_t i)
{
    return format == FORMAT_F16    ? v_load_f16(row + 2 * i)
           : format == FORMAT_BF16 ? v_load_bf16(row + 2 * i)
           : format == FORMAT_Q8_0 ? row_load_q8_0(row, i)
           : format == FORMAT_Q4_0 ? row_load_q4_0(row, i)
                                   : v_load(row + 4 * i);
}

/* The same from i + u on, where i is a multiple of a block's 32 values and u a constant: what depends on u is settled at
 * compile time. */
INLINE vf cache_load_at(enum format_id format, const char *row, int64_t i, int u)
{
    const int64_t block = format == FORMAT_Q8_0 ? sizeof(struct block_q8_0) : sizeof(struct block_q4_0);
    if (format == FORMAT_Q8_0 || format == FORMAT_Q4_0)
        return cache_load(format, row + i / 32 * block, u);
    return cache_load(format, row, i + u);
}

/* Calls fn(format as a constant, ...) and returns what it returns. */
#define CACHE_AS(format, fn, ...)                                                                                              \
    switch (format) {                                                                                                          \
    case FORMAT_F16:                                                                                                           \
        return fn(FORMAT_F16, __VA_ARGS__);                                                                                    \
    case FORMAT_BF16:                                                                                                          \
        return fn(FORMAT_BF16, __VA_ARGS__);                                                                                   \
    case FORMAT_Q8_0:                                                                                                          \
        return fn(FORMAT_Q8_0, __VA_ARGS__);                                                                                   \
    case FORMAT_Q4_0:                                                                                                          \
        return fn(FORMAT_Q4_0, __VA_ARGS__);                                                                                   \
    default:                                                                                                                   \
        return fn(FORMAT_F32, __VA_ARGS__);                                                                                    \
    }

/* Positions and their cells; an absent cell is -1, and so is its position. Behind the last, up to the end of its step,
 * positions are -1 as well. */
struct block {
    int n;
    int32_t cells[ATTENTION_BLOCK], positions[ATTENTION_BLOCK];
};

/* Positions low to high, within one ATTENTION_BLOCK. */
static inline void block_find(struct block *b, const struct tensor *map, int64_t sequence, int64_t low, int64_t high,
                              int64_t n_cells, bool keep_places)
{
    const char *from = (const char *)map->data + (size_t)sequence * map->nb[1];
    int32_t last = n_cells <= INT32_MAX ? (int32_t)(n_cells - 1) : INT32_MAX;
    int64_t p = low;
    int n = 0;
    for (; keep_places && n < low % ATTENTION_STEP; n++)
        b->cells[n] = b->positions[n] = -1;
    /* As a rule all positions have one. */
    for (; map->nb[0] == sizeof(int32_t) && p + V <= high + 1; p += V, n += V) {
        if (!v_every(v_within(from + (size_t)p * sizeof(int32_t), 0, last)))
            break;
        memcpy(b->cells + n, from + (size_t)p * sizeof(int32_t), V * sizeof(int32_t));
        for (int j = 0; j < V; j++)
            b->positions[n + j] = (int32_t)p + j;
    }
    for (; p <= high; p++) {
        int32_t cell;
        memcpy(&cell, from + (size_t)p * map->nb[0], sizeof cell);
        bool present = cell >= 0 && cell <= last;
        b->cells[n] = present ? cell : -1;
        b->positions[n] = present ? (int32_t)p : -1;
        n += present || keep_places;
    }
    b->n = n;
    for (; n % ATTENTION_STEP != 0; n++)
        b->positions[n] = -1;
}

/* Of `rows` queries: sum over some positions of exp(a_j - max) v_j, and of exp(a_j - max); max is -inf where there is no
 * position. */
struct partial {
    float *max, *sum, *values; /* [rows], [rows], [rows][padded head of V] */
};

static inline size_t partial_floats(int64_t rows, int64_t padded)
{
    return (size_t)(2 * attention_padded(rows) + rows * padded);
}

static inline struct partial partial_at(float *p, int64_t rows)
{
    return (struct partial){p, p + attention_padded(rows), p + 2 * attention_padded(rows)};
}

/* A row of partial results added to a total, in this order and never another. */
static inline void partial_merge(const struct partial *total, const struct partial *part, int64_t row, int64_t padded)
{
    float a = total->max[row], b = part->max[row], max = b > a ? b : a;
    if (b == -INFINITY)
        return;
    vf keep = a == -INFINITY ? v_zero() : v_exp(v_all(a - max)), add = v_exp(v_all(b - max));
    float *to = total->values + row * padded;
    const float *from = part->values + row * padded;
    for (int64_t i = 0; i < padded; i += V)
        v_store(to + i, v_fma(v_load(from + i), add, v_load(to + i) * keep));
    total->sum[row] = v_lane_0(v_fma(v_all(part->sum[row]), add, v_all(total->sum[row]) * keep));
    total->max[row] = max;
}

INLINE vf attention_cap(vf score, float softcap)
{
    if (softcap > 0)
        score = v_all(softcap) * v_tanh(score * v_all(1 / softcap));
    return score;
}

#endif
