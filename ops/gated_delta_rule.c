/* gated_delta_rule.c: linear attention whose state is a matrix a head, decayed and corrected at every token: the gated delta
 * rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464).
 *
 * src[0] q, src[1] k f32 [d_k, n_k, n_tokens]; src[2] v f32 [d_v, n_v, n_tokens], n_v a multiple of n_k; src[3] g f32 [n_v,
 * n_tokens], the logarithm of the decay, not above 0 in a sane model; src[4] beta f32 [n_v, n_tokens]; src[5] state f32 [d_v,
 * d_k, n_v, n_slots], written in place; src[6] sequences i32 [n_tokens]; src[7] slots i32 [2, n_seq] (recurrent.h). out f32
 * [d_v, n_v, n_tokens]. For each value head and each token of a sequence, in order, with S the state [d_v, d_k] as a map from
 * keys to values: S = exp(g) S;  S = S + beta (v - S k) k^T;  out = scale S q.
 *
 * The reference keeps S in double through the tokens of a step and rounds it to f32 where the step ends, as a kernel's state
 * is: so steps of another length differ by that rounding alone. The chunked form of the paper, matrix products over blocks of
 * tokens, is a kernel's business (backends/cpu/delta_chunk.h); the definition is one token after the other. A worker owns whole
 * heads. */
#include "ops/gated_delta_rule.h"
#include "ops/recurrent.h"

#include <math.h>
#include <string.h>

static int check_values(const struct node *n, struct hone_error *e)
{
    const struct tensor *q = n->src[0], *k = n->src[1], *v = n->src[2], *state = n->src[5];
    char a[128], b[128], c[128];
    if (!tensor_same_shape(q, k) || q->ne[3] != 1 || v->ne[3] != 1 || q->ne[2] != v->ne[2] || q->ne[1] < 1 ||
        v->ne[1] % q->ne[1] != 0)
        return op_refuse(n, e, "q %s, k %s and v %s do not fit as [d_k, n_k, t], the same, and [d_v, n_v, t]",
                         tensor_describe(q, a, sizeof a), tensor_describe(k, b, sizeof b), tensor_describe(v, c, sizeof c));
    for (int i = 3; i <= 4; i++)
        if (n->src[i]->ne[0] != v->ne[1] || n->src[i]->ne[1] != v->ne[2] || n->src[i]->ne[2] != 1 || n->src[i]->ne[3] != 1)
            return op_refuse(n, e, "%s %s does not fit v %s: one a head and token", i == 3 ? "g" : "beta",
                             tensor_describe(n->src[i], a, sizeof a), tensor_describe(v, b, sizeof b));
    if (state->ne[0] != v->ne[0] || state->ne[1] != k->ne[0] || state->ne[2] != v->ne[1])
        return op_refuse(n, e, "state %s does not fit k %s and v %s", tensor_describe(state, a, sizeof a),
                         tensor_describe(k, b, sizeof b), tensor_describe(v, c, sizeof c));
    return 0;
}

static int gated_delta_rule_shape(struct node *n, struct hone_error *e)
{
    const struct gated_delta_rule_params *p = node_params(n, struct gated_delta_rule_params);
    int rc = op_check(n, e);
    for (int i = 0; i < 5 && !rc; i++)
        rc = op_check_format(n, i, FORMAT_F32, e);
    for (int i = 0; i < 5 && !rc; i++)
        rc = op_check_unpacked(n, i, e);
    if (!rc)
        rc = recurrent_shape(n, 5, 4, 6, 7, n->src[2]->ne[2], e);
    if (!rc)
        rc = check_values(n, e);
    if (!rc && (!isfinite(p->scale) || (p->heads != DELTA_TILED && p->heads != DELTA_GROUPED)))
        rc = op_refuse(n, e, "scale %g, heads %d", (double)p->scale, p->heads);
    return rc ? rc : op_set_out(n, FORMAT_F32, n->src[2]->ne, e);
}

/* The state and S k as double, four rows of floats, the list of tokens. */
static size_t gated_delta_rule_scratch(const struct node *n)
{
    size_t d_k = (size_t)n->src[0]->ne[0], d_v = (size_t)n->src[2]->ne[0];
    return (d_k * d_v + d_v) * sizeof(double) + 2 * (d_k + d_v) * sizeof(float) + (size_t)n->src[2]->ne[2] * sizeof(int32_t);
}

