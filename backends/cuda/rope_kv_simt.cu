/* rope_kv_simt.cu: rope of q and k and the writes of k and v into their caches in one launch; the body is in rope.cu. A turned
 * row of k goes from shared memory into the cache, and is kept only where others read it. */
#include "backends/cuda/rope.h"

enum { ROPE_Q, ROPE_K, WRITE_K, WRITE_V };

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *k = n->parts[ROPE_K]->out, *written = n->parts[WRITE_K]->src[0];
    if (!rope_fits(n->parts[ROPE_Q], r) || !rope_fits(n->parts[ROPE_K], r) || !rope_write_fits(n->parts[WRITE_K], r) ||
        !rope_write_fits(n->parts[WRITE_V], r))
        return false;
    if (written != k && (!tensor_same_shape(written, k) || memcmp(written->nb, k->nb, sizeof k->nb) != 0 || written->offset))
        return fits_not(r, "K is viewed otherwise between its rope and its cache");
    int64_t tokens = n->parts[ROPE_Q]->src[0]->ne[2];
    if (n->parts[ROPE_K]->src[0]->ne[2] != tokens || n->parts[WRITE_V]->src[0]->ne[2] != tokens)
        return fits_not(r, "q, k and v differ in tokens");
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    const struct node *q = n->parts[ROPE_Q], *k = n->parts[ROPE_K], *write_k = n->parts[WRITE_K], *write_v = n->parts[WRITE_V];
    struct rope_rows kinds[] = {
        rope_rows_of(q->src[0], q->out, NULL, true),
        rope_rows_of(k->src[0], node_leaves(n, k->out) ? k->out : NULL, write_k->src[1], true),
        rope_rows_of(write_v->src[0], NULL, write_v->src[1], false),
    };
    return rope_run(x, q, write_k->src[2], kinds, 3);
}

CUDA_KERNEL(rope_kv_simt) = {.op = OP_ROPE_KV, .variant = "simt", .needs = CUDA_SM90, .fits = fits, .run = run};
