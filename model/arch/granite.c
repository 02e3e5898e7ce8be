/* granite.c: the architecture "granite" (IBM, Granite 3): Llama with scales from the file: of the embeddings, of what each block adds to
 * the residual, of attention and of the logits. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NORM, .activation = UNARY_SILU};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_granite = {"granite", load, decoder_build};
