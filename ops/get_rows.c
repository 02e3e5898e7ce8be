/* get_rows.c: out[:, j] = row ids[j] of a table: an embedding, or the tokens whose logits are wanted.
 *
 * src[0] the table [n, m, ...] in any format and layout; its rows are numbered through all dimensions but the first. src[1] ids
 * i32 [k]. out f32 [n, k]. An id outside of the table gives a row of zeros: the engine refuses such tokens before a
 * step, and should one pass, a row of zeros shows in the output while a read elsewhere would not. */
#include "ops/ops.h"

#include <string.h>

static int get_rows_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_float(n, 0, e);
    if (!rc)
        rc = op_check_format(n, 1, FORMAT_I32, e);
    if (rc)
        return rc;
    const struct tensor *ids = n->src[1];
    char text[128];
    if (ids->ne[1] != 1 || ids->ne[2] != 1 || ids->ne[3] != 1)
        return op_refuse(n, e, "ids %s have more than one dimension", tensor_describe(ids, text, sizeof text));
    return op_set_out(n, FORMAT_F32, (const int64_t[MAX_DIMS]){n->src[0]->ne[0], ids->ne[0], 1, 1}, e);
}

static size_t get_rows_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)n->out->ne[0];
}

static void get_rows_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *table = n->src[0], *ids = n->src[1], *out = n->out;
    int64_t lo, hi, i[3];
    worker_range(w, out->ne[1], 1, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        int64_t id = tensor_read_index(ids, j, 0);
        const float *row = w->scratch;
        if (id >= 0 && id < tensor_rows(table)) {
            tensor_row_index(table, id, i);
            row = tensor_read_row(table, i[0], i[1], i[2], w->scratch);
        } else {
            memset(w->scratch, 0, get_rows_scratch(n));
        }
        tensor_write_row(out, j, 0, 0, row);
    }
}

/* The rows that are read, not the table. */
static struct cost get_rows_cost(const struct node *n)
{
    const struct format *f = format_get(n->src[0]->format);
    double k = (double)n->out->ne[1];
    return (struct cost){k * (double)format_row_bytes(f, n->out->ne[0]) + op_stored_bytes(n->src[1]), op_stored_bytes(n->out),
                         0};
}

/* The row of i32, a format that no weight has, becomes one more of f32. */
#define FORMAT(NAME, name)                                                                                                     \
    {"table_" #name,                                                                                                           \
     {{FORMAT_##NAME == FORMAT_I32 ? FORMAT_F32 : FORMAT_##NAME, {512, 21}, FILL_NORMAL},                                      \
      {FORMAT_I32, {9}, FILL_INDEX, STRIDES_PLAIN, 21}},                                                                       \
     NULL},                                                                                                                    \
        {"hostile_" #name,                                                                                                     \
         {{FORMAT_##NAME == FORMAT_I32 ? FORMAT_F32 : FORMAT_##NAME, {256, 5}, FILL_HOSTILE},                                  \
          {FORMAT_I32, {5}, FILL_DISTINCT, STRIDES_PLAIN, 5}},                                                                 \
         NULL},

static const struct op_case cases[] = {
#include "formats/formats.def"
    {"one", {{FORMAT_F32, {1, 1}, FILL_NORMAL}, {FORMAT_I32, {1}, FILL_ZERO}}, NULL},
    {"one_row", {{FORMAT_F32, {576, 100}, FILL_NORMAL}, {FORMAT_I32, {1}, FILL_INDEX, STRIDES_PLAIN, 100}}, NULL},
    {"odd_tail", {{FORMAT_F32, {77, 13}, FILL_NORMAL}, {FORMAT_I32, {30}, FILL_INDEX, STRIDES_PLAIN, 13}}, NULL},
    {"no_ids", {{FORMAT_F32, {64, 13}, FILL_NORMAL}, {FORMAT_I32, {-1}, FILL_ZERO}}, NULL},
    {"id_below_zero", {{FORMAT_F32, {64, 13}, FILL_NORMAL}, {FORMAT_I32, {5}, FILL_ASCENDING, STRIDES_PLAIN, -2}}, NULL},
    {"id_behind_last", {{FORMAT_F32, {64, 13}, FILL_NORMAL}, {FORMAT_I32, {5}, FILL_ASCENDING, STRIDES_PLAIN, 10}}, NULL},
    {"three_dims", {{FORMAT_F16, {33, 4, 3}, FILL_NORMAL}, {FORMAT_I32, {12}, FILL_DISTINCT, STRIDES_PLAIN, 12}}, NULL},
    {"padded", {{FORMAT_F32, {50, 6}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_I32, {4}, FILL_INDEX, STRIDES_PLAIN, 6}}, NULL},
    {"padded_blocks",
     {{FORMAT_Q8_0, {64, 6}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_I32, {4}, FILL_INDEX, STRIDES_PLAIN, 6}},
     NULL},
    {"transposed",
     {{FORMAT_F32, {16, 7}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_I32, {4}, FILL_INDEX, STRIDES_PLAIN, 7}},
     NULL},
    {"permuted",
     {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}, {FORMAT_I32, {15}, FILL_DISTINCT, STRIDES_PLAIN, 15}},
     NULL},
};
#undef FORMAT

const struct op_desc op_get_rows = {
    .name = "get_rows",
    .min_src = 2,
    .max_src = 2,
    .shape = get_rows_shape,
    .reference = get_rows_reference,
    .scratch = get_rows_scratch,
    .cost = get_rows_cost,
    /* Each value is a scale times a small integer, plus an offset in some formats: one or two roundings to f32. */
    .tolerance = 1e-13,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