struct head {
    const struct node *node;
    int64_t key_head, value_head, d_k, d_v;
    double *s, *kv;       /* [d_k][d_v], [d_v] */
    float *q, *k, *v, *y; /* rooms of a row */
};

static double value_at(const struct tensor *t, int64_t i0, int64_t i1)
{
    float x;
    memcpy(&x, (const char *)t->data + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1], sizeof x);
    return (double)x;
}

/* One token of a head: S moves on, and y is the result. */
static void step(const struct head *h, int64_t t)
{
    const struct node *n = h->node;
    const float *q = tensor_read_row(n->src[0], h->key_head, t, 0, h->q),
                *k = tensor_read_row(n->src[1], h->key_head, t, 0, h->k);
    const float *v = tensor_read_row(n->src[2], h->value_head, t, 0, h->v);
    double decay = exp(value_at(n->src[3], h->value_head, t)), beta = value_at(n->src[4], h->value_head, t);
    double scale = (double)node_params(n, struct gated_delta_rule_params)->scale;
    memset(h->kv, 0, sizeof *h->kv * (size_t)h->d_v);
    for (int64_t i = 0; i < h->d_k; i++)
        for (int64_t j = 0; j < h->d_v; j++) {
            h->s[i * h->d_v + j] *= decay;
            h->kv[j] += h->s[i * h->d_v + j] * (double)k[i];
        }
    for (int64_t j = 0; j < h->d_v; j++) {
        double delta = beta * ((double)v[j] - h->kv[j]), sum = 0;
        for (int64_t i = 0; i < h->d_k; i++) {
            h->s[i * h->d_v + j] += delta * (double)k[i];
            sum += h->s[i * h->d_v + j] * (double)q[i];
        }
        h->y[j] = (float)(scale * sum);
    }
    tensor_write_row(n->out, h->value_head, t, 0, h->y);
}

static void run_sequence(const struct head *h, int64_t seq, const int32_t *tokens, int64_t n_tokens)
{
    const struct tensor *state = h->node->src[5], *slots = h->node->src[7];
    int64_t from = recurrent_slot(slots, seq, false, state->ne[3]), to = recurrent_slot(slots, seq, true, state->ne[3]);
    for (int64_t i = 0; i < h->d_k; i++) {
        const float *row = from < 0 ? NULL : tensor_read_row(state, i, h->value_head, from, h->v);
        for (int64_t j = 0; j < h->d_v; j++)
            h->s[i * h->d_v + j] = row ? (double)row[j] : 0;
    }
    for (int64_t t = 0; t < n_tokens; t++)
        step(h, tokens[t]);
    for (int64_t i = 0; i < h->d_k && to >= 0; i++) {
        for (int64_t j = 0; j < h->d_v; j++)
            h->y[j] = (float)h->s[i * h->d_v + j];
        tensor_write_row(state, i, h->value_head, to, h->y);
    }
}

static void gated_delta_rule_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *q = n->src[0], *v = n->src[2], *sequences = n->src[6], *slots = n->src[7];
    const struct gated_delta_rule_params *p = node_params(n, struct gated_delta_rule_params);
    struct head h = {.node = n, .d_k = q->ne[0], .d_v = v->ne[0], .s = w->scratch};
    h.kv = h.s + h.d_k * h.d_v;
    h.q = (float *)(void *)(h.kv + h.d_v);
    h.k = h.q + h.d_k;
    h.v = h.k + h.d_k;
    h.y = h.v + h.d_v;
    int32_t *tokens = (int32_t *)(void *)(h.y + h.d_v);
    int64_t lo, hi, n_tokens;
    worker_range(w, v->ne[1], 1, &lo, &hi);
    for (h.value_head = lo; h.value_head < hi; h.value_head++) {
        h.key_head = delta_key_head(p, h.value_head, q->ne[1], v->ne[1]);
        memset(h.y, 0, sizeof *h.y * (size_t)h.d_v);
        n_tokens = recurrent_strays(sequences, slots, tokens);
        for (int64_t t = 0; t < n_tokens; t++)
            tensor_write_row(n->out, h.value_head, tokens[t], 0, h.y);
        for (int64_t seq = 0; seq < slots->ne[1]; seq++)
            if ((n_tokens = recurrent_tokens(sequences, seq, tokens)) > 0)
                run_sequence(&h, seq, tokens, n_tokens);
    }
}

