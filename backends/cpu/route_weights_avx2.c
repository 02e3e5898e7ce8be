/* route_weights_avx2.c: exponentials of a token's logits, all or the selected ones, over their sum. A token belongs to one worker; its
 * exponentials lie in scratch. */
#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "ops/route_weights.h"

static bool fits(const struct node *n, struct reason *r)
{
    return n->out->nb[0] == sizeof(float) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

/* A row of logits that cannot be read in place, and as many exponentials. */
static size_t scratch(const struct node *n)
{
    return rows_room(n->src[0]) + sizeof(float) * (size_t)(n->src[0]->ne[0] + n->out->ne[0] + 2 * V);
}

/* y = exp(x - the largest x); their sum. */
static float exponentials(const float *x, float *y, int64_t n)
{
    vf most = v_all(-INFINITY), total = v_zero();
    for (int64_t i = 0; i < n; i += V) {
        vf v = v_load_up_to(x + i, n - i);
        most = v_max(most, i + V <= n ? v : v_select(v_first(n - i), v, v_all(-INFINITY)));
    }
    vf max = v_all(v_largest(most));
    for (int64_t i = 0; i < n; i += V) {
        vf e = v_exp(v_load_up_to(x + i, n - i) - max);
        v_store_up_to(y + i, e, n - i);
        total = total + (i + V <= n ? e : v_select(v_first(n - i), e, v_zero()));
    }
    return v_sum(total);
}

static void route_token(const struct node *n, const float *logits, int64_t t, float *room, float *y)
{
    const struct route_weights_params *p = node_params(n, struct route_weights_params);
    int64_t k = n->out->ne[0], width = n->src[0]->ne[0];
    float below = 1, sum = 0;
    if (p->mode == ROUTE_SOFTMAX)
        below = exponentials(logits, room, width);
    for (int64_t j = 0; j < k; j++) {
        int64_t id = tensor_read_index(n->src[1], j, t);
        bool there = id >= 0 && id < width;
        y[j] = !there ? p->mode == ROUTE_SOFTMAX ? 0 : -INFINITY : p->mode == ROUTE_SOFTMAX ? room[id] : logits[id];
    }
    if (p->mode == ROUTE_SOFTMAX_SELECTED)
        below = exponentials(y, y, k);
    for (int64_t j = 0; j < k && p->mode == ROUTE_SIGMOID; j += V)
        v_store_up_to(y + j, v_all(1) / (v_all(1) + v_exp(-v_load_up_to(y + j, k - j))), k - j);
    for (int64_t j = 0; j < k; j++)
        sum += y[j] = y[j] / below;
    float factor = p->scale / (p->normalise ? sum > 0x1p-14f ? sum : 0x1p-14f : 1);
    for (int64_t j = 0; j < k; j++)
        y[j] *= factor;
}

static int run(const struct exec *x, const struct node *n)
{
    int64_t lo, hi;
    char *at = x->worker.scratch;
    struct rows in = rows_of(n->src[0], &at);
    float *room = (float *)(void *)at, *y = room + n->src[0]->ne[0] + V;
    worker_range(&x->worker, n->out->ne[1], 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        route_token(n, row_read(&in, t), t, room, y);
        memcpy(tensor_row(n->out, t, 0, 0), y, sizeof *y * (size_t)n->out->ne[0]);
    }
    return 0;
}

const struct kernel cpu_route_weights_avx2 = {.op = OP_ROUTE_WEIGHTS,
                                              .variant = FLOATS_VARIANT,
                                              .needs = FLOATS_NEEDS,
                                              .fits = fits,
                                              .scratch = scratch,
                                              .run = run};
