/* blocks.h: the building blocks that transformer architectures share. Each reads its keys and tensors in a _load function and emits
 * its nodes in another; an architecture puts them together and keeps what is its own. Shapes: [n_embd, n_tokens] and so on,
 * dimension 0 first. */
#ifndef MODEL_ARCH_BLOCKS_H
#define MODEL_ARCH_BLOCKS_H

#include "model/loader.h"
#include "ops/attention.h"
#include "ops/glu.h"
#include "ops/rope.h"
#include "ops/route_weights.h"
#include "ops/unary.h"

/* y = W x + b: weight [n_in, n_out], bias [n_out] or NULL. */
struct linear {
    struct tensor *weight, *bias;
};

struct attention_block {
    int32_t n_head, n_kv_head, head_dim_k, head_dim_v;
    struct linear q, k, v, output;
    struct linear qkv;              /* instead of q, k and v, where the file has them as one matrix */
    struct tensor *q_norm, *k_norm; /* [head_dim_k] or NULL: RMS norm of each head before rope */
    bool norm_all;                  /* the norms are of all heads together: [n_head * head_dim_k] */
    float eps;
    struct rope_params rope;
    bool no_rope;
    struct tensor *rope_factors; /* [n_dims / 2] or NULL */
    struct tensor *factors_long, *factors_short; /* instead, by whether a sequence may grow beyond rope.n_ctx_orig; or NULL */
    struct attention_params params;
    struct tensor *sinks; /* [n_head] or NULL */
};

struct ffn_block {
    struct linear gate, up, down;
    struct linear gate_up; /* instead of the first two: rows of gate, then of up */
    enum unary_kind activation;
};

/* A router that sends each token to a few of many feed-forward blocks, and one that all pass. */
struct experts_block {
    int32_t n_expert, n_used;
    struct linear router;          /* [n_embd, n_expert] */
    struct linear gate, up, down;  /* weights [n_in, n_out, n_expert], biases [n_out, n_expert] */
    struct glu_params glu;
    struct route_weights_params route;
    struct ffn_block shared;       /* down.weight NULL: none */
    struct tensor *shared_gate;    /* [n_embd]: its sigmoid weighs the shared block; NULL: none */
};

/* <name>.weight [n_in, n_out], and <name>.bias where the file has it. */
struct linear linear_load(struct loader *l, const char *name, int64_t n_in, int64_t n_out);
/* Head counts and sizes of layer l->layer; sets model->memory[l->layer]. False after an error. */
bool attention_load_sizes(struct loader *l, struct attention_block *a);
/* The same with q k v output and their biases. */
void attention_load(struct loader *l, struct attention_block *a);
/* The same with q, k and v in one matrix, attn_qkv. */
void attention_load_fused(struct loader *l, struct attention_block *a);
/* rope.dimension_count, rope.freq_base and rope.scaling.* into *r. */
void rope_load(struct loader *l, struct rope_params *r, enum rope_mode mode, int32_t head_dim);
void ffn_load(struct loader *l, struct ffn_block *f, enum unary_kind activation);
/* ffn_up holds gate and up. */
void ffn_load_fused(struct loader *l, struct ffn_block *f, enum unary_kind activation);

/* expert_count, expert_used_count and the blocks' tensors; route and glu are the architecture's to set before. */
void experts_load(struct loader *l, struct experts_block *x);

struct tensor *build_linear(struct graph *g, const struct linear *w, struct tensor *x, const char *name);
/* rms_norm(x) * weight. */
struct tensor *build_norm(struct graph *g, struct tensor *x, struct tensor *weight, float eps, const char *name);
/* Attention over the layer's KV cells, from the normed input x to the output projection. */
struct tensor *build_attention(struct graph *g, const struct attention_block *a, struct tensor *x, const struct step_inputs *in);
struct tensor *build_ffn(struct graph *g, const struct ffn_block *f, struct tensor *x);
struct tensor *build_experts(struct graph *g, const struct experts_block *b, struct tensor *x);
/* Rows of the tokens whose logits are wanted; emitted behind the last layer's attention, for it and for its residual. */
struct tensor *build_outputs(struct graph *g, struct tensor *x, const struct step_inputs *in, const char *name);

#endif
