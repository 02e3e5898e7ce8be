/* attention.c: causal scaled dot-product attention (Vaswani et al., arXiv 1706.03762) with grouped KV heads (Ainslie et al.,
 * 2305.13245), a sliding window, a soft cap and sinks, over several sequences whose positions lie in cells of one cache. See
 * attention.h.
 *
 * The reference takes the definition: all scores of a query in scratch, their maximum, then the weighted sum. The running
 * maximum of fused kernels would save the scratch, and is what a reference should not share with them. A worker owns whole
 * queries (token, head).
 *
 * The engine sees to it that the map holds a cell for every position that a token attends to. A broken map must not make the
 * reference read elsewhere: a position beyond the map or a sequence without one gives zeros like a negative position,
 * and a cell outside of the cache counts as absent. */
#include "ops/attention.h"
#include "ops/dot.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static int attention_check_sources(const struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    for (int i = 1; i <= 2 && !rc; i++)
        rc = op_check_float(n, i, e);
    for (int i = 3; i <= 5 && !rc; i++)
        rc = op_check_format(n, i, FORMAT_I32, e);
    if (!rc && n->n_src > 6 && n->src[6])
        rc = op_check_format(n, 6, FORMAT_F32, e);
    return rc;
}

static bool is_vector(const struct tensor *t, int64_t n)
{
    return t->ne[0] == n && t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1;
}

static int attention_shape(struct node *n, struct hone_error *e)
{
    int rc = attention_check_sources(n, e);
    if (rc)
        return rc;
    const struct tensor *q = n->src[0], *k = n->src[1], *v = n->src[2], *map = n->src[5];
    const struct attention_params *p = node_params(n, struct attention_params);
    char a[128], b[128], c[128];
    if (q->ne[3] != 1 || k->ne[3] != 1 || v->ne[3] != 1 || q->ne[0] != k->ne[0] || k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2])
        return op_refuse(n, e, "q %s, k %s and v %s do not fit as [d, h, t], [d, cells, kv] and [dv, cells, kv]",
                         tensor_describe(q, a, sizeof a), tensor_describe(k, b, sizeof b), tensor_describe(v, c, sizeof c));
    if (k->ne[2] == 0 || q->ne[1] % k->ne[2] != 0)
        return op_refuse(n, e, "the heads of q %s are no multiple of those of k %s", tensor_describe(q, a, sizeof a),
                         tensor_describe(k, b, sizeof b));
    if (!is_vector(n->src[3], q->ne[2]) || !is_vector(n->src[4], q->ne[2]))
        return op_refuse(n, e, "positions %s and sequences %s for the tokens of q %s", tensor_describe(n->src[3], b, sizeof b),
                         tensor_describe(n->src[4], c, sizeof c), tensor_describe(q, a, sizeof a));
    if (map->ne[2] != 1 || map->ne[3] != 1)
        return op_refuse(n, e, "map %s is not [n_ctx, n_seq]", tensor_describe(map, a, sizeof a));
    if (n->n_src > 6 && n->src[6] && !is_vector(n->src[6], q->ne[1]))
        return op_refuse(n, e, "sinks %s for the heads of q %s", tensor_describe(n->src[6], b, sizeof b),
                         tensor_describe(q, a, sizeof a));
    if (!isfinite(p->scale) || !(p->softcap >= 0) || isinf(p->softcap) || p->window < 0)
        return op_refuse(n, e, "scale %g, softcap %g, window %d", (double)p->scale, (double)p->softcap, p->window);
    if (!isfinite(p->temperature) || (p->temperature != 0 && p->temperature_period < 1))
        return op_refuse(n, e, "temperature %g each %d positions", (double)p->temperature, p->temperature_period);
    return op_set_out(n, FORMAT_F32, (const int64_t[MAX_DIMS]){v->ne[0], q->ne[1], q->ne[2], 1}, e);
}

/* The longest span of positions that one query attends to. */
static int64_t span_limit(const struct node *n)
{
    int64_t n_ctx = n->src[5]->ne[0], window = node_params(n, struct attention_params)->window;
    return window && window < n_ctx ? window : n_ctx;
}

/* Scores, the query and the sum of values as double; a row of K or V, or the output, as f32. */
static size_t attention_scratch(const struct node *n)
{
    size_t d = (size_t)n->src[0]->ne[0], d_v = (size_t)n->src[2]->ne[0];
    return ((size_t)span_limit(n) + d + d_v) * sizeof(double) + (d > d_v ? d : d_v) * sizeof(float);
}

