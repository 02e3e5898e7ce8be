/* attention.h: params of attention: causal scaled dot-product attention of several sequences over cells of a KV cache.
 *
 * src[0] q f32 [head_dim, n_head, n_tokens]; src[1] k [head_dim, n_cells, n_kv_head]; src[2] v [head_dim_v, n_cells,
 * n_kv_head]: any float format; n_head is a multiple of n_kv_head, head h reads KV head h / (n_head / n_kv_head).
 * src[3] positions i32 [n_tokens]; src[4] sequences i32 [n_tokens]; src[5] map i32 [n_ctx, n_seq]: map[p + s n_ctx] is the
 * cell that holds position p of sequence s. src[6], optional: sinks f32 [n_head].
 * out f32 [head_dim_v, n_head, n_tokens].
 *
 * Token t of sequence s at position p attends to positions lo..p, lo = window ? max(0, p - window + 1) : 0:
 *   a_j = softcap ? softcap * tanh(s q.k_j / softcap) : s q.k_j; out = sum_j softmax(a)_j v_j,
 * where s = scale (1 + temperature ln(1 + floor(p / temperature_period))): scale itself up to the first period, and where there
 * is no temperature. A sink is one more a_j whose value is zero. A negative position gives zeros. */
#ifndef OPS_ATTENTION_H
#define OPS_ATTENTION_H

#include "ops/ops.h"

struct attention_params {
    float scale, softcap; /* softcap 0: none */
    int32_t window;       /* 0: all positions up to the token's own */
    float temperature; /* 0: none. How fast queries are turned up beyond each temperature_period positions (Llama 4, Ministral
                          3) */
    int32_t temperature_period;
};

/* The cost of a run that reads n_cells cells of each KV head, in n_pairs pairs of a token and a position that it attends to:
 * what a trace that knows the positions asks for. op_desc.cost takes the whole map, the upper bound. */
struct cost attention_cost_at(const struct node *n, int64_t n_cells, int64_t n_pairs);

#endif
