/* all_reduce_get_rows_one_shot.c: of the partials only the rows that are wanted are read and summed. An id outside gives a row
 * of zeros, as get_rows. */
#include "backends/cpu/collective.h"

static bool fits(const struct node *n, struct reason *r)
{
    return collective_plain(n->src[0], r) && collective_plain(n->out, r) && collective_stays_inside(n, r);
}

static int run(const struct exec *x, const struct node *n)
{
    struct partials p;
    int rc = partials_get(&p, x, n);
    if (rc)
        return rc;
    int64_t width = n->out->ne[0], rows = width ? tensor_elements(n->src[0]) / width : 0, lo, hi;
    worker_range(&x->worker, tensor_elements(n->out), COMM_GRAIN, &lo, &hi);
    for (int64_t at = lo, end; at < hi; at = end) { /* a row, or what of it is this worker's */
        int64_t row = at / width, column = at % width, id = tensor_read_index(n->src[1], row, 0);
        float *out = (float *)n->out->data + at;
        end = (row + 1) * width < hi ? (row + 1) * width : hi;
        if (id >= 0 && id < rows)
            comm_sum(p.all, p.n, id * width + column, NULL, out, end - at);
        else
            memset(out, 0, sizeof *out * (size_t)(end - at));
    }
    return 0;
}

const struct kernel cpu_all_reduce_get_rows_one_shot = {
    .op = OP_ALL_REDUCE_GET_ROWS, .variant = "one_shot", .fits = fits, .run = run};
