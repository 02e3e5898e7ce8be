/* kv_write.c: writes the rows of new tokens into the cells of a KV cache. In place: the cache is a state that outlives the
 * step.
 *
 * src[0] rows f32 [head_dim, n_kv_head, n_tokens]; src[1] cache [head_dim, n_cells, n_kv_head] of any float format that can be
 * packed; src[2] cells i32 [n_tokens]: token t goes to cell cells[t] of every head. A cell that is negative or not below
 * n_cells is skipped (a token of padding). out is a view of the whole cache, so that whoever reads it comes after the write.
 * Cells that are written are distinct; the engine hands each out once. The reference gives each worker whole heads, so should
 * one cell be named twice the later token wins, for any number of threads. */
#include "ops/ops.h"

static int kv_write_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    if (!rc)
        rc = op_check_format(n, 2, FORMAT_I32, e);
    if (!rc)
        rc = op_check_unpacked(n, 1, e);
    if (rc)
        return rc;
    const struct tensor *rows = n->src[0], *cache = n->src[1], *cells = n->src[2];
    char a[128], b[128], c[128];
    if (!format_get(cache->format)->pack)
        return op_refuse(n, e, "a cache %s cannot be written", tensor_describe(cache, b, sizeof b));
    if (rows->ne[0] != cache->ne[0] || rows->ne[1] != cache->ne[2] || rows->ne[3] != 1 || cache->ne[3] != 1 ||
        cells->ne[0] != rows->ne[2] || cells->ne[1] != 1 || cells->ne[2] != 1 || cells->ne[3] != 1)
        return op_refuse(n, e, "rows %s, cache %s and cells %s do not fit as [d, h, t], [d, cells, h] and [t]",
                         tensor_describe(rows, a, sizeof a), tensor_describe(cache, b, sizeof b),
                         tensor_describe(cells, c, sizeof c));
    rc = op_set_out(n, cache->format, cache->ne, e);
    if (rc)
        return rc;
    for (int i = 0; i < MAX_DIMS; i++)
        n->out->nb[i] = cache->nb[i];
    op_set_view(n, 1, 0);
    return 0;
}

static size_t kv_write_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)n->src[0]->ne[0];
}

static void kv_write_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *rows = n->src[0], *cache = n->src[1], *cells = n->src[2];
    int64_t lo, hi;
    worker_range(w, rows->ne[1], 1, &lo, &hi);
    for (int64_t head = lo; head < hi; head++)
        for (int64_t t = 0; t < rows->ne[2]; t++) {
            int64_t cell = tensor_read_index(cells, t, 0);
            if (cell >= 0 && cell < cache->ne[1])
                tensor_write_row(cache, cell, head, 0, tensor_read_row(rows, head, t, 0, w->scratch));
        }
}

/* The rows that are written, not the cache. */
static struct cost kv_write_cost(const struct node *n)
{
    const struct format *f = format_get(n->src[1]->format);
    double values = (double)tensor_elements(n->src[0]);
    return (struct cost){op_stored_bytes(n->src[0]) + op_stored_bytes(n->src[2]), values / f->block * f->bytes, 0};
}

/* d values a head, h heads, t tokens, into a cache of `cells` cells. */
#define ROWS(d, h, t)                                                                                                          \
    {                                                                                                                          \
        FORMAT_F32, {d, h, t}, FILL_NORMAL                                                                                     \
    }
#define CACHE(NAME, d, cells, h)                                                                                               \
    {                                                                                                                          \
        FORMAT_##NAME, {d, cells, h}, FILL_NORMAL                                                                              \
    }
#define CELLS(t, fill, limit)                                                                                                  \
    {                                                                                                                          \
        FORMAT_I32, {t}, fill, STRIDES_PLAIN, limit                                                                            \
    }

