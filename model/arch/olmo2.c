/* olmo2.c: the architecture "olmo2" (Team OLMo, arXiv 2501.00656): norms behind the blocks instead of before them, and RMS norms of
 * q and k over all heads together. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NEOX, .activation = UNARY_SILU, .post_norm = true, .qk = QK_NORM_ALL};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_olmo2 = {"olmo2", load, decoder_build};