/* One state read and one written; more where a step has several sequences, which shapes do not say. Three products of a matrix
 * and a vector, and the decay. */
static struct cost gated_delta_rule_cost(const struct node *n)
{
    struct cost c = {0};
    const struct tensor *state = n->src[5];
    double one = sizeof(float) * (double)state->ne[0] * (double)state->ne[1] * (double)state->ne[2];
    for (int i = 0; i < 5; i++)
        c.read += op_stored_bytes(n->src[i]);
    c.read += op_stored_bytes(n->src[6]) + one;
    c.written = op_stored_bytes(n->out) + one;
    c.flops = 7 * (double)state->ne[0] * (double)state->ne[1] * (double)state->ne[2] * (double)n->out->ne[2];
    return c;
}

/* d values a key and a value, n_k and n_v heads, t tokens. */
#define HEADS(d, n, t, fill)                                                                                                   \
    {                                                                                                                          \
        FORMAT_F32, {d, n, t}, FILL_##fill                                                                                     \
    }
#define GATES(n, t)                                                                                                            \
    {FORMAT_F32, {n, t}, FILL_NEGATIVE},                                                                                       \
    {                                                                                                                          \
        FORMAT_F32, {n, t}, FILL_SHARE                                                                                         \
    }
#define STATE(d_v, d_k, n_v, slots)                                                                                            \
    {                                                                                                                          \
        FORMAT_F32, {d_v, d_k, n_v, slots}, FILL_NORMAL                                                                        \
    }
#define VALUES(d_k, d_v, n_k, n_v, t, slots)                                                                                   \
    HEADS(d_k, n_k, t, UNIT), HEADS(d_k, n_k, t, UNIT), HEADS(d_v, n_v, t, NORMAL), GATES(n_v, t), STATE(d_v, d_k, n_v, slots)
#define OF_ONE(t)                                                                                                              \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_ZERO                                                                                             \
    }
#define OF(t, n)                                                                                                               \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_INDEX, STRIDES_PLAIN, n                                                                          \
    }
#define SLOTS(n_seq, n_slots)                                                                                                  \
    {                                                                                                                          \
        FORMAT_I32, {2, n_seq}, FILL_DISTINCT, STRIDES_PLAIN, n_slots                                                          \
    }
#define FROM(first)                                                                                                            \
    {                                                                                                                          \
        FORMAT_I32, {2, 1}, FILL_ASCENDING, STRIDES_PLAIN, first                                                               \
    }
#define PARAMS(scale, heads)                                                                                                   \
    &(const struct gated_delta_rule_params)                                                                                    \
    {                                                                                                                          \
        scale, heads                                                                                                           \
    }

