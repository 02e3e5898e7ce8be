/* delta.h: the gated delta rule for one head, and the kernel of gated_delta_rule: a state S [d_k][d_v], rows of values one
 * behind the other, that each token decays, reads twice and corrects.
 *
 * With kv = S k and qv = S q taken of the state as it was, a token is
 *   delta = beta (v - decay kv);  S = decay S + k delta^T;  y = scale (decay qv + (q . k) delta),
 * so both sums come from one pass over S, and the correction of one token and the sums of the next from another: two passes for
 * one token, one for each of many. Vectors run over values, so nothing is summed across lanes; a column's sum goes over the
 * keys in order, in whatever way it is cut: a step of one token and a step of many give the same bits.
 *
 * One token: the rows stream from the old slot to the new one, whole rows where registers allow, and the second pass finds
 * them in the second-level cache. The bound is reading and writing 64 KB a head of 128: 16 heads take a core of Emerald Rapids
 * 81 us, and 54 where both slots are one; stores past the cache take 118, asking for the new slot's lines ahead 97. Many
 * tokens: DELTA_COLUMNS vectors of columns at a time lie compact in the first-level cache (32 KB) while the tokens go by, four
 * operations an element and token: 0.82 us a head and token, where two operations a cycle at 2.7 GHz allow 0.76. The chunked
 * form of the paper saves the decay, one operation of the four, and adds a quarter of one in chunks of 16: not taken, for a
 * fifth of what is a fourteenth of a prefill. */
#ifndef BACKENDS_CPU_DELTA_H
#define BACKENDS_CPU_DELTA_H

#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "ops/gated_delta_rule.h"
#include "ops/recurrent.h"

enum {
    DELTA_COLUMNS = V == 16 ? 4 : 2, /* vectors at a time, of many tokens: sums, deltas and rows fit the registers */
    DELTA_WIDE = V == 16 ? 8 : 4,    /* of one token */
    DELTA_MAX_KEYS = 256,
    DELTA_BLOCK = 64 /* tokens a block */
};

/* What one token brings to a head, and where its result goes. */
struct delta_token {
    const float *q, *k, *v;
    float *y;
    float decay, beta, qk; /* qk: q . k */
};

/* One head of one sequence. from and to are its states, rows of d_v floats, row_bytes apart; from NULL: zeros; both may be one.
 */
struct delta_head {
    const char *from;
    char *to;
    size_t row_bytes;
    int64_t d_k, d_v;
    float scale;
};

INLINE float *delta_row(const char *state, const struct delta_head *h, int64_t i)
{
    return (float *)(void *)(uintptr_t)(state + (size_t)i * h->row_bytes);
}

INLINE float delta_dot(const float *a, const float *b, int64_t n)
{
    vf sum = v_zero();
    int64_t i = 0;
    for (; i + V <= n; i += V)
        sum = v_fma(v_load(a + i), v_load(b + i), sum);
    if (i < n)
        sum = v_fma(v_load_first(a + i, n - i), v_load_first(b + i, n - i), sum);
    return v_sum(sum);
}

/* From the sums of a token's vector of columns: its delta; stores the result. */
INLINE vf delta_result(const struct delta_token *t, vf scale, vf kv, vf qv, vf v, float *y, int64_t n)
{
    vf decay = v_all(t->decay), delta = v_all(t->beta) * v_fma(-decay, kv, v);
    v_store_up_to(y, scale * v_fma(v_all(t->qk), delta, decay * qv), n);
    return delta;
}

/* One token, `columns` whole vectors from column j on. */
INLINE void delta_one(const struct delta_head *h, const struct delta_token *t, int64_t j, int columns)
{
    vf kv[DELTA_WIDE], qv[DELTA_WIDE], decay = v_all(t->decay), zero = v_zero();
    UNROLL
    for (int c = 0; c < columns; c++)
        kv[c] = qv[c] = zero;
    for (int64_t i = 0; i < h->d_k && h->from; i++) {
        const float *row = delta_row(h->from, h, i) + j;
        vf k = v_all(t->k[i]), q = v_all(t->q[i]);
        UNROLL
        for (int c = 0; c < columns; c++) {
            vf s = v_load(row + c * V);
            kv[c] = v_fma(s, k, kv[c]);
            qv[c] = v_fma(s, q, qv[c]);
        }
    }
    UNROLL
    for (int c = 0; c < columns; c++)
        kv[c] = delta_result(t, v_all(h->scale), kv[c], qv[c], v_load(t->v + j + c * V), t->y + j + c * V, V);
    for (int64_t i = 0; i < h->d_k; i++) {
        const float *row = h->from ? delta_row(h->from, h, i) + j : NULL;
        float *next = delta_row(h->to, h, i) + j;
        vf k = v_all(t->k[i]);
        UNROLL
        for (int c = 0; c < columns; c++) {
            vf s = row ? v_load(row + c * V) : zero;
            v_store(next + c * V, v_fma(k, kv[c], decay * s));
        }
    }
}

