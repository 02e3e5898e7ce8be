/* qwen3.c: the architecture "qwen3" (Qwen Team, arXiv 2505.09388): qwen2 with an RMS norm of each head of q and k in place of biases. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NEOX, .activation = UNARY_SILU, .qk = QK_NORM_HEAD};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_qwen3 = {"qwen3", load, decoder_build};
