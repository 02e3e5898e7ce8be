/* delta.h: the kernel of gated_delta_rule, and what it shares with that of gated_delta_net: the states of a sequence, and the
 * choice between steps and chunks.
 *
 * A worker owns whole heads of values and takes the tokens of a sequence in blocks of DELTA_BLOCK. A block of DELTA_FEW tokens
 * or more goes in chunks (delta_chunk.h), fewer go one by one (delta_step.h); which of the two is decided by how many tokens of
 * the sequence the step has, never by threads or what else is in the step, so the same step gives the same bits. */
#ifndef BACKENDS_CPU_DELTA_H
#define BACKENDS_CPU_DELTA_H

#include "backends/cpu/delta_chunk.h"
#include "backends/cpu/rows.h"
#include "ops/gated_delta_rule.h"
#include "ops/recurrent.h"

/* A block of tokens, n_tokens > 0: all columns. */
static inline void delta_block(const struct delta_head *h, struct delta_token *tokens, int n_tokens, struct delta_room *room)
{
    if (n_tokens >= DELTA_FEW) {
        delta_chunks(h, tokens, n_tokens, room);
        return;
    }
    for (int t = 0; t < n_tokens; t++)
        tokens[t].qk = delta_dot(tokens[t].q, tokens[t].k, h->d_k);
    int64_t j = 0;
    if (n_tokens == 1) {
        for (; j + DELTA_WIDE * V <= h->d_v; j += DELTA_WIDE * V)
            delta_one(h, tokens, j, DELTA_WIDE);
        for (; j + V <= h->d_v; j += V)
            delta_one(h, tokens, j, 1);
    }
    for (; j + DELTA_COLUMNS * V <= h->d_v; j += DELTA_COLUMNS * V)
        delta_many(h, tokens, n_tokens, j, DELTA_COLUMNS * V, DELTA_COLUMNS, room->state);
    for (; j < h->d_v; j += V)
        delta_many(h, tokens, n_tokens, j, h->d_v - j < V ? h->d_v - j : V, 1, room->state);
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

static inline size_t delta_room_bytes(void)
{
    return (sizeof(struct delta_room) + 63) / 64 * 64;
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
    struct delta_room *room = (struct delta_room *)(void *)at;
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
