/* tokenizer.h: text to token ids and back, by the vocabulary that a GGUF file carries (keys tokenizer.ggml.*).
 *
 * Two models: byte-level BPE ("gpt2", with a named pre-tokenizer pattern; "gemma4" is a cousin) and SentencePiece ("llama":
 * merges by score, with byte fallback). Added tokens (control and user-defined) match first, the longest of those that begin at
 * a place. Plain text never becomes a control token. Immutable once open: threads may share one. */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include "model/gguf.h"

struct tokenizer;

enum token_kind { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* Copies what it needs: g may be closed afterwards. A missing or unknown model and an unknown pre-tokenizer are HONE_EINPUT
 * that lists those known; a missing pre-tokenizer is read as "default", with a warning to the log; "no_vocab" opens with vocab
 * size 0 and refuses to encode. */
int tokenizer_open(struct tokenizer **out, const struct gguf *g, struct hone_error *e);
void tokenizer_close(struct tokenizer *t); /* t may be NULL */

int32_t tokenizer_size(const struct tokenizer *t);
/* Special ids; -1 where the file has none. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_add_bos(const struct tokenizer *t);
/* The token ends a generation: eos, eot, eom, and the end markers of chat families ("<|im_end|>", "<end_of_turn>",
 * "<|eot_id|>"). */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
/* The token as the file has it, not NUL-terminated; empty for ids out of range. */
struct gguf_string tokenizer_token(const struct tokenizer *t, int32_t id);
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);
/* Id of an exact token text, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t size);
/* The file's chat template (tokenizer.chat_template), or NULL. */
const char *tokenizer_chat_template(const struct tokenizer *t);

struct token_list {
    int32_t *ids; /* malloc'd */
    size_t n, cap;
};
void token_list_free(struct token_list *l);

enum {
    TOKENIZE_SPECIAL = 1, /* match control tokens in the text (user-defined ones always match) */
    TOKENIZE_BOS = 2,     /* prepend bos if the file says that it wants one */
};
/* Appends the ids of text (any bytes; invalid UTF-8 is taken byte by byte) to *out; on failure *out is as before. Bytes that a
 * byte-level vocabulary lacks are left out, with a warning to the log. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, unsigned flags, struct token_list *out,
                     struct hone_error *e);

/* Bytes of one token as they stand in text: control tokens give nothing unless special. *out grows with malloc; n is
 * appended to. SentencePiece's leading space of a text is the caller's to strip (see tokenizer_decode). */
struct text {
    char *data; /* malloc'd, NUL-terminated once non-empty */
    size_t n, cap;
};
void text_free(struct text *t);
int text_append(struct text *t, const void *data, size_t n, struct hone_error *e);
int tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool special, struct text *out, struct hone_error *e);
/* The whole list back to text: encode followed by decode gives the input back, but for a U+2581 under SentencePiece (a space).
 * The spaces that encoding put before the text and behind added tokens are taken away again. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct text *out,
                     struct hone_error *e);

/* While streaming: of the n bytes at data, how many can be shown now; the rest is a UTF-8 sequence still incomplete (at most
 * 3 bytes). Invalid bytes count as showable. */
size_t utf8_complete(const char *data, size_t n);

#endif
