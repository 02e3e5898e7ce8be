/* gpt_oss.c: the architecture "gpt-oss" (OpenAI, arXiv 2508.10925): biases everywhere, attention sinks (Xiao et al., 2309.17453), every other
 * layer within a sliding window, YaRN, and experts whose gate is x sigmoid(1.702 x) with both inputs limited to 7 and one added to the
 * other factor. Weights are the softmax of the chosen logits alone. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NEOX, .full_every = 2, .ffn_norm = "post_attention_norm", .experts = EXPERTS_ALWAYS,
                                             .route = {ROUTE_SOFTMAX_SELECTED, 0, 1}, .glu = {UNARY_GELU_QUICK, 7, 1}};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_gpt_oss = {"gpt-oss", load, decoder_build};
