/* delta_net.h: a Gated DeltaNet layer (Yang, Kautz and Hatamizadeh, arXiv 2412.06464, as Qwen3-Next and Qwen 3.5 have it):
 * linear attention with a recurrent state in place of attention over all positions. */
#ifndef MODEL_ARCH_DELTA_NET_H
#define MODEL_ARCH_DELTA_NET_H

#include "model/arch/blocks.h"
#include "ops/gated_delta_rule.h"

struct delta_net_block {
    int32_t n_k, n_v, dim; /* heads of q and k, of v; size of all of them */
    struct linear qkv, z, output;
    struct linear beta, alpha;
    struct linear beta_alpha; /* instead of both: for each head of k the beta of its heads of v, then their alpha */
    struct tensor *conv, *dt, *a, *norm;
    float eps;
    enum delta_heads heads;
};

/* ssm.* and the tensors of layer l->layer; sets its part of model->memory. joint: beta and alpha are one matrix, ssm_ba. */
void delta_net_load(struct loader *l, struct delta_net_block *b, enum delta_heads heads, bool joint, float eps);
/* From the normed input x to the output projection. */
struct tensor *build_delta_net(struct graph *g, const struct delta_net_block *b, struct tensor *x,
                               const struct step_inputs *in);

#endif
