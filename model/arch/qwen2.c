/* qwen2.c: the architecture "qwen2": Qwen 1.5, 2 and 2.5 (Qwen Team, arXiv 2407.10671): Llama with biases on q, k and v, and rope on halves. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NEOX, .activation = UNARY_SILU};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_qwen2 = {"qwen2", load, decoder_build};
