/* gated_delta_rule.h: params of gated_delta_rule; the op is described in gated_delta_rule.c. */
#ifndef OPS_GATED_DELTA_RULE_H
#define OPS_GATED_DELTA_RULE_H

#include "ops/ops.h"

/* Which head of q and k value head j has, of n_k among n_v: tiled, j mod n_k (qwen35); grouped, j / (n_v / n_k) (qwen3next). */
enum delta_heads { DELTA_TILED, DELTA_GROUPED };

struct gated_delta_rule_params {
    float scale;   /* of q */
    int32_t heads; /* enum delta_heads */
};
extern const struct op_param gated_delta_rule_param_list[];

static inline int64_t delta_key_head(const struct gated_delta_rule_params *p, int64_t value_head, int64_t n_k, int64_t n_v)
{
    return p->heads == DELTA_TILED ? value_head % n_k : value_head / (n_v / n_k);
}

#endif
