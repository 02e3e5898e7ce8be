/* delta_net.h: the kernel of gated_delta_net: the gates, the norms of q and k, the delta rule and the gated norm behind it,
 * head by head in one go: a decode step of a layer meets once instead of ten times, and nothing but its result leaves the
 * caches.
 *
 * A worker owns whole heads of values. For each block of tokens it computes their gates, vectors of tokens at a time, and their
 * normed keys and queries (again for each head of values that shares them: 1 % of the rule's work), runs the rule (delta.h)
 * into the rows of the result, and norms and gates those in place. Each step rounds as the kernel of its part does, so fused
 * and unfused give the same bits. Bound, in a decode step, by the state: 64 KB a head read and written. */
#ifndef BACKENDS_CPU_DELTA_NET_H
#define BACKENDS_CPU_DELTA_NET_H

#include "backends/cpu/delta.h"
#include "backends/cpu/norm.h"

/* Sources and parts by what they are; ops/gated_delta_net.c. */
enum { NET_Q, NET_K, NET_V, NET_ALPHA, NET_DT, NET_A, NET_B, NET_STATE, NET_SEQUENCES, NET_SLOTS, NET_Z, NET_WEIGHT };
enum { NET_L2_Q = 4, NET_L2_K, NET_RULE, NET_RMS_NORM };

static inline bool net_fits(const struct node *n, struct reason *r)
{
    const struct tensor *rows[] = {n->src[NET_Q], n->src[NET_K], n->src[NET_V], n->src[NET_Z], n->src[NET_WEIGHT], n->out};
    for (int i = 0; i < 6; i++)
        if (rows[i]->nb[0] != sizeof(float) || rows[i]->format != FORMAT_F32)
            return fits_not(r, "the elements of a row of %.60s do not lie one behind the other", rows[i]->name);
    if (n->n_also)
        return fits_not(r, "%.60s is read by others", n->also[0]->name);
    return delta_state_fits(n->src[NET_STATE], r);
}

/* What a worker has for a block of tokens. */
struct net_room {
    struct delta_room *rule;
    float *q, *k; /* [DELTA_BLOCK][d_k]: normed */
    float decay[DELTA_BLOCK], beta[DELTA_BLOCK];
    struct delta_token tokens[DELTA_BLOCK];
};

static inline size_t net_scratch(const struct node *n)
{
    const struct tensor *state = n->src[NET_STATE];
    return delta_room_bytes() + 2 * sizeof(float) * DELTA_BLOCK * (size_t)state->ne[1] + sizeof(struct net_room) + 64 +
           (sizeof(int32_t) * (size_t)n->src[NET_V]->ne[2] + 63) / 64 * 64 + state->nb[1] * (size_t)state->ne[1];
}

/* One a head and token: [n_v, n_tokens], or [n_v / n_k, n_k, n_tokens]. */
INLINE float net_value(const struct tensor *t, int64_t head, int64_t token, int64_t n_tokens)
{
    bool plain = t->ne[1] == n_tokens && t->ne[2] == 1;
    return plain ? delta_value(t, head, token, 0) : delta_value(t, head % t->ne[0], head / t->ne[0], token);
}

static inline void net_gates(const struct node *n, int64_t head, const int32_t *list, int n_tokens, struct net_room *room)
{
    const struct tensor *dt = n->src[NET_DT], *a = n->src[NET_A];
    int64_t all = n->src[NET_V]->ne[2];
    vf bias = v_all(delta_value(dt, head % dt->ne[0], head / dt->ne[0], 0)),
       factor = v_all(delta_value(a, head % a->ne[0], head / a->ne[0], 0));
    for (int t = 0; t < n_tokens; t++) {
        room->decay[t] = net_value(n->src[NET_ALPHA], head, list[t], all);
        room->beta[t] = net_value(n->src[NET_B], head, list[t], all);
    }
    for (int t = 0; t < n_tokens; t += V) {
        int some = n_tokens - t < V ? n_tokens - t : V;
        vf g = v_unary(UNARY_SOFTPLUS, v_load_up_to(room->decay + t, some) + bias);
        g = g * factor;
        v_store_up_to(room->decay + t, v_exp(g), some);
        v_store_up_to(room->beta + t, v_unary(UNARY_SIGMOID, v_load_up_to(room->beta + t, some)), some);
    }
}

INLINE void net_l2_norm(const float *x, float eps, float *y, int64_t n)
{
    vf scale = v_all((float)(1 / sqrt(norm_sum_squares(x, NULL, n) + (double)eps)));
    for (int64_t i = 0; i < n; i += V)
        v_store_up_to(y + i, v_load_up_to(x + i, n - i) * scale, n - i);
}

