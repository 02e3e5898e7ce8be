/* qwen3next.c: the architecture "qwen3next" (Qwen3-Next 80B-A3B): the hybrid that qwen35 came from. Its heads of V are grouped,
 * so that neighbours share a head of K, beta and alpha are one matrix, and every layer has experts. Files from before its
 * converter split attn_qkv and attn_gate have ssm_in in their place, interleaved by head of K; their tensors are refused by
 * name. */
#include "model/arch/hybrid.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct hybrid_kind kind = {.heads = DELTA_GROUPED, .joint_beta_alpha = true, .experts = true};
    return hybrid_load(m, l, &kind, e);
}

const struct arch arch_qwen3next = {"qwen3next", load, hybrid_build};
