/* copy.h: the body of copy: rows in another format, out of views.
 *
 * f32 rows in place are packed straight into the output; others are unpacked into scratch first. F16, BF16 and Q8_0 have vector
 * code on both sides (rows.h), the rest takes the format's own pack and unpack, so every pair that the op allows is taken. Rows
 * are cut at whole blocks of the output where they are f32 in place. Bound by bytes. */
#ifndef BACKENDS_CPU_COPY_H
#define BACKENDS_CPU_COPY_H

#include "backends/cpu/rows.h"

enum { COPY_GRAIN = 1024 };

static inline bool copy_fits(const struct node *n, struct reason *r)
{
    return tensor_rows_contiguous(n->out) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

static inline size_t copy_scratch(const struct node *n)
{
    return n->src[0]->format == FORMAT_I32 ? 0 : rows_room(n->src[0]);
}

static inline void copy_indices(const struct worker *w, const struct tensor *src, const struct tensor *out)
{
    int64_t lo, hi, i[3];
    worker_range(w, tensor_rows(out), 1, &lo, &hi);
    for (; lo < hi; lo++) {
        tensor_row_index(out, lo, i);
        const char *from = tensor_row(src, i[0], i[1], i[2]);
        char *to = tensor_row(out, i[0], i[1], i[2]);
        for (int64_t j = 0; j < out->ne[0]; j++)
            memcpy(to + (size_t)j * sizeof(int32_t), from + (size_t)j * src->nb[0], sizeof(int32_t));
    }
}

static inline int copy_run(const struct exec *x, const struct node *n)
{
    const struct tensor *src = n->src[0], *out = n->out;
    if (src->format == FORMAT_I32) {
        copy_indices(&x->worker, src, out);
        return 0;
    }
    char *at = x->worker.scratch;
    struct rows from = rows_of(src, &at), to = rows_to(out);
    const struct format *f = format_get(out->format);
    int64_t grain = COPY_GRAIN / f->block * f->block, width = out->ne[0];
    struct share share = share_of(&x->worker, tensor_rows(out), width, from.in_place ? grain : width + (width == 0));
    struct piece p;
    while (share_next(&share, &p)) {
        const float *row = row_read(&from, p.row);
        char *end = row_address(&to, p.row);
        row_pack(out->format, row + p.lo, end + format_row_bytes(f, p.lo), p.hi - p.lo);
    }
    return 0;
}

#endif