static inline void net_tokens(const struct node *n, int64_t head, const int32_t *list, int n_tokens, struct net_room *room)
{
    const struct tensor *q = n->src[NET_Q], *k = n->src[NET_K], *v = n->src[NET_V];
    int64_t d_k = q->ne[0], key_head = delta_key_head(node_params(n, struct gated_delta_rule_params), head, q->ne[1], v->ne[1]);
    float eps_q = node_params(n->parts[NET_L2_Q], struct l2_norm_params)->eps;
    float eps_k = node_params(n->parts[NET_L2_K], struct l2_norm_params)->eps;
    net_gates(n, head, list, n_tokens, room);
    for (int t = 0; t < n_tokens; t++) {
        float *q_t = room->q + t * d_k, *k_t = room->k + t * d_k;
        net_l2_norm(tensor_row(q, key_head, list[t], 0), eps_q, q_t, d_k);
        net_l2_norm(tensor_row(k, key_head, list[t], 0), eps_k, k_t, d_k);
        room->tokens[t] = (struct delta_token){.q = q_t,
                                               .k = k_t,
                                               .v = tensor_row(v, head, list[t], 0),
                                               .y = tensor_row(n->out, head, list[t], 0),
                                               .decay = room->decay[t],
                                               .beta = room->beta[t]};
    }
}

/* y = silu(z) (rms_norm(y) w), in place. */
static inline void net_gated_norm(const struct node *n, int64_t head, const int32_t *list, int n_tokens)
{
    const float *w = n->src[NET_WEIGHT]->data;
    int64_t d_v = n->out->ne[0];
    double eps = (double)node_params(n->parts[NET_RMS_NORM], struct rms_norm_params)->eps;
    for (int t = 0; t < n_tokens; t++) {
        const float *z = tensor_row(n->src[NET_Z], head, list[t], 0);
        float *y = tensor_row(n->out, head, list[t], 0);
        vf scale = v_all((float)(1 / sqrt(norm_sum_squares(y, NULL, d_v) / (double)d_v + eps)));
        for (int64_t i = 0; i < d_v; i += V) {
            vf normed = v_load_up_to(y + i, d_v - i) * scale;
            normed = normed * v_load_up_to(w + i, d_v - i);
            v_store_up_to(y + i, v_unary(UNARY_SILU, v_load_up_to(z + i, d_v - i)) * normed, d_v - i);
        }
    }
}

static inline void net_strays(const struct node *n, int64_t head, int32_t *list)
{
    int64_t n_tokens = recurrent_strays(n->src[NET_SEQUENCES], n->src[NET_SLOTS], list);
    for (int64_t t = 0; t < n_tokens; t++) {
        memset(tensor_row(n->out, head, list[t], 0), 0, sizeof(float) * (size_t)n->out->ne[0]);
        net_gated_norm(n, head, list + t, 1);
    }
}

static inline int net_run(const struct exec *x, const struct node *n)
{
    const struct tensor *state = n->src[NET_STATE], *sequences = n->src[NET_SEQUENCES], *slots = n->src[NET_SLOTS];
    const float scale = node_params(n, struct gated_delta_rule_params)->scale;
    char *at = x->worker.scratch;
    struct net_room *room = (struct net_room *)(void *)(at + delta_room_bytes());
    room->rule = (struct delta_room *)(void *)at;
    room->q = (float *)(void *)(at + delta_room_bytes() + (sizeof *room + 63) / 64 * 64);
    room->k = room->q + DELTA_BLOCK * state->ne[1];
    int32_t *list = (int32_t *)(void *)(room->k + DELTA_BLOCK * state->ne[1]);
    char *spare = (char *)list + (sizeof *list * (size_t)n->out->ne[2] + 63) / 64 * 64;
    int64_t lo, hi;
    worker_range(&x->worker, n->out->ne[1], 1, &lo, &hi);
    for (int64_t head = lo; head < hi; head++) {
        net_strays(n, head, list);
        for (int64_t seq = 0; seq < slots->ne[1]; seq++) {
            int64_t n_tokens = recurrent_tokens(sequences, seq, list);
            struct delta_head h = delta_head_of(state, slots, seq, head, scale, spare);
            for (int64_t t = 0; t < n_tokens; t += DELTA_BLOCK) {
                int some = (int)(n_tokens - t < DELTA_BLOCK ? n_tokens - t : DELTA_BLOCK);
                net_tokens(n, head, list + t, some, room);
                delta_block(&h, room->tokens, some, room->rule);
                delta_go_on(&h);
                net_gated_norm(n, head, list + t, some);
            }
        }
    }
    return 0;
}

#endif
