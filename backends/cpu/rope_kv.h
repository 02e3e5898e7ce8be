/* rope_kv.h: the body of rope_kv: rope of q and k, and the writes of k and v into their caches, as one node.
 *
 * Parts: rope q, rope k, kv_write k, kv_write v. A turned row of k goes from the first-level cache into the KV cache; it is
 * kept only where others read it. Four nodes and their barriers become one: with 48 rows of 64 to do in a decode step, the
 * barriers were most of the time. */
#ifndef BACKENDS_CPU_ROPE_KV_H
#define BACKENDS_CPU_ROPE_KV_H

#include "backends/cpu/kv_write.h"
#include "backends/cpu/rope.h"

static inline bool rope_kv_fits(const struct node *n, struct reason *r)
{
    const struct tensor *k = n->parts[1]->out, *written = n->parts[2]->src[0];
    if (!rope_fits(n->parts[0], r) || !rope_fits(n->parts[1], r))
        return false;
    if (written != k && (!tensor_same_shape(written, k) || memcmp(written->nb, k->nb, sizeof k->nb) != 0 || written->offset))
        return fits_not(r, "K is viewed otherwise between its rope and its cache");
    if (n->parts[0]->src[0]->ne[2] != n->parts[3]->src[0]->ne[2])
        return fits_not(r, "q and v differ in tokens");
    return true;
}

static inline size_t rope_kv_scratch(const struct node *n)
{
    size_t row = (sizeof(float) * (size_t)n->parts[1]->out->ne[0] + 63) / 64 * 64;
    return rope_table_bytes(n->parts[0]) + row + rows_room(n->parts[0]->src[0]) + rows_room(n->parts[1]->src[0]) +
           rows_room(n->parts[3]->src[0]);
}

static inline int rope_kv_run(const struct exec *x, const struct node *n)
{
    const struct node *rope_q = n->parts[0], *rope_k = n->parts[1], *write_k = n->parts[2], *write_v = n->parts[3];
    char *at = x->worker.scratch;
    struct rope r = rope_of(rope_q, &at);
    float *turned = rope_take(&at, sizeof(float) * (size_t)rope_k->out->ne[0]);
    struct rows q = rows_of(rope_q->src[0], &at), k = rows_of(rope_k->src[0], &at), v = rows_of(write_v->src[0], &at);
    bool k_left = node_leaves(n, rope_k->out);
    int64_t lo, hi, n_q = q.t->ne[1], n_k = k.t->ne[1], n_v = v.t->ne[1], heads = n_q + n_k + n_v;
    worker_range(&x->worker, heads * q.t->ne[2], 1, &lo, &hi);
    for (; lo < hi; lo++) {
        int64_t head = lo % heads, token = lo / heads;
        if (head < n_q + n_k)
            rope_load_token(&r, token);
        if (head < n_q) {
            const float *from = row_read_at(&q, (const int64_t[3]){head, token, 0});
            rope_row(&r, from, tensor_row(rope_q->out, head, token, 0), q.t->ne[0]);
            continue;
        }
        head -= n_q;
        if (head < n_k) {
            float *to = k_left ? tensor_row(rope_k->out, head, token, 0) : turned;
            rope_row(&r, row_read_at(&k, (const int64_t[3]){head, token, 0}), to, k.t->ne[0]);
            kv_write_row(write_k->src[1], write_k->src[2], head, token, to);
            continue;
        }
        head -= n_k;
        kv_write_row(write_v->src[1], write_v->src[2], head, token, row_read_at(&v, (const int64_t[3]){head, token, 0}));
    }
    return 0;
}

#endif
