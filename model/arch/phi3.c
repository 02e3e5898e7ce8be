/* phi3.c: the architecture "phi3": Phi 3, 3.5 and 4 (Abdin et al., arXiv 2404.14219): q, k and v are one matrix, gate and up another. The
 * long-context models have two sets of rope factors (LongRoPE, Ding et al., 2402.13753), chosen by how long a sequence may grow, and a
 * magnitude that the file states. */
#include "model/arch/decoder.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NEOX, .activation = UNARY_SILU, .fused_qkv = true, .fused_gate_up = true};
    int rc = decoder_load(m, l, &kind, e);
    int32_t window = loader_int(l, "attention.sliding_window", OPTIONAL, 0, 0, 1 << 30);
    struct decoder *p = m->params;
    for (int i = 0; i < m->n_layer && !rc && !l->error.code; i++)
        p->layers[i].attention.params.window = window < m->n_ctx_train ? window : 0;
    return rc;
}

const struct arch arch_phi3 = {"phi3", load, decoder_build};
