/* qwen35.c: the architecture "qwen35": the dense models of Qwen 3.5 and 3.6. Three Gated DeltaNet layers to each layer of gated
 * attention. Facts of its files: heads of V are tiled, so that head j has the head of K j mod n_k; attn_q gives query and gate
 * of each head. */
#include "model/arch/hybrid.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct hybrid_kind kind = {.heads = DELTA_TILED};
    return hybrid_load(m, l, &kind, e);
}

const struct arch arch_qwen35 = {"qwen35", load, hybrid_build};
