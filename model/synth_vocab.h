/* synth_vocab.h: a made-up vocabulary that tokenizers can use. */
#ifndef MODEL_SYNTH_VOCAB_H
#define MODEL_SYNTH_VOCAB_H

#include "model/gguf.h"

enum { SYNTH_VOCAB_MIN = 256 + 2, SYNTH_VOCAB_MAX = 1 << 22 };

/* Declares the tokenizer.ggml.* values of n tokens (SYNTH_VOCAB_MIN to _MAX): byte-level BPE under the pre-tokenizer `pre`.
 * Memory comes from the arena. */
int synth_vocab_write(struct gguf_writer *w, int32_t n, const char *pre, bool add_bos, struct arena *arena,
                      struct hone_error *e);

#endif