static const struct op_case cases[] = {
    {"one", {VALUES(1, 1, 1, 1, 1, 2), OF_ONE(1), SLOTS(1, 2)}, PARAMS(1, DELTA_TILED)},
    {"decode_128", {VALUES(128, 128, 2, 6, 1, 2), OF_ONE(1), SLOTS(1, 2)}, PARAMS(0.088f, DELTA_TILED)},
    {"decode_64", {VALUES(64, 64, 3, 6, 1, 3), OF_ONE(1), SLOTS(1, 3)}, PARAMS(0.125f, DELTA_TILED)},
    {"batch_128", {VALUES(128, 128, 2, 2, 9, 2), OF_ONE(9), SLOTS(1, 2)}, PARAMS(0.088f, DELTA_TILED)},
    {"batch_64", {VALUES(64, 64, 3, 6, 33, 2), OF_ONE(33), SLOTS(1, 2)}, PARAMS(0.125f, DELTA_TILED)},
    {"two_tokens", {VALUES(64, 64, 2, 4, 2, 2), OF_ONE(2), SLOTS(1, 2)}, PARAMS(0.125f, DELTA_TILED)},
    {"200_tokens", {VALUES(64, 64, 1, 3, 200, 2), OF_ONE(200), SLOTS(1, 2)}, PARAMS(0.125f, DELTA_TILED)},
    {"grouped", {VALUES(64, 64, 2, 6, 5, 2), OF_ONE(5), SLOTS(1, 2)}, PARAMS(0.125f, DELTA_GROUPED)},
    {"grouped_decode", {VALUES(128, 128, 2, 4, 1, 2), OF_ONE(1), SLOTS(1, 2)}, PARAMS(0.088f, DELTA_GROUPED)},
    {"odd_heads", {VALUES(37, 53, 1, 3, 5, 2), OF_ONE(5), SLOTS(1, 2)}, PARAMS(0.2f, DELTA_TILED)},
    {"wide_values", {VALUES(16, 96, 2, 2, 3, 2), OF_ONE(3), SLOTS(1, 2)}, PARAMS(0.25f, DELTA_TILED)},
    {"head_256", {VALUES(256, 256, 1, 1, 3, 2), OF_ONE(3), SLOTS(1, 2)}, PARAMS(0.0625f, DELTA_TILED)},
    {"begins", {VALUES(64, 64, 1, 2, 5, 2), OF_ONE(5), FROM(-1)}, PARAMS(0.125f, DELTA_TILED)},
    {"begins_decode", {VALUES(64, 64, 1, 2, 1, 2), OF_ONE(1), FROM(-1)}, PARAMS(0.125f, DELTA_TILED)},
    {"leaves_none", {VALUES(64, 64, 1, 2, 5, 2), OF_ONE(5), FROM(1)}, PARAMS(0.125f, DELTA_TILED)},
    {"same_slot", {VALUES(64, 64, 1, 2, 5, 1), OF_ONE(5), {FORMAT_I32, {2, 1}, FILL_ZERO}}, PARAMS(0.125f, DELTA_TILED)},
    {"same_slot_decode", {VALUES(64, 64, 1, 2, 1, 1), OF_ONE(1), {FORMAT_I32, {2, 1}, FILL_ZERO}}, PARAMS(0.125f, DELTA_TILED)},
    {"sequences", {VALUES(64, 64, 1, 2, 19, 9), OF(19, 4), SLOTS(4, 9)}, PARAMS(0.125f, DELTA_TILED)},
    {"some_without_tokens", {VALUES(64, 64, 1, 2, 3, 16), OF(3, 8), SLOTS(8, 16)}, PARAMS(0.125f, DELTA_TILED)},
    {"stray_sequences", {VALUES(64, 64, 1, 2, 9, 9), OF(9, 6), SLOTS(3, 9)}, PARAMS(0.125f, DELTA_TILED)},
    {"no_tokens", {VALUES(64, 64, 1, 2, -1, 2), OF_ONE(-1), SLOTS(1, 2)}, PARAMS(0.125f, DELTA_TILED)},
    {"eight_tokens", {VALUES(64, 64, 1, 2, 8, 2), OF_ONE(8), SLOTS(1, 2)}, PARAMS(0.125f, DELTA_TILED)},
    {"77_tokens_128", {VALUES(128, 128, 1, 2, 77, 2), OF_ONE(77), SLOTS(1, 2)}, PARAMS(0.088f, DELTA_TILED)},
    {"begins_90", {VALUES(64, 64, 1, 2, 90, 2), OF_ONE(90), FROM(-1)}, PARAMS(0.125f, DELTA_TILED)},
    {"odd_heads_21", {VALUES(37, 53, 1, 3, 21, 2), OF_ONE(21), SLOTS(1, 2)}, PARAMS(0.2f, DELTA_TILED)},
    {"wide_values_18", {VALUES(16, 96, 2, 2, 18, 2), OF_ONE(18), SLOTS(1, 2)}, PARAMS(0.25f, DELTA_TILED)},
    {"same_slot_40", {VALUES(64, 64, 1, 2, 40, 1), OF_ONE(40), {FORMAT_I32, {2, 1}, FILL_ZERO}}, PARAMS(0.125f, DELTA_TILED)},
    {"long_sequences", {VALUES(64, 64, 1, 2, 90, 9), OF(90, 5), SLOTS(4, 9)}, PARAMS(0.125f, DELTA_TILED)},
    {"no_decay_90",
     {HEADS(64, 1, 90, UNIT),
      HEADS(64, 1, 90, UNIT),
      HEADS(64, 2, 90, NORMAL),
      HEADS(2, 90, 1, ZERO),
      {FORMAT_F32, {2, 90}, FILL_SHARE},
      STATE(64, 64, 2, 2),
      OF_ONE(90),
      SLOTS(1, 2)},
     PARAMS(0.125f, DELTA_TILED)},
    {"padded_33",
     {{FORMAT_F32, {64, 1, 33}, FILL_UNIT, STRIDES_PADDED},
      {FORMAT_F32, {64, 1, 33}, FILL_UNIT, STRIDES_PADDED},
      {FORMAT_F32, {64, 2, 33}, FILL_NORMAL, STRIDES_PADDED},
      GATES(2, 33),
      {FORMAT_F32, {64, 64, 2, 2}, FILL_NORMAL, STRIDES_PADDED},
      OF_ONE(33),
      SLOTS(1, 2)},
     PARAMS(0.125f, DELTA_TILED)},
    {"hostile_33",
     {HEADS(48, 1, 33, UNIT),
      HEADS(48, 1, 33, UNIT),
      HEADS(48, 2, 33, HOSTILE),
      GATES(2, 33),
      {FORMAT_F32, {48, 48, 2, 2}, FILL_HOSTILE},
      OF_ONE(33),
      SLOTS(1, 2)},
     PARAMS(0.144f, DELTA_TILED)},
    {"no_decay",
     {HEADS(64, 1, 7, UNIT),
      HEADS(64, 1, 7, UNIT),
      HEADS(64, 2, 7, NORMAL),
      HEADS(2, 7, 1, ZERO),
      {FORMAT_F32, {2, 7}, FILL_SHARE},
      STATE(64, 64, 2, 2),
      OF_ONE(7),
      SLOTS(1, 2)},
     PARAMS(0.125f, DELTA_TILED)},
    {"padded",
     {{FORMAT_F32, {64, 1, 5}, FILL_UNIT, STRIDES_PADDED},
      {FORMAT_F32, {64, 1, 5}, FILL_UNIT, STRIDES_PADDED},
      {FORMAT_F32, {64, 2, 5}, FILL_NORMAL, STRIDES_PADDED},
      GATES(2, 5),
      {FORMAT_F32, {64, 64, 2, 2}, FILL_NORMAL, STRIDES_PADDED},
      OF_ONE(5),
      SLOTS(1, 2)},
     PARAMS(0.125f, DELTA_TILED)},
    {"permuted",
     {{FORMAT_F32, {64, 2, 5}, FILL_UNIT, STRIDES_PERMUTED},
      {FORMAT_F32, {64, 2, 5}, FILL_UNIT, STRIDES_PERMUTED},
      {FORMAT_F32, {64, 4, 5}, FILL_NORMAL, STRIDES_PERMUTED},
      {FORMAT_F32, {4, 5}, FILL_NEGATIVE, STRIDES_TRANSPOSED},
      {FORMAT_F32, {4, 5}, FILL_SHARE, STRIDES_TRANSPOSED},
      STATE(64, 64, 4, 2),
      OF_ONE(5),
      SLOTS(1, 2)},
     PARAMS(0.125f, DELTA_TILED)},
    {"hostile",
     {HEADS(48, 1, 5, UNIT),
      HEADS(48, 1, 5, UNIT),
      HEADS(48, 2, 5, HOSTILE),
      GATES(2, 5),
      {FORMAT_F32, {48, 48, 2, 2}, FILL_HOSTILE},
      OF_ONE(5),
      SLOTS(1, 2)},
     PARAMS(0.144f, DELTA_TILED)},
};

