/* smollm3.c: the architecture "smollm3" (Hugging Face, 2025): Llama whose every fourth layer has no rope (NoPE, Yang et al.,
 * arXiv 2501.18795). */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NORM, .activation = UNARY_SILU, .no_rope_every = 4};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_smollm3 = {"smollm3", load, decoder_build};
