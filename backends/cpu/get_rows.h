/* get_rows.h: the body of get_rows: rows of a table of any format and layout as f32.
 *
 * A row in file order is cut among the workers at whole blocks; one of a packed layout, or with gaps between its elements, goes
 * to one worker, through the layout's unpack_row, since that is how a row is read there. Nobody waits long for it: 1 to 2 us
 * for 2,048 values, once a step. Bound by the unpacking. */
#ifndef BACKENDS_CPU_GET_ROWS_H
#define BACKENDS_CPU_GET_ROWS_H

#include "backends/cpu/rows.h"

enum { GET_ROWS_GRAIN = 256 };

static inline bool get_rows_fits(const struct node *n, struct reason *r)
{
    return tensor_rows_contiguous(n->out) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

static inline size_t get_rows_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)n->out->ne[0];
}

/* Elements [lo, hi) of row `id`; whole rows where they cannot be cut. */
static inline void get_rows_piece(const struct tensor *table, int64_t id, int64_t lo, int64_t hi, float *to, float *room)
{
    int64_t i[3];
    if (id < 0 || id >= tensor_rows(table)) {
        memset(to + lo, 0, sizeof *to * (size_t)(hi - lo));
        return;
    }
    tensor_row_index(table, id, i);
    if (table->layout) {
        table->layout->unpack_row(table->data, to, table->ne[0], tensor_rows(table), id);
    } else if (tensor_rows_contiguous(table)) {
        const char *row = tensor_row(table, i[0], i[1], i[2]);
        row_unpack(table->format, row + format_row_bytes(format_get(table->format), lo), to + lo, hi - lo);
    } else {
        const float *row = tensor_read_row(table, i[0], i[1], i[2], room);
        memcpy(to, row, sizeof *to * (size_t)table->ne[0]);
    }
}

static inline int get_rows_run(const struct exec *x, const struct node *n)
{
    const struct tensor *table = n->src[0], *out = n->out;
    int64_t width = out->ne[0], block = format_get(table->format)->block;
    int64_t grain = table->layout || !tensor_rows_contiguous(table) ? width + (width == 0) : GET_ROWS_GRAIN / block * block;
    struct share share = share_of(&x->worker, out->ne[1], width, grain);
    struct piece p;
    while (share_next(&share, &p))
        get_rows_piece(table, tensor_read_index(n->src[1], p.row, 0), p.lo, p.hi, tensor_row(out, p.row, 0, 0),
                       x->worker.scratch);
    return 0;
}

#endif
