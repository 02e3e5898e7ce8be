/* qwen3moe.c: the architecture "qwen3moe" (Qwen Team, arXiv 2505.09388): qwen3 with experts in every layer, whose weights are made to sum
 * to one. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NEOX, .activation = UNARY_SILU, .qk = QK_NORM_HEAD, .experts = EXPERTS_ALWAYS,
                                             .route = {ROUTE_SOFTMAX, 1, 1}, .glu = {UNARY_SILU, 0, 0}};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_qwen3moe = {"qwen3moe", load, decoder_build};