static const char *heads_word(int32_t heads)
{
    static const char *const words[] = {"tiled", "grouped"};
    return heads >= 0 && heads < 2 ? words[heads] : NULL;
}

const struct op_param gated_delta_rule_param_list[] = {
    {OP_REAL(struct gated_delta_rule_params, scale)},
    {OP_WORD(struct gated_delta_rule_params, heads, heads_word)},
    {NULL},
};

const struct op_desc op_gated_delta_rule = {
    .name = "gated_delta_rule",
    .min_src = 8,
    .max_src = 8,
    .updates = 6,
    .params_size = sizeof(struct gated_delta_rule_params),
    .params = gated_delta_rule_param_list,
    .shape = gated_delta_rule_shape,
    .reference = gated_delta_rule_reference,
    .scratch = gated_delta_rule_scratch,
    .cost = gated_delta_rule_cost,
    /* Sums over a key's 128 values in f32, and a state that is rounded at every token: each rounding 6e-8, of which the rule
     * forgets what it corrects and decays. Over 200 tokens without decay 6e-8 sqrt(200) of the state, squared 7e-13. But all values
     * of a head share one product of q and k, and where that cancels to 1/400 of its usual size, once in 500, their common error is
     * 400 times as large: 2.6e-11 was seen. */
    .tolerance = 1e-9,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
