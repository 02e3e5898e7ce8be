/* rows.c: the shared loop of row by row references. See rows.h.
 *
 * A row goes wholly to one worker, so any number of threads gives the same bits; the price is that a single long row has one
 * worker, which a reference can pay. */
#include "ops/rows.h"

/* Three rows: two sources, one output. Sizes were checked by the shape rules; the output is as wide as the widest source. */
size_t rows_scratch(const struct node *n)
{
    return 3 * sizeof(float) * (size_t)n->out->ne[0];
}

void rows_reference(const struct node *n, const struct worker *w, rows_fn *fn)
{
    const struct tensor *out = n->out, *b = n->n_src > 1 ? n->src[1] : NULL;
    int64_t width = out->ne[0], lo, hi, i[3];
    float *room_a = w->scratch, *room_b = room_a + width, *y = room_b + width;
    worker_range(w, tensor_rows(out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(out, row, i);
        const float *row_a = tensor_read_row(n->src[0], i[0], i[1], i[2], room_a), *row_b = NULL;
        if (b)
            row_b = tensor_read_row(b, i[0] % b->ne[1], i[1] % b->ne[2], i[2] % b->ne[3], room_b);
        fn(n, row_a, row_b, b ? b->ne[0] : 0, y, width);
        tensor_write_row(out, i[0], i[1], i[2], y);
    }
}

int rows_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    for (int i = 0; i < n->n_src && !rc; i++)
        if (n->src[i])
            rc = op_check_format(n, i, FORMAT_F32, e);
    if (rc)
        return rc;
    if (n->n_src > 1 && n->src[1] && !tensor_broadcasts(n->src[1], n->src[0])) {
        char a[128], b[128];
        return op_refuse(n, e, "source 1, %s, does not repeat to source 0, %s", tensor_describe(n->src[1], b, sizeof b),
                         tensor_describe(n->src[0], a, sizeof a));
    }
    return op_set_out(n, FORMAT_F32, n->src[0]->ne, e);
}
