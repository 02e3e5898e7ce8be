/* decoder.h: the decoder that most architectures are, with what they differ in as data: a residual stream, attention and a feed-forward
 * block a layer, norms before or behind each, scales. An architecture whose layers are of this kind is a table of differences; one
 * that is not (gemma3, the hybrids) puts the blocks of blocks.h together itself. */
#ifndef MODEL_ARCH_DECODER_H
#define MODEL_ARCH_DECODER_H

#include "model/arch/blocks.h"

struct decoder_layer {
    struct tensor *attn_norm, *ffn_norm;           /* before the blocks; NULL: none */
    struct tensor *attn_post_norm, *ffn_post_norm; /* behind them, before the residual is added; NULL: none */
    struct attention_block attention;
    struct ffn_block ffn;
    struct experts_block experts; /* instead; n_expert 0: none */
};

struct decoder {
    float eps;
    float embedding_scale, residual_scale, logit_scale; /* 1: none. The logits are multiplied with the last */
    struct tensor *token_embd, *output_norm;
    struct linear output;
    struct decoder_layer *layers;
};

/* What the file does not say. */
struct decoder_kind {
    enum rope_mode rope;
    enum unary_kind activation;
    bool post_norm;    /* norms stand behind the blocks instead of before them */
    enum { QK_PLAIN, QK_NORM_HEAD, QK_NORM_ALL } qk; /* RMS norm of each head of q and k, or of all heads together */
    bool fused_qkv, fused_gate_up; /* attn_qkv is one matrix; ffn_up holds gate and up */
    int no_rope_every; /* each n-th layer has no rope; 0: none */
    int full_every;    /* each n-th layer attends to everything, the others to a window; 0: all to everything */
    const char *ffn_norm; /* the tensor's name; NULL: the usual one */
    enum { EXPERTS_NEVER, EXPERTS_WHERE_SAID, EXPERTS_ALWAYS } experts; /* where said: by the key expert_count */
    struct route_weights_params route;
    struct glu_params glu; /* of the experts */
};

/* Reads keys and tensors of all layers into m->params. */
int decoder_load(struct model *m, struct loader *l, const struct decoder_kind *kind, struct hone_error *e);
void decoder_build(const struct model *m, struct graph *g, const struct step_inputs *in);

#endif
