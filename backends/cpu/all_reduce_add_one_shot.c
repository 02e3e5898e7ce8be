/* all_reduce_add_one_shot.c: the sum of all partials in rank order, and the residual added while it is in registers. The bits
 * are those of all_reduce and add: an addition in f32 does not ask for the side. */
#include "backends/cpu/collective.h"

static bool fits(const struct node *n, struct reason *r)
{
    if (tensor_elements(n->src[1]) != tensor_elements(n->out))
        return fits_not(r, "%s repeats", n->src[1]->name);
    return collective_plain(n->src[0], r) && collective_plain(n->src[1], r) && collective_plain(n->out, r) &&
           collective_stays_inside(n, r);
}

static int run(const struct exec *x, const struct node *n)
{
    struct partials p;
    int64_t lo, hi;
    int rc = partials_get(&p, x, n);
    worker_range(&x->worker, tensor_elements(n->out), COMM_GRAIN, &lo, &hi);
    if (!rc)
        comm_sum(p.all, p.n, lo, (const float *)n->src[1]->data + lo, (float *)n->out->data + lo, hi - lo);
    return rc;
}

const struct kernel cpu_all_reduce_add_one_shot = {.op = OP_ALL_REDUCE_ADD, .variant = "one_shot", .fits = fits, .run = run};
