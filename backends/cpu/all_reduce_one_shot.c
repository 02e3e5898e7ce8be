/* all_reduce_one_shot.c: every rank reads all partials and sums them in rank order (comm_sum). */
#include "backends/cpu/collective.h"

static bool fits(const struct node *n, struct reason *r)
{
    return collective_plain(n->src[0], r) && collective_plain(n->out, r);
}

static int run(const struct exec *x, const struct node *n)
{
    struct partials p;
    int64_t lo, hi;
    int rc = partials_get(&p, x, n);
    worker_range(&x->worker, tensor_elements(n->out), COMM_GRAIN, &lo, &hi);
    if (!rc)
        comm_sum(p.all, p.n, lo, NULL, (float *)n->out->data + lo, hi - lo);
    return rc;
}

const struct kernel cpu_all_reduce_one_shot = {.op = OP_ALL_REDUCE, .variant = "one_shot", .fits = fits, .run = run};