/* Many tokens, up to `columns` vectors: n columns from j on. room: [d_k][columns * V] floats, aligned. The first token finds
 * what the last block left: no delta. */
INLINE void delta_many(const struct delta_head *h, const struct delta_token *tokens, int n_tokens, int64_t j, int64_t n,
                       int columns, float *room)
{
    const int width = columns * V;
    vf delta[DELTA_COLUMNS], scale = v_all(h->scale);
    UNROLL
    for (int c = 0; c < columns; c++)
        delta[c] = v_zero();
    for (int64_t i = 0; i < h->d_k; i++)
        UNROLL
    for (int c = 0; c < columns; c++) {
        vf s = v_zero();
        if (h->from && n > c * V)
            s = v_load_up_to(delta_row(h->from, h, i) + j + c * V, n - c * V);
        v_store(room + i * width + c * V, s);
    }
    for (int t = 0; t < n_tokens; t++) {
        const float *k = tokens[t].k, *q = tokens[t].q, *before = t ? tokens[t - 1].k : NULL;
        vf kv[DELTA_COLUMNS], qv[DELTA_COLUMNS], decay = v_all(t ? tokens[t - 1].decay : 1);
        UNROLL
        for (int c = 0; c < columns; c++)
            kv[c] = qv[c] = v_zero();
        for (int64_t i = 0; i < h->d_k; i++) {
            float *row = room + i * width;
            vf k_i = v_all(k[i]), q_i = v_all(q[i]), before_i = v_all(before ? before[i] : 0);
            UNROLL
            for (int c = 0; c < columns; c++) {
                vf s = v_load(row + c * V);
                if (before) {
                    s = v_fma(before_i, delta[c], decay * s);
                    v_store(row + c * V, s);
                }
                kv[c] = v_fma(s, k_i, kv[c]);
                qv[c] = v_fma(s, q_i, qv[c]);
            }
        }
        UNROLL
        for (int c = 0; c < columns; c++)
            if (n > c * V)
                delta[c] = delta_result(&tokens[t], scale, kv[c], qv[c], v_load_up_to(tokens[t].v + j + c * V, n - c * V),
                                        tokens[t].y + j + c * V, n - c * V);
    }
    const struct delta_token *last = &tokens[n_tokens - 1];
    for (int64_t i = 0; i < h->d_k; i++)
        UNROLL
    for (int c = 0; c < columns; c++)
        if (n > c * V)
            v_store_up_to(delta_row(h->to, h, i) + j + c * V,
                          v_fma(v_all(last->k[i]), delta[c], v_all(last->decay) * v_load(room + i * width + c * V)), n - c * V);
}

/* All columns of a block of tokens, n_tokens > 0. room: [DELTA_MAX_KEYS][DELTA_COLUMNS * V] floats. */
static inline void delta_block(const struct delta_head *h, const struct delta_token *tokens, int n_tokens, float *room)
{
    int64_t j = 0;
    if (n_tokens == 1) {
        for (; j + DELTA_WIDE * V <= h->d_v; j += DELTA_WIDE * V)
            delta_one(h, tokens, j, DELTA_WIDE);
        for (; j + V <= h->d_v; j += V)
            delta_one(h, tokens, j, 1);
    }
    for (; j + DELTA_COLUMNS * V <= h->d_v; j += DELTA_COLUMNS * V)
        delta_many(h, tokens, n_tokens, j, DELTA_COLUMNS * V, DELTA_COLUMNS, room);
    for (; j < h->d_v; j += V)
        delta_many(h, tokens, n_tokens, j, h->d_v - j < V ? h->d_v - j : V, 1, room);
}

/* ---- what the kernels share */

static inline bool delta_state_fits(const struct tensor *state, struct reason *r)
{
    if (state->nb[0] != sizeof(float))
        return fits_not(r, "the elements of a row of %.60s do not lie one behind the other", state->name);
    if (state->ne[1] > DELTA_MAX_KEYS)
        return fits_not(r, "keys of %lld values, more than %d", (long long)state->ne[1], DELTA_MAX_KEYS);
    return true;
}

INLINE float delta_value(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2)
{
    float x;
    memcpy(&x, (const char *)tensor_row(t, i1, i2, 0) + (size_t)i0 * t->nb[0], sizeof x);
    return x;
}

/* Room of delta_many. */
static inline size_t delta_room_bytes(void)
{
    return sizeof(float) * DELTA_MAX_KEYS * DELTA_COLUMNS * V;
}

