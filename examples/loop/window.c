/* window.c: an attention that looks at the last eight positions and forgets the rest: fast, and wrong. The example's idea that
 * must not pass. Everything else of it is as it should be, so that what is found is the idea. See README.md. */
#include "hone_kernel.h"

#include <math.h>
#include <stdio.h>

enum { WINDOW = 8, MOST = 512 };

static int fits(const struct hone_node *n, char *why, size_t size)
{
    if ((n->n_src > 6 && n->src[6]) || hone_number(n, "softcap", 0) != 0)
        return snprintf(why, size, "sinks, or a soft cap"), 0;
    if (n->src[0]->ne[0] > MOST || n->src[2]->ne[0] > MOST || n->out->nb[0] != sizeof(float))
        return snprintf(why, size, "heads of more than %d values, or gaps in the output", MOST), 0;
    return 1;
}

static int32_t whole(const struct hone_tensor *t, int64_t i0, int64_t i1)
{
    int32_t value;
    memcpy(&value, (const char *)t->data + i1 * t->nb[1] + i0 * t->nb[0], sizeof value);
    return value;
}

/* One head of one token. */
static void attend(const struct hone_ctx *ctx, const struct hone_node *n, int64_t token, int64_t head)
{
    const struct hone_tensor *q = n->src[0], *k = n->src[1], *v = n->src[2];
    float *room = ctx->scratch, scores[WINDOW], max = -INFINITY, total = 0;
    float *out = (float *)(void *)((char *)n->out->data + head * n->out->nb[1] + token * n->out->nb[2]);
    int64_t kv_head = head / (q->ne[1] / k->ne[2]), sequence = whole(n->src[4], token, 0);
    int64_t last = whole(n->src[3], token, 0), first = last >= WINDOW ? last - WINDOW + 1 : 0; /* here it goes wrong */
    float scale = (float)hone_number(n, "scale", 1);
    const float *query = ctx->read_row(q, head, token, 0, room);
    for (int64_t p = first; p <= last; p++) {
        const float *key = ctx->read_row(k, whole(n->src[5], p, sequence), kv_head, 0, room + MOST);
        float dot = 0;
        for (int64_t i = 0; i < q->ne[0]; i++)
            dot += query[i] * key[i];
        scores[p - first] = dot * scale;
        max = fmaxf(max, scores[p - first]);
    }
    for (int64_t i = 0; i < v->ne[0]; i++)
        out[i] = 0;
    for (int64_t p = first; p <= last; p++) {
        const float *value = ctx->read_row(v, whole(n->src[5], p, sequence), kv_head, 0, room + MOST);
        float weight = expf(scores[p - first] - max);
        total += weight;
        for (int64_t i = 0; i < v->ne[0]; i++)
            out[i] += weight * value[i];
    }
    for (int64_t i = 0; i < v->ne[0]; i++)
        out[i] = total > 0 ? out[i] / total : 0;
}

static uint64_t scratch(const struct hone_node *n)
{
    (void)n;
    return 2 * MOST * sizeof(float);
}

static int run(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth)
{
    int64_t first, last, heads = n->out->ne[1];
    hone_share(heads * n->out->ne[2], 1, ith, nth, &first, &last);
    for (int64_t i = first; i < last; i++)
        attend(ctx, n, i / heads, i % heads);
    return 0;
}

static const struct hone_kernel window = {
    .size = sizeof(struct hone_kernel), .op = "attention", .variant = "window", .fits = fits, .scratch = scratch, .run = run};
static const struct hone_kernel *const kernels[] = {&window, NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "window", .version = "1", .kernels = kernels};
