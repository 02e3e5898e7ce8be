/* vocabulary.h: are two models' tokenizers one and the same? Scores and logits of two models may be laid side by side only if
 * token 17 is the same token in both, and the same text gives both the same ids. */
#ifndef LAB_VOCABULARY_H
#define LAB_VOCABULARY_H

#include "model/tokenizer.h"

#include <jansson.h>

/* Of all that decides what ids mean and what a text becomes: tokens, kinds, merges, scores, special ids; not of the chat
 * template, nor of what only other programs use (padding, fill-in-the-middle). */
uint64_t vocabulary_hash(const struct gguf *g);
/* What tells b's tokenizer from a's, as an array of sentences (empty: nothing does): every such key that differs, with the
 * first place and how many there are, and the ids of a probe text of many kinds of words, digits, spaces and scripts. *minor,
 * unless minor is NULL: the keys that only other programs use, likewise. NULL: no memory. */
json_t *vocabulary_differences(const struct gguf *a, const struct gguf *b, json_t **minor);

#endif
