/* hybrid.h: the decoder of the Gated DeltaNet hybrids, with what they differ in as data: most layers are linear attention with
 * a recurrent state, every fourth or so is attention over all positions, whose output is gated. */
#ifndef MODEL_ARCH_HYBRID_H
#define MODEL_ARCH_HYBRID_H

#include "model/arch/delta_net.h"

struct hybrid_layer {
    struct tensor *attn_norm, *post_norm; /* before the layer's attention of either kind; before its feed-forward block */
    bool recurrent;
    struct delta_net_block delta;
    struct attention_block attention; /* q is twice as wide: for each head its query, then its gate */
    struct ffn_block ffn;
    struct experts_block experts; /* instead, where n_expert is not 0 */
};

struct hybrid {
    float eps;
    struct tensor *token_embd, *output_norm;
    struct linear output;
    struct hybrid_layer *layers;
};

/* What the file does not say. */
struct hybrid_kind {
    enum delta_heads heads;
    bool joint_beta_alpha, experts;
};

/* Reads keys and tensors of all layers into m->params. m->n_layer becomes the number of layers of the main pass; blocks behind
 * them, which predict further tokens, are left out with a word. */
int hybrid_load(struct model *m, struct loader *l, const struct hybrid_kind *kind, struct hone_error *e);
void hybrid_build(const struct model *m, struct graph *g, const struct step_inputs *in);

#endif