/* One query's view of the cache. */
struct query {
    const struct node *node;
    const struct dot *dot;
    int64_t head, kv_head, sequence, low, high; /* attends to positions low to high */
    double scale;                               /* with its temperature */
    double *values, *scores, *sum;              /* [head_dim], [high - low + 1], [head_dim_v] */
    float *room;                                /* a row of K or V */
};

/* The cell of a position, or -1. */
static int64_t query_cell(const struct query *q, int64_t position)
{
    int64_t cell = tensor_read_index(q->node->src[5], position, q->sequence);
    return cell < q->node->src[1]->ne[1] ? cell : -1;
}

static double scale_at(const struct attention_params *p, int64_t position)
{
    double periods = p->temperature != 0 && position > 0 ? floor((double)position / p->temperature_period) : 0;
    return (double)p->scale * (1 + (double)p->temperature * log(1 + periods));
}

/* Fills the scores; returns the largest of them and the sink's. */
static double query_scores(const struct query *q, double sink)
{
    const struct attention_params *p = node_params(q->node, struct attention_params);
    const struct tensor *k = q->node->src[1];
    int64_t d = k->ne[0];
    double max = sink;
    for (int64_t j = q->low; j <= q->high; j++) {
        int64_t cell = query_cell(q, j);
        double score = -INFINITY;
        if (cell >= 0) {
            const float *row = tensor_read_row(k, cell, q->kv_head, 0, q->room);
            q->dot->block(&row, 1, q->values, d, 1, d, &score);
            score *= q->scale;
            if (p->softcap > 0)
                score = (double)p->softcap * tanh(score / (double)p->softcap);
        }
        q->scores[j - q->low] = score;
        max = score > max ? score : max;
    }
    return max;
}

/* sum = sum over j of softmax(scores)_j v_j. */
static void query_sum(const struct query *q, double sink, double max)
{
    const struct tensor *v = q->node->src[2];
    double total = sink == -INFINITY ? 0 : exp(sink - max);
    for (int64_t j = q->low; j <= q->high; j++) {
        int64_t cell = query_cell(q, j);
        if (cell < 0)
            continue;
        double weight = exp(q->scores[j - q->low] - max);
        total += weight;
        q->dot->accumulate(weight, tensor_read_row(v, cell, q->kv_head, 0, q->room), q->sum, v->ne[0]);
    }
    for (int64_t i = 0; i < v->ne[0]; i++)
        q->sum[i] = total == 0 ? 0 : q->sum[i] / total;
}

static void attention_query(const struct node *n, int64_t head, int64_t token, void *scratch)
{
    const struct tensor *k = n->src[1], *map = n->src[5], *sinks = n->n_src > 6 ? n->src[6] : NULL;
    int64_t d = k->ne[0], d_v = n->src[2]->ne[0], window = node_params(n, struct attention_params)->window;
    struct query q = {.node = n, .dot = dot_best(), .head = head, .kv_head = head / (n->src[0]->ne[1] / k->ne[2])};
    q.high = tensor_read_index(n->src[3], token, 0);
    q.low = window && q.high >= window ? q.high - window + 1 : 0;
    q.sequence = tensor_read_index(n->src[4], token, 0);
    q.scale = scale_at(node_params(n, struct attention_params), q.high);
    q.scores = scratch;
    q.values = q.scores + span_limit(n);
    q.sum = q.values + d;
    q.room = (float *)(q.sum + d_v);
    memset(q.sum, 0, sizeof *q.sum * (size_t)d_v);
    if (q.high >= 0 && q.high < map->ne[0] && q.sequence >= 0 && q.sequence < map->ne[1]) {
        const float *values = tensor_read_row(n->src[0], head, token, 0, q.room);
        for (int64_t i = 0; i < d; i++)
            q.values[i] = (double)values[i];
        float sink = -INFINITY;
        if (sinks)
            memcpy(&sink, (const char *)sinks->data + (size_t)head * sinks->nb[0], sizeof sink);
        query_sum(&q, (double)sink, query_scores(&q, (double)sink));
    }
    for (int64_t i = 0; i < d_v; i++)
        q.room[i] = (float)q.sum[i];
    tensor_write_row(n->out, head, token, 0, q.room);
}