/* The head's states of a sequence; what is left of it is written to `spare` where it has no slot. */
static inline struct delta_head delta_head_of(const struct tensor *state, const struct tensor *slots, int64_t seq, int64_t head,
                                              float scale, char *spare)
{
    int64_t from = recurrent_slot(slots, seq, false, state->ne[3]), to = recurrent_slot(slots, seq, true, state->ne[3]);
    struct delta_head h = {.d_k = state->ne[1], .d_v = state->ne[0], .scale = scale, .row_bytes = state->nb[1]};
    if (from >= 0)
        h.from = tensor_row(state, 0, head, from);
    h.to = to >= 0 ? tensor_row(state, 0, head, to) : spare;
    return h;
}

/* Behind a block: the next one goes on from there. */
INLINE void delta_go_on(struct delta_head *h)
{
    h->from = h->to;
}

/* ---- gated_delta_rule */

static inline bool rule_fits(const struct node *n, struct reason *r)
{
    const struct tensor *rows[] = {n->src[0], n->src[1], n->src[2], n->out};
    for (int i = 0; i < 4; i++)
        if (rows[i]->nb[0] != sizeof(float))
            return fits_not(r, "the elements of a row of %.60s do not lie one behind the other", rows[i]->name);
    return delta_state_fits(n->src[5], r);
}

static inline size_t rule_scratch(const struct node *n)
{
    /* A spare state has the strides of the real one. */
    return delta_room_bytes() + n->src[5]->nb[1] * (size_t)n->src[5]->ne[1] + 64 + DELTA_BLOCK * sizeof(struct delta_token) +
           sizeof(int32_t) * (size_t)n->out->ne[2];
}

static inline void rule_tokens(const struct node *n, int64_t head, const int32_t *list, int n_tokens,
                               struct delta_token *tokens)
{
    const struct tensor *q = n->src[0], *k = n->src[1], *v = n->src[2];
    int64_t key_head = delta_key_head(node_params(n, struct gated_delta_rule_params), head, q->ne[1], v->ne[1]);
    float decays[DELTA_BLOCK];
    for (int t = 0; t < n_tokens; t++) {
        int64_t at = list[t];
        tokens[t] = (struct delta_token){.q = tensor_row(q, key_head, at, 0),
                                         .k = tensor_row(k, key_head, at, 0),
                                         .v = tensor_row(v, head, at, 0),
                                         .y = tensor_row(n->out, head, at, 0),
                                         .beta = delta_value(n->src[4], head, at, 0)};
        tokens[t].qk = delta_dot(tokens[t].q, tokens[t].k, q->ne[0]);
        decays[t] = delta_value(n->src[3], head, at, 0);
    }
    for (int t = 0; t < n_tokens; t += V) {
        int some = n_tokens - t < V ? n_tokens - t : V;
        v_store_up_to(decays + t, v_exp(v_load_up_to(decays + t, some)), some);
    }
    for (int t = 0; t < n_tokens; t++)
        tokens[t].decay = decays[t];
}

static inline int rule_run(const struct exec *x, const struct node *n)
{
    const struct tensor *state = n->src[5], *sequences = n->src[6], *slots = n->src[7];
    const float scale = node_params(n, struct gated_delta_rule_params)->scale;
    char *at = x->worker.scratch;
    float *room = (float *)(void *)at;
    struct delta_token *tokens = (struct delta_token *)(void *)(at += delta_room_bytes());
    int32_t *list = (int32_t *)(void *)(at += DELTA_BLOCK * sizeof *tokens);
    char *spare = at + (sizeof *list * (size_t)n->out->ne[2] + 63) / 64 * 64;
    int64_t lo, hi;
    worker_range(&x->worker, n->out->ne[1], 1, &lo, &hi);
    for (int64_t head = lo; head < hi; head++) {
        int64_t n_tokens = recurrent_strays(sequences, slots, list);
        for (int64_t t = 0; t < n_tokens; t++)
            memset(tensor_row(n->out, head, list[t], 0), 0, sizeof(float) * (size_t)n->out->ne[0]);
        for (int64_t seq = 0; seq < slots->ne[1]; seq++) {
            n_tokens = recurrent_tokens(sequences, seq, list);
            struct delta_head h = delta_head_of(state, slots, seq, head, scale, spare);
            for (int64_t t = 0; t < n_tokens; t += DELTA_BLOCK) {
                int some = (int)(n_tokens - t < DELTA_BLOCK ? n_tokens - t : DELTA_BLOCK);
                rule_tokens(n, head, list + t, some, tokens);
                delta_block(&h, tokens, some, room);
                delta_go_on(&h);
            }
        }
    }
    return 0;
}

/* Defines cpu_<op>_<isa>. */
#define DELTA_KERNEL(OP, name, fits_fn, scratch_fn, run_fn)                                                                    \
    const struct kernel CPU_KERNEL_NAME(name) = {.op = OP_##OP,                                                                \
                                                 .variant = FLOATS_VARIANT,                                                    \
                                                 .needs = FLOATS_NEEDS,                                                        \
                                                 .fits = fits_fn,                                                              \
                                                 .scratch = scratch_fn,                                                        \
                                                 .run = run_fn}

#endif
