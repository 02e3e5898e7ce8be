/* pretokenizer.h: cuts a text into the words that byte-pair encoding may not merge across. Private to the tokenizer.
 *
 * The name in a GGUF file (tokenizer.ggml.pre) picks a row of pretokenizers.def. */
#ifndef MODEL_PRETOKENIZER_H
#define MODEL_PRETOKENIZER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer; /* compiled patterns; immutable, threads may share one */

/* An unknown name is HONE_EINPUT that lists those known. */
int pretokenizer_open(struct pretokenizer **out, const char *name, size_t size, struct hone_error *e);
void pretokenizer_close(struct pretokenizer *p); /* may be NULL */
/* The names in the order of the table; NULL past the last. */
const char *pretokenizer_name(int i);
/* A word that is a token as it stands needs no merging (Hugging Face's ignore_merges). */
bool pretokenizer_ignores_merges(const struct pretokenizer *p);
/* Files with this name want a bos token unless they say otherwise. */
bool pretokenizer_adds_bos(const struct pretokenizer *p);

/* Called for each word, text[begin, end), in order and without gaps; a non-zero result ends the split and is returned. */
typedef int pretokenizer_word_fn(void *context, size_t begin, size_t end);
/* Cuts text[0, n); any bytes. What is not UTF-8 counts as one replacement character a byte. */
int pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n, pretokenizer_word_fn *word, void *context,
                       struct hone_error *e);

#endif