static const struct op_case cases[] = {
    {"decode_f32", {ROWS(64, 3, 1), CACHE(F32, 64, 40, 3), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"decode_f16", {ROWS(64, 3, 1), CACHE(F16, 64, 40, 3), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"decode_bf16", {ROWS(64, 3, 1), CACHE(BF16, 64, 40, 3), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"batch_f32", {ROWS(80, 5, 17), CACHE(F32, 80, 40, 5), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"batch_f16", {ROWS(128, 2, 17), CACHE(F16, 128, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"batch_bf16", {ROWS(64, 2, 17), CACHE(BF16, 64, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"decode_q8_0", {ROWS(128, 8, 1), CACHE(Q8_0, 128, 40, 8), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"decode_q5_1", {ROWS(128, 8, 1), CACHE(Q5_1, 128, 40, 8), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"decode_q5_0", {ROWS(128, 8, 1), CACHE(Q5_0, 128, 40, 8), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"decode_q4_1", {ROWS(128, 8, 1), CACHE(Q4_1, 128, 40, 8), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"decode_q4_0", {ROWS(128, 8, 1), CACHE(Q4_0, 128, 40, 8), CELLS(1, FILL_INDEX, 40)}, NULL},
    {"batch_q8_0", {ROWS(64, 2, 17), CACHE(Q8_0, 64, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"batch_q5_1", {ROWS(64, 2, 17), CACHE(Q5_1, 64, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"batch_q5_0", {ROWS(64, 2, 17), CACHE(Q5_0, 64, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"batch_q4_1", {ROWS(64, 2, 17), CACHE(Q4_1, 64, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"batch_q4_0", {ROWS(64, 2, 17), CACHE(Q4_0, 64, 40, 2), CELLS(17, FILL_DISTINCT, 40)}, NULL},
    {"odd_head_f16", {ROWS(77, 1, 3), CACHE(F16, 77, 9, 1), CELLS(3, FILL_ASCENDING, 4)}, NULL},
    {"head_512", {ROWS(512, 1, 3), CACHE(F16, 512, 9, 1), CELLS(3, FILL_ASCENDING, 4)}, NULL},
    {"cell_below_zero", {ROWS(16, 2, 5), CACHE(F32, 16, 9, 2), CELLS(5, FILL_ASCENDING, -2)}, NULL},
    {"cell_behind_last", {ROWS(16, 2, 5), CACHE(F32, 16, 9, 2), CELLS(5, FILL_ASCENDING, 7)}, NULL},
    {"no_tokens", {ROWS(16, 2, -1), CACHE(F32, 16, 9, 2), CELLS(-1, FILL_ZERO, 0)}, NULL},
    {"padded_cache", {ROWS(48, 2, 5), {FORMAT_F16, {48, 9, 2}, FILL_NORMAL, STRIDES_PADDED}, CELLS(5, FILL_DISTINCT, 9)}, NULL},
    {"transposed",
     {{FORMAT_F32, {32, 3, 5}, FILL_NORMAL, STRIDES_TRANSPOSED},
      {FORMAT_F16, {32, 9, 3}, FILL_NORMAL, STRIDES_TRANSPOSED},
      CELLS(5, FILL_DISTINCT, 9)},
     NULL},
    {"permuted",
     {{FORMAT_F32, {32, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED},
      {FORMAT_F32, {32, 9, 3}, FILL_NORMAL, STRIDES_PERMUTED},
      CELLS(5, FILL_DISTINCT, 9)},
     NULL},
    {"hostile_bf16",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_BF16, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
    {"hostile_q8_0",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_Q8_0, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
    {"hostile_q5_1",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_Q5_1, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
    {"hostile_q5_0",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_Q5_0, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
    {"hostile_q4_1",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_Q4_1, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
    {"hostile_q4_0",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_Q4_0, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
    {"hostile",
     {{FORMAT_F32, {64, 3, 9}, FILL_HOSTILE}, {FORMAT_F16, {64, 30, 3}, FILL_NORMAL}, CELLS(9, FILL_DISTINCT, 30)},
     NULL},
};

const struct op_desc op_kv_write = {
    .name = "kv_write",
    .min_src = 3,
    .max_src = 3,
    .shape = kv_write_shape,
    .reference = kv_write_reference,
    .scratch = kv_write_scratch,
    .cost = kv_write_cost,
    .tolerance = 0, /* as in copy.c: a conversion has one right answer */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
