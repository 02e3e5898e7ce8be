/* vocab.h: the tokens of a vocabulary: texts, kinds, special ids, and the id of a text. Private to the tokenizer. */
#ifndef MODEL_VOCAB_H
#define MODEL_VOCAB_H

#include "model/gguf.h"
#include "model/tokenizer.h"

struct vocab_slot {
    int32_t id; /* -1: free */
    uint32_t tag;
};

/* Everything lies in the arena that vocab_read was given. */
struct vocab {
    int32_t n;
    char *text;      /* all tokens' texts, one behind the other */
    uint32_t *start; /* n + 1: where each begins in text */
    uint8_t *kind;   /* n of enum token_kind */
    uint8_t *ends;   /* n: 1 for a token that ends a generation */
    uint32_t *order; /* n: by falling score, equal for equal scores; NULL when the file has no scores. Never UINT32_MAX. */
    size_t longest;  /* bytes of the longest text */
    int32_t bos, eos, unknown; /* -1: none */
    struct vocab_slot *slots;
    uint32_t mask;
};

/* Reads tokenizer.ggml.{tokens,token_type,scores,*_token_id}. Errors name the key. */
int vocab_read(struct vocab *v, struct arena *a, const struct gguf *g, struct hone_error *e);
/* The id of a text, or -1. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t size);

static inline struct gguf_string vocab_token(const struct vocab *v, int32_t id)
{
    return (struct gguf_string){v->text + v->start[id], v->start[id + 1] - v->start[id]};
}

/* Whether plain text may become this token by merging. Control, unknown and byte tokens are never what text spells. */
static inline bool vocab_is_spelled(const struct vocab *v, int32_t id)
{
    return v->kind[id] == TOKEN_NORMAL || v->kind[id] == TOKEN_USER_DEFINED || v->kind[id] == TOKEN_UNUSED;
}

#endif
