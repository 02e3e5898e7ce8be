/* model.h: a loaded model: its file, tokenizer, hyper-parameters and weight tensors. Immutable and shared once loaded.
 *
 * What is common to all architectures stands here; each architecture (model/arch/<name>.c) reads its own keys and tensors in `load`
 * and emits its graph in `build`. It knows no device and no session: the step's inputs and the state come as tensors. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "graph/graph.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

/* What one layer keeps of the past: keys and values [head_dim, cells, n_kv_head] of every position; or a recurrent state, of the same size
 * at any length: the last inputs of a convolution [conv_channels, conv_rows] and a matrix [state_dim_v, state_dim_k] a head, f32. */
struct layer_memory {
    int32_t n_kv_head;              /* 0: the layer has no KV cache */
    int32_t head_dim_k, head_dim_v;
    int32_t conv_rows, conv_channels;               /* 0: none */
    int32_t n_state_head, state_dim_k, state_dim_v; /* 0: none */
};

struct model {
    struct arena arena;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    const struct arch *arch;
    int32_t n_layer, n_embd, n_vocab, n_ctx_train;
    int32_t n_ctx_short;         /* sessions for more positions turn their keys otherwise (LongRoPE); 0: all alike */
    struct layer_memory *memory; /* n_layer */
    void *params;                /* the architecture's own struct, with its weight tensors */
    struct tensor **weights;     /* all of them, in file order */
    int n_weights;
    char left_out[400];          /* what of the file has no part in the model, as text; "" */
};

/* What a step brings: inputs that the session fills, and the state that it owns. */
struct step_inputs {
    int32_t n_tokens, n_outputs;
    struct tensor *tokens;    /* i32 [n_tokens] */
    struct tensor *positions; /* i32 [n_tokens] */
    struct tensor *sequences; /* i32 [n_tokens] */
    struct tensor *cells;     /* i32 [n_tokens]: where each token's keys and values go */
    struct tensor *map;       /* i32 [n_ctx, n_seq]: the cell of each position of each sequence */
    struct tensor *outputs;   /* i32 [n_outputs]: the tokens whose logits are wanted */
    struct tensor **k, **v;   /* by layer; NULL where the layer has none */
    struct tensor *slots;     /* i32 [2, n_seq]: where each sequence's recurrent state is read and written; NULL: no layer has one */
    struct tensor **conv, **delta; /* by layer, with all slots; NULL where the layer has none */
};

struct loader; /* model/loader.h */

struct arch {
    const char *name; /* general.architecture */
    /* Reads keys and tensors (model/loader.h), sets n_ctx_train, memory and params. */
    int (*load)(struct model *m, struct loader *l, struct hone_error *e);
    /* Emits the step's graph and sets g->logits [n_vocab, n_outputs]. Errors stick in g. */
    void (*build)(const struct model *m, struct graph *g, const struct step_inputs *in);
};

int model_open(struct model **out, const char *path, struct hone_error *e);
/* Takes ownership of g, also on failure. */
int model_from_gguf(struct model **out, struct gguf *g, struct hone_error *e);
void model_close(struct model *m); /* m may be NULL */
/* The architecture of a name, or NULL; the names of all, ", " between. */
const struct arch *arch_by_name(const char *name, size_t size);
const char *arch_names(void);

#endif
