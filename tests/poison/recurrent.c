/* recurrent.c: the gated delta rule gone wrong: heads, slots, sequences, and what chunks of tokens hand to each other. */
#include "poison.h"

#include <math.h>

#define RULES(X)                                                                                                               \
    X(rule_right)                                                                                                              \
    X(border_decay)   /* the first token behind a chunk of 16 finds the state not decayed */                                   \
    X(chunk_stale)    /* a token reads the state before its chunk, not what the chunk wrote */                                 \
    X(self_missed)    /* a token's result lacks its own correction */                                                          \
    X(heads_grouped)  /* neighbours share a key, whatever the parameter says */                                                \
    X(slot_unchecked) /* a slot below zero is the first */                                                                     \
    X(slot_exchanged) /* the new state goes to where the old one was */                                                        \
    X(strays_left)    /* tokens of no sequence get no zeros */                                                                 \
    X(order_lost)     /* tokens of a sequence from the last to the first */

#define FAULT(name) FAULT_##name,
enum fault { RULES(FAULT) };
#undef FAULT

enum { CHUNK = 16 };

struct rule {
    const struct hone_node *n;
    enum fault fault;
    int64_t d_k, d_v, head, key_head;
    double *s, *before; /* [d_k][d_v]: the state, and as it was before the chunk */
};

static double value(const struct hone_tensor *t, int64_t i0, int64_t i1, int64_t i2)
{
    return (double)get_f32(row_of(t, i1, i2, 0) + i0 * t->nb[0]);
}

/* Token t, the number `at` of its sequence in the step. */
static void token(const struct rule *r, int64_t t, int64_t at)
{
    const struct hone_tensor *q = r->n->src[0], *k = r->n->src[1], *v = r->n->src[2], *out = r->n->out;
    double decay = exp(value(r->n->src[3], r->head, t, 0)), beta = value(r->n->src[4], r->head, t, 0);
    double scale = hone_number(r->n, "scale", 0);
    if (r->fault == FAULT_border_decay && at && at % CHUNK == 0)
        decay = 1;
    if (at % CHUNK == 0)
        memcpy(r->before, r->s, sizeof *r->s * (size_t)(r->d_k * r->d_v));
    const double *read = r->fault == FAULT_chunk_stale ? r->before : r->s;
    for (int64_t j = 0; j < r->d_v; j++) {
        double kv = 0, y = 0;
        for (int64_t i = 0; i < r->d_k; i++)
            kv += decay * read[i * r->d_v + j] * value(k, i, r->key_head, t);
        double delta = beta * (value(v, j, r->head, t) - kv);
        for (int64_t i = 0; i < r->d_k; i++) {
            double *s = &r->s[i * r->d_v + j], old = decay * *s;
            *s = old + delta * value(k, i, r->key_head, t);
            y += (r->fault == FAULT_self_missed ? old : *s) * value(q, i, r->key_head, t);
        }
        put_f32(row_of(out, r->head, t, 0) + j * out->nb[0], scale * y);
    }
}

static void sequence(const struct rule *r, int32_t seq)
{
    const struct hone_tensor *state = r->n->src[5], *of = r->n->src[6], *slots = r->n->src[7];
    int64_t from = whole(slots, 0, seq), to = whole(slots, 1, seq), n_tokens = of->ne[0], at = 0;
    if (r->fault == FAULT_slot_unchecked && from < 0)
        from = 0;
    if (r->fault == FAULT_slot_exchanged && from >= 0 && from < state->ne[3])
        to = from;
    for (int64_t i = 0; i < r->d_k; i++)
        for (int64_t j = 0; j < r->d_v; j++)
            r->s[i * r->d_v + j] =
                from < 0 || from >= state->ne[3] ? 0 : (double)get_f32(row_of(state, i, r->head, from) + j * state->nb[0]);
    for (int64_t i = 0; i < n_tokens; i++) {
        int64_t t = r->fault == FAULT_order_lost ? n_tokens - 1 - i : i;
        if (whole(of, t, 0) == seq)
            token(r, t, at++);
    }
    for (int64_t i = 0; i < r->d_k && at && to >= 0 && to < state->ne[3]; i++)
        for (int64_t j = 0; j < r->d_v; j++)
            put_f32(row_of(state, i, r->head, to) + j * state->nb[0], r->s[i * r->d_v + j]);
}

static int rule(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *q = n->src[0], *out = n->out, *of = n->src[6], *slots = n->src[7];
    struct rule r = {.n = n, .fault = fault, .d_k = q->ne[0], .d_v = out->ne[0], .s = ctx->scratch};
    int64_t first, last;
    r.before = r.s + r.d_k * r.d_v;
    hone_share(out->ne[1], 1, ith, nth, &first, &last);
    for (r.head = first; r.head < last; r.head++) {
        r.key_head = strcmp(hone_word(n, "heads"), "tiled") || fault == FAULT_heads_grouped ? r.head / (out->ne[1] / q->ne[1])
                                                                                            : r.head % q->ne[1];
        for (int64_t t = 0; t < out->ne[2] && fault != FAULT_strays_left; t++)
            for (int64_t j = 0; j < out->ne[0] && (whole(of, t, 0) < 0 || whole(of, t, 0) >= slots->ne[1]); j++)
                put_f32(row_of(out, r.head, t, 0) + j * out->nb[0], 0);
        for (int32_t seq = 0; seq < slots->ne[1]; seq++)
            sequence(&r, seq);
    }
    return 0;
}

static uint64_t rule_scratch(const struct hone_node *n)
{
    return 2 * sizeof(double) * (uint64_t)(n->src[0]->ne[0] * n->src[2]->ne[0]);
}

static int fits_all(const struct hone_node *n, char *why, size_t size)
{
    return n->n_src == 8 ? 1 : refuse(why, size, "not the sources of the rule");
}

#define RULE(name) POISON(gated_delta_rule, name, rule, fits_all, .scratch = rule_scratch)
RULES(RULE)

#define RULE_ROW(name) &gated_delta_rule_##name,
static const struct hone_kernel *const kernels[] = {RULES(RULE_ROW) NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "poison-recurrent", .kernels = kernels};