static void attention_reference(const struct node *n, const struct worker *w)
{
    int64_t lo, hi, i[3];
    worker_range(w, tensor_rows(n->out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(n->out, row, i);
        attention_query(n, i[0], i[1], w->scratch);
    }
}

/* With every position of the map attended to: shapes do not say how many are, the positions are an input (rule 3). */
static struct cost attention_cost(const struct node *n)
{
    return attention_cost_at(n, span_limit(n), span_limit(n) * n->src[0]->ne[2]);
}

struct cost attention_cost_at(const struct node *n, int64_t n_cells, int64_t n_pairs)
{
    const struct tensor *q = n->src[0], *k = n->src[1], *v = n->src[2];
    double row =
        (double)format_row_bytes(format_get(k->format), k->ne[0]) + (double)format_row_bytes(format_get(v->format), v->ne[0]);
    return (struct cost){op_stored_bytes(q) + (double)n_cells * (double)k->ne[2] * row, op_stored_bytes(n->out),
                         2 * (double)n_pairs * (double)q->ne[1] * (double)(k->ne[0] + v->ne[0])};
}

/* d values a head, h heads, kv KV heads, t tokens, cells of the cache; positions consecutive from `from`; one sequence. */
#define Q(d, h, t)                                                                                                             \
    {                                                                                                                          \
        FORMAT_F32, {d, h, t}, FILL_NORMAL                                                                                     \
    }
#define KV(NAME, d, cells, kv)                                                                                                 \
    {                                                                                                                          \
        FORMAT_##NAME, {d, cells, kv}, FILL_NORMAL                                                                             \
    }
#define FROM(t, from)                                                                                                          \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_ASCENDING, STRIDES_PLAIN, from                                                                   \
    }
#define RANDOM(t, limit)                                                                                                       \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_INDEX, STRIDES_PLAIN, limit                                                                      \
    }
#define SEQUENCE_0(t)                                                                                                          \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_ZERO                                                                                             \
    }
#define IN_ORDER(n_ctx)                                                                                                        \
    {                                                                                                                          \
        FORMAT_I32, {n_ctx}, FILL_IDENTITY                                                                                     \
    }
#define SHUFFLED(n_ctx, n_seq, cells)                                                                                          \
    {                                                                                                                          \
        FORMAT_I32, {n_ctx, n_seq}, FILL_DISTINCT, STRIDES_PLAIN, cells                                                        \
    }
#define PLAIN(scale)                                                                                                           \
    &(const struct attention_params)                                                                                           \
    {                                                                                                                          \
        scale, 0, 0                                                                                                            \
    }

/* Keys and values of two formats, by one token alone and by neighbours: kernels go different ways for them. Two heads a KV
 * head, so that scores and values of several are made at once; cells out of order. */
#define PAIR(K, k, V, v)                                                                                                       \
    {"decode_" k "_" v,                                                                                                        \
     {Q(64, 4, 1), KV(K, 64, 80, 2), KV(V, 64, 80, 2), FROM(1, 70), SEQUENCE_0(1), SHUFFLED(75, 1, 80)},                       \
     PLAIN(0.125f)},                                                                                                           \
    {                                                                                                                          \
        "prefill_" k "_" v,                                                                                                    \
            {Q(64, 4, 9), KV(K, 64, 80, 2), KV(V, 64, 80, 2), FROM(9, 60), SEQUENCE_0(9), SHUFFLED(75, 1, 80)}, PLAIN(0.125f)  \
    }
#define PAIRS_OF(K, k)                                                                                                         \
    PAIR(K, k, F32, "f32"), PAIR(K, k, F16, "f16"), PAIR(K, k, BF16, "bf16"), PAIR(K, k, Q8_0, "q8_0"),                        \
        PAIR(K, k, Q5_1, "q5_1"), PAIR(K, k, Q5_0, "q5_0"), PAIR(K, k, Q4_1, "q4_1"), PAIR(K, k, Q4_0, "q4_0")

