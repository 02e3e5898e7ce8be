/* all_gather_one_shot.c: every rank copies all parts into its rows. A row's parts are cut among the workers together with the
 * rows: the logits of one token are one row of megabytes. Bound by the bytes. */
#include "backends/cpu/collective.h"

enum { GATHER_GRAIN = 1024 }; /* values that a worker copies at least */

static bool fits(const struct node *n, struct reason *r)
{
    return collective_plain(n->src[0], r) && collective_plain(n->out, r);
}

/* Elements [lo, hi) of a row from the part that begins at `at`. */
static void copy_part(float *row, const float *part, int64_t at, int64_t n, int64_t lo, int64_t hi)
{
    int64_t from = lo > at ? lo : at, to = hi < at + n ? hi : at + n;
    if (from < to)
        memcpy(row + from, part + (from - at), sizeof *row * (size_t)(to - from));
}

static int run(const struct exec *x, const struct node *n)
{
    const struct worker *w = &x->worker;
    int64_t width = n->out->ne[0], rows = tensor_rows(n->out), lo, hi;
    struct comm_block alone = {n->src[0]->data, tensor_nbytes(n->src[0])};
    const struct comm_block *all = &alone;
    int n_ranks = w->comm ? comm_size(w->comm) : 1;
    size_t bytes = sizeof(float) * (size_t)(width * rows), sum = 0;
    int rc = w->comm ? comm_share(w->comm, w, alone, bytes, n->out->name, &all) : 0;
    if (rc)
        return rc;
    for (int r = 0; r < n_ranks; r++)
        sum += all[r].bytes;
    if (w->comm && sum != bytes) {
        comm_abort(w->comm, HONE_EFAULT, "the parts of all ranks do not make whole rows");
        return HONE_EFAULT;
    }
    worker_range(w, width * rows, GATHER_GRAIN, &lo, &hi);
    for (int64_t row = width ? lo / width : rows; row < rows && row * width < hi; row++) {
        int64_t first = lo > row * width ? lo - row * width : 0, last = hi < (row + 1) * width ? hi - row * width : width,
                at = 0;
        float *out = (float *)n->out->data + row * width;
        for (int r = 0; r < n_ranks; r++) {
            int64_t part = (int64_t)(all[r].bytes / sizeof(float)) / rows;
            copy_part(out, (const float *)all[r].data + row * part, at, part, first, last);
            at += part;
        }
        at = at > first ? at : first;
        if (at < last)
            memset(out + at, 0, sizeof *out * (size_t)(last - at));
    }
    return 0;
}

const struct kernel cpu_all_gather_one_shot = {.op = OP_ALL_GATHER, .variant = "one_shot", .fits = fits, .run = run};
