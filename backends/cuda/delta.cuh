/* delta.cuh: what the kernels of the delta rule share: their task, the gates of a token, and how a node becomes a task. */
#ifndef BACKENDS_CUDA_DELTA_CUH
#define BACKENDS_CUDA_DELTA_CUH

#include "backends/cuda/recurrent.cuh"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/unary.cuh"

extern "C" {
#include "ops/gated_delta_rule.h"
#include "ops/l2_norm.h"
#include "ops/rms_norm.h"
}

/* Sources of gated_delta_net by what they are (ops/gated_delta_net.c), and parts. */
enum { NET_Q, NET_K, NET_V, NET_ALPHA, NET_DT, NET_A, NET_B, NET_STATE, NET_SEQUENCES, NET_SLOTS, NET_Z, NET_WEIGHT };
enum { NET_L2_Q = 4, NET_L2_K, NET_RULE, NET_RMS_NORM };

struct delta_task {
    struct view q, k, v, state, sequences, slots, y;
    struct view g, beta;               /* of the net: alpha and b, before their functions */
    struct view dt, a, z, weight;      /* of the net only */
    float scale, eps_q, eps_k, eps_out;
    int n_seq, d_k, d_v;
    bool grouped;
};

/* One a head and token: [n_v, n_tokens], or [n_v / n_k, n_k, n_tokens]. */
__device__ static inline float delta_value(const struct view &t, int64_t head, int64_t token, int64_t n_tokens)
{
    if (t.ne[1] == n_tokens && t.ne[2] == 1)
        return *view_f32(t, head, token, 0, 0);
    return *view_f32(t, head % t.ne[0], head / t.ne[0], token, 0);
}

__device__ static inline int delta_key_head_of(const struct delta_task &p, int head)
{
    int n_k = (int)p.q.ne[1];
    return p.grouped ? head / ((int)p.v.ne[1] / n_k) : head % n_k;
}

/* How much of the state a token keeps, and how much of its value is written. */
template <bool NET> __device__ static inline float2 delta_gates(const struct delta_task &p, int head, int token)
{
    if (!NET)
        return make_float2(expf(*view_f32(p.g, head, token, 0, 0)), *view_f32(p.beta, head, token, 0, 0));
    float dt = *view_f32(p.dt, head % p.dt.ne[0], head / p.dt.ne[0], 0, 0), a = *view_f32(p.a, head % p.a.ne[0], head / p.a.ne[0], 0, 0);
    return make_float2(expf(softplus(delta_value(p.g, head, token, p.v.ne[2]) + dt) * a), sigmoid(delta_value(p.beta, head, token, p.v.ne[2])));
}

/* A value of the net's result, from that of the rule and its row's factor. */
__device__ static inline float delta_gated(const struct delta_task &p, float y, float scale, int column, int head, int token)
{
    return silu(*view_f32(p.z, column, head, token, 0)) * (y * scale * *view_f32(p.weight, column, 0, 0, 0));
}

/* ---- on the host */

static inline void delta_task_common(struct delta_task *p, const struct node *n)
{
    const struct gated_delta_rule_params *of = node_params(n, struct gated_delta_rule_params);
    p->scale = of->scale;
    p->grouped = of->heads == DELTA_GROUPED;
    p->y = view_of(n->out);
    p->n_seq = (int)p->slots.ne[1];
    p->d_k = (int)p->k.ne[0];
    p->d_v = (int)p->v.ne[0];
}

static inline struct delta_task delta_net_task(const struct node *n)
{
    struct delta_task p = {};
    p.q = view_of(n->src[NET_Q]);
    p.k = view_of(n->src[NET_K]);
    p.v = view_of(n->src[NET_V]);
    p.g = view_of(n->src[NET_ALPHA]);
    p.beta = view_of(n->src[NET_B]);
    p.dt = view_of(n->src[NET_DT]);
    p.a = view_of(n->src[NET_A]);
    p.state = view_of(n->src[NET_STATE]);
    p.sequences = view_of(n->src[NET_SEQUENCES]);
    p.slots = view_of(n->src[NET_SLOTS]);
    p.z = view_of(n->src[NET_Z]);
    p.weight = view_of(n->src[NET_WEIGHT]);
    p.eps_q = node_params(n->parts[NET_L2_Q], struct l2_norm_params)->eps;
    p.eps_k = node_params(n->parts[NET_L2_K], struct l2_norm_params)->eps;
    p.eps_out = node_params(n->parts[NET_RMS_NORM], struct rms_norm_params)->eps;
    delta_task_common(&p, n);
    return p;
}

#endif