static const struct op_case cases[] = {
    {"one", {Q(1, 1, 1), KV(F32, 1, 1, 1), KV(F32, 1, 1, 1), FROM(1, 0), SEQUENCE_0(1), IN_ORDER(1)}, PLAIN(1)},
    {"first_token",
     {Q(64, 9, 1), KV(F32, 64, 40, 3), KV(F32, 64, 40, 3), FROM(1, 0), SEQUENCE_0(1), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"decode",
     {Q(64, 9, 1), KV(F32, 64, 100, 3), KV(F32, 64, 100, 3), FROM(1, 76), SEQUENCE_0(1), IN_ORDER(100)},
     PLAIN(0.125f)},
    {"decode_full",
     {Q(64, 9, 1), KV(F16, 64, 100, 3), KV(F16, 64, 100, 3), FROM(1, 99), SEQUENCE_0(1), IN_ORDER(100)},
     PLAIN(0.125f)},
    {"prefill",
     {Q(64, 9, 33), KV(F32, 64, 50, 3), KV(F32, 64, 50, 3), FROM(33, 0), SEQUENCE_0(33), IN_ORDER(50)},
     PLAIN(0.125f)},
    {"prefill_f16",
     {Q(64, 9, 33), KV(F16, 64, 50, 3), KV(F16, 64, 50, 3), FROM(33, 0), SEQUENCE_0(33), IN_ORDER(50)},
     PLAIN(0.125f)},
    {"prefill_later",
     {Q(80, 4, 7), KV(F16, 80, 90, 4), KV(F16, 80, 90, 4), FROM(7, 50), SEQUENCE_0(7), IN_ORDER(90)},
     PLAIN(0.11f)},
    {"shuffled",
     {Q(64, 4, 7), KV(F16, 64, 90, 2), KV(F16, 64, 90, 2), FROM(7, 50), SEQUENCE_0(7), SHUFFLED(60, 1, 90)},
     PLAIN(0.125f)},
    {"sequences",
     {Q(64, 4, 9), KV(F16, 64, 130, 2), KV(F16, 64, 130, 2), RANDOM(9, 40), RANDOM(9, 3), SHUFFLED(40, 3, 130)},
     PLAIN(0.125f)},
    {"head_80", {Q(80, 4, 3), KV(F32, 80, 20, 1), KV(F32, 80, 20, 1), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)}, PLAIN(0.1f)},
    {"head_96", {Q(96, 4, 3), KV(F16, 96, 20, 1), KV(F16, 96, 20, 1), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)}, PLAIN(0.1f)},
    {"head_128",
     {Q(128, 16, 3), KV(F16, 128, 40, 1), KV(F16, 128, 40, 1), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.088f)},
    {"head_256",
     {Q(256, 4, 3), KV(F16, 256, 40, 1), KV(F16, 256, 40, 1), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.0625f)},
    {"head_512",
     {Q(512, 2, 3), KV(F16, 512, 20, 1), KV(F16, 512, 20, 1), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)},
     PLAIN(0.044f)},
    {"head_odd", {Q(77, 3, 3), KV(F16, 77, 20, 3), KV(F16, 77, 20, 3), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)}, PLAIN(0.1f)},
    {"value_head_smaller",
     {Q(96, 4, 3), KV(F32, 96, 20, 2), KV(F32, 64, 20, 2), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)},
     PLAIN(0.1f)},
    {"group_1", {Q(64, 5, 3), KV(F16, 64, 20, 5), KV(F16, 64, 20, 5), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)}, PLAIN(0.125f)},
    {"group_3", {Q(64, 6, 3), KV(F16, 64, 20, 2), KV(F16, 64, 20, 2), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)}, PLAIN(0.125f)},
    {"group_5", {Q(64, 10, 3), KV(F16, 64, 20, 2), KV(F16, 64, 20, 2), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)}, PLAIN(0.125f)},
    {"group_16",
     {Q(64, 32, 3), KV(F16, 64, 20, 2), KV(F16, 64, 20, 2), FROM(3, 9), SEQUENCE_0(3), IN_ORDER(20)},
     PLAIN(0.125f)},
    {"kv_bf16",
     {Q(64, 4, 3), KV(BF16, 64, 40, 2), KV(BF16, 64, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"kv_q8_0",
     {Q(64, 4, 3), KV(Q8_0, 64, 40, 2), KV(Q8_0, 64, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"kv_q5_1",
     {Q(64, 4, 3), KV(Q5_1, 64, 40, 2), KV(Q5_1, 64, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"kv_q5_0",
     {Q(64, 4, 3), KV(Q5_0, 64, 40, 2), KV(Q5_0, 64, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"kv_q4_1",
     {Q(64, 4, 3), KV(Q4_1, 64, 40, 2), KV(Q4_1, 64, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"kv_q4_0",
     {Q(64, 4, 3), KV(Q4_0, 64, 40, 2), KV(Q4_0, 64, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.125f)},
    PAIRS_OF(F32, "f32"),
    PAIRS_OF(F16, "f16"),
    PAIRS_OF(BF16, "bf16"),
    PAIRS_OF(Q8_0, "q8_0"),
    PAIRS_OF(Q5_1, "q5_1"),
    PAIRS_OF(Q5_0, "q5_0"),
    PAIRS_OF(Q4_1, "q4_1"),
    PAIRS_OF(Q4_0, "q4_0"),
    {"kv_mixed",
     {Q(128, 4, 3), KV(Q8_0, 128, 40, 2), KV(F16, 128, 40, 2), FROM(3, 30), SEQUENCE_0(3), IN_ORDER(40)},
     PLAIN(0.088f)},
    {"window",
     {Q(64, 4, 20), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(20, 0), SEQUENCE_0(20), IN_ORDER(40)},
     &(const struct attention_params){0.125f, 0, 8}},
    {"window_one",
     {Q(64, 4, 5), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(5, 3), SEQUENCE_0(5), IN_ORDER(40)},
     &(const struct attention_params){0.125f, 0, 1}},
    {"window_wider_than_context",
     {Q(64, 4, 5), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(5, 30), SEQUENCE_0(5), IN_ORDER(40)},
     &(const struct attention_params){0.125f, 0, 4096}},
    {"softcap",
     {Q(128, 4, 5), KV(F16, 128, 40, 2), KV(F16, 128, 40, 2), FROM(5, 30), SEQUENCE_0(5), IN_ORDER(40)},
     &(const struct attention_params){0.5f, 5, 0}},
    {"softcap_window",
     {Q(256, 4, 5), KV(F16, 256, 40, 1), KV(F16, 256, 40, 1), FROM(5, 30), SEQUENCE_0(5), IN_ORDER(40)},
     &(const struct attention_params){0.0625f, 50, 16}},
    {"sinks",
     {Q(64, 8, 5),
      KV(F16, 64, 40, 2),
      KV(F16, 64, 40, 2),
      FROM(5, 3),
      SEQUENCE_0(5),
      IN_ORDER(40),
      {FORMAT_F32, {8}, FILL_NORMAL}},
     PLAIN(0.125f)},
    {"sinks_window",
     {Q(64, 8, 20),
      KV(F16, 64, 40, 1),
      KV(F16, 64, 40, 1),
      FROM(20, 3),
      SEQUENCE_0(20),
      IN_ORDER(40),
      {FORMAT_F32, {8}, FILL_NORMAL}},
     &(const struct attention_params){0.125f, 0, 8}},
    {"temperature",
     {Q(64, 4, 20), KV(F16, 64, 60, 2), KV(F16, 64, 60, 2), FROM(20, 25), SEQUENCE_0(20), IN_ORDER(60)},
     &(const struct attention_params){0.125f, 0, 0, 0.3f, 8}},
    {"temperature_decode",
     {Q(64, 4, 1), KV(F16, 64, 60, 2), KV(F16, 64, 60, 2), FROM(1, 55), SEQUENCE_0(1), IN_ORDER(60)},
     &(const struct attention_params){0.125f, 30, 0, 0.5f, 16}},
    {"negative_positions",
     {Q(64, 4, 6), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(6, -3), SEQUENCE_0(6), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"no_tokens",
     {Q(64, 4, -1), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), SEQUENCE_0(-1), SEQUENCE_0(-1), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"equal_scores",
     {{FORMAT_F32, {64, 4, 5}, FILL_ZERO}, KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(5, 30), SEQUENCE_0(5), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"steep", {Q(64, 4, 5), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(5, 30), SEQUENCE_0(5), IN_ORDER(40)}, PLAIN(2)},
    {"long",
     {Q(64, 3, 2), KV(F16, 64, 2100, 1), KV(F16, 64, 2100, 1), FROM(2, 2050), SEQUENCE_0(2), IN_ORDER(2100)},
     PLAIN(0.125f)},
    /* Many positions a token, and many tokens: what kernels cut into pieces. */
    {"decode_256_long",
     {Q(256, 6, 1), KV(F16, 256, 600, 1), KV(F16, 256, 600, 1), FROM(1, 590), SEQUENCE_0(1), IN_ORDER(600)},
     PLAIN(0.0625f)},
    {"decode_bf16_long",
     {Q(128, 4, 2), KV(BF16, 128, 600, 2), KV(BF16, 128, 600, 2), FROM(2, 590), SEQUENCE_0(2), IN_ORDER(600)},
     PLAIN(0.088f)},
    {"decode_q8_0_long",
     {Q(256, 2, 2), KV(Q8_0, 256, 400, 1), KV(Q8_0, 256, 400, 1), FROM(2, 390), SEQUENCE_0(2), IN_ORDER(400)},
     PLAIN(0.0625f)},
    {"group_12",
     {Q(128, 24, 2), KV(F16, 128, 90, 2), KV(F16, 128, 90, 2), FROM(2, 80), SEQUENCE_0(2), IN_ORDER(90)},
     PLAIN(0.088f)},
    {"prefill_128_bf16",
     {Q(128, 8, 40), KV(BF16, 128, 150, 2), KV(BF16, 128, 150, 2), FROM(40, 100), SEQUENCE_0(40), IN_ORDER(150)},
     PLAIN(0.088f)},
    {"prefill_256",
     {Q(256, 6, 21), KV(F16, 256, 60, 1), KV(F16, 256, 60, 1), FROM(21, 30), SEQUENCE_0(21), SHUFFLED(55, 1, 60)},
     PLAIN(0.0625f)},
    {"prefill_192_bf16",
     {Q(192, 3, 30), KV(BF16, 192, 90, 1), KV(BF16, 192, 90, 1), FROM(30, 50), SEQUENCE_0(30), IN_ORDER(90)},
     PLAIN(0.072f)},
    {"prefill_96",
     {Q(96, 4, 19), KV(F16, 96, 100, 4), KV(F16, 96, 100, 4), FROM(19, 70), SEQUENCE_0(19), IN_ORDER(100)},
     &(const struct attention_params){0.1f, 30, 24}},
    {"prefill_sequences",
     {Q(64, 4, 40), KV(F16, 64, 200, 2), KV(F16, 64, 200, 2), RANDOM(40, 60), RANDOM(40, 3), SHUFFLED(60, 3, 200)},
     PLAIN(0.125f)},
    {"prefill_negative",
     {Q(64, 4, 20), KV(F16, 64, 40, 2), KV(F16, 64, 40, 2), FROM(20, -3), SEQUENCE_0(20), IN_ORDER(40)},
     PLAIN(0.125f)},
    {"padded",
     {{FORMAT_F32, {64, 4, 5}, FILL_NORMAL, STRIDES_PADDED},
      {FORMAT_F16, {64, 40, 2}, FILL_NORMAL, STRIDES_PADDED},
      {FORMAT_F16, {64, 40, 2}, FILL_NORMAL, STRIDES_PADDED},
      FROM(5, 30),
      SEQUENCE_0(5),
      IN_ORDER(40)},
     PLAIN(0.125f)},
    {"transposed",
     {{FORMAT_F32, {64, 4, 5}, FILL_NORMAL, STRIDES_TRANSPOSED},
      {FORMAT_F16, {64, 40, 2}, FILL_NORMAL, STRIDES_TRANSPOSED},
      {FORMAT_F32, {64, 40, 2}, FILL_NORMAL, STRIDES_TRANSPOSED},
      FROM(5, 30),
      SEQUENCE_0(5),
      IN_ORDER(40)},
     PLAIN(0.125f)},
    {"permuted",
     {{FORMAT_F32, {64, 4, 5}, FILL_NORMAL, STRIDES_PERMUTED},
      {FORMAT_F16, {64, 40, 2}, FILL_NORMAL, STRIDES_PERMUTED},
      {FORMAT_F16, {64, 40, 2}, FILL_NORMAL, STRIDES_PERMUTED},
      FROM(5, 30),
      SEQUENCE_0(5),
      IN_ORDER(40)},
     PLAIN(0.125f)},
    /* Of the values only: scores of 1e8 would turn on the rounding of their sums, in any f32 kernel. */
    {"hostile_values",
     {Q(64, 4, 9), KV(F16, 64, 40, 2), {FORMAT_F16, {64, 40, 2}, FILL_HOSTILE}, FROM(9, 20), SEQUENCE_0(9), IN_ORDER(40)},
     PLAIN(0.125f)},
};

static const struct op_param params[] = {
    {OP_REAL(struct attention_params, scale)},
    {OP_REAL(struct attention_params, softcap)},
    {OP_WHOLE(struct attention_params, window)},
    {OP_REAL(struct attention_params, temperature)},
    {OP_WHOLE(struct attention_params, temperature_period)},
    {NULL},
};

const struct op_desc op_attention = {
    .name = "attention",
    .min_src = 6,
    .max_src = 7,
    .params_size = sizeof(struct attention_params),
    .params = params,
    .shape = attention_shape,
    .reference = attention_reference,
    .scratch = attention_scratch,
    .cost = attention_cost,
    /* A score summed in f32 errs by about 1e-6 at the size of 10 that scores have, and a weight by as much of itself; errors of
     * weights average over positions: 1e-12, with room for steep scores and an exponential of some units. */
    .tolerance = 1e-10,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
