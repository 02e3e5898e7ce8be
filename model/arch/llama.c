/* llama.c: the architecture "llama": Llama 1 to 3.x, Mistral 7B, SmolLM 1 and 2 and all that were converted under this name.
 * Pre-norm transformer, RMS norm, rope on neighbouring pairs (the converter permuted q and k for it), grouped-query attention,
 * SwiGLU; with experts it is Mixtral (Jiang et al., 2401.04088). Llama 3.1's rope scaling comes as the tensor rope_freqs (Touvron et al., arXiv 2302.13971; Llama Team, 2407.21783). */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NORM, .activation = UNARY_SILU, .experts = EXPERTS_WHERE_SAID,
                                             .route = {ROUTE_SOFTMAX, 1, 1}, .glu = {UNARY_SILU, 0, 0}};
    return decoder_load(m, l, &kind, e);
}

const struct arch arch_llama = {"llama", load, decoder_build};
