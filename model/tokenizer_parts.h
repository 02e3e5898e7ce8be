/* tokenizer_parts.h: what the files of the tokenizer share. Private to them. */
#ifndef MODEL_TOKENIZER_PARTS_H
#define MODEL_TOKENIZER_PARTS_H

#include "model/added.h"
#include "model/merger.h"
#include "model/pretokenizer.h"
#include "model/tokenizer.h"
#include "model/vocab.h"

enum tokenizer_model {
    MODEL_NONE,   /* "no_vocab": refuses to encode */
    MODEL_BPE,    /* "gpt2": words of bytes */
    MODEL_BPE_SP, /* "gemma4": merges like BPE, spaces and byte tokens like SentencePiece */
    MODEL_SPM,    /* "llama" */
};

struct merge {
    uint64_t pair; /* left id << 32 | right id; MERGE_FREE: an empty slot */
    uint32_t rank;
    int32_t id; /* of the token that they make */
};

struct tokenizer {
    struct arena arena; /* everything below but `pre` lies in it */
    enum tokenizer_model model;
    struct vocab vocab;
    struct added added;
    int32_t byte_id[256]; /* the token of a byte, or -1 */
    bool add_bos, space_prefix;
    char *chat_template;
    /* BPE */
    struct pretokenizer *pre;
    struct merge *merges; /* open addressing */
    uint64_t merges_mask;
    /* SentencePiece: a word may be cut between this byte and a U+2581 that follows, since no token spans them. */
    bool cuts[256];
};

/* A word that was encoded before in the same call: where it stood, and which ids it gave. */
struct cached_word {
    uint64_t hash;
    uint32_t at, size;
    uint32_t first_id, n_ids;
};

/* One call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    const char *text;
    struct token_list *out;
    struct merger merger;
    struct text word; /* scratch: a word as the vocabulary spells it */
    struct cached_word *cache;
    uint64_t cache_mask;
    size_t at;   /* the piece of text that is being encoded begins here */
    size_t lost; /* bytes that the vocabulary cannot say */
    struct hone_error *e;
};

/* Reads what the model needs from the file into t->arena. */
int bpe_open(struct tokenizer *t, const struct gguf *g, struct hone_error *e);
int spm_open(struct tokenizer *t, const struct gguf *g, struct hone_error *e);
/* Encodes text[begin, end), which holds no added token. prefix: it begins with a virtual space. */
int bpe_encode(struct encoder *x, size_t begin, size_t end);
int spm_encode(struct encoder *x, size_t begin, size_t end, bool prefix);
/* The bytes that a normal token stands for. */
int bpe_token_bytes(struct gguf_string token, struct text *out, struct hone_error *e);
int spm_token_bytes(struct gguf_string token, struct text *out, struct hone_error *e);
/* Fills byte_id from tokens "<0x00>" to "<0xFF>". */
void byte_tokens_find(struct tokenizer *t);

/* The word text[begin, end) was seen before: its ids are appended, *known set. Else *slot is where to note it afterwards with
 * encoder_note; NULL for words that are not cached. */
int encoder_recall(struct encoder *x, size_t begin, size_t end, bool *known, struct cached_word **slot);
void encoder_note(struct encoder *x, struct cached_word *slot, size_t begin, size_t end, size_t first_id);
/* Appends what stands for bytes that no token spells: byte tokens, else (SentencePiece) the unknown token, else nothing: the
 * byte is counted as lost. */
int encoder_bytes(struct encoder *x, const char *data, size_t n);

int token_list_add(struct token_list *l, int32_t id, struct hone_error *e);
/* At most room - 1 bytes of a string of any bytes, fit for a message. Returns out. */
const char *printable(const char *s, size_t n, char *out, size_t room);

#endif
