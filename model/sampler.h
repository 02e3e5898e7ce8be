/* sampler.h: from logits to the next token. Deterministic: the same seed, settings and logits give the same token anywhere. */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include "base/err.h"
#include "base/rng.h"

#include <stddef.h>
#include <stdint.h>

struct sampler_params {
    float temperature;     /* 0: greedy (the lowest id among equals) */
    int top_k;             /* 0: all */
    float top_p;           /* 1: all */
    float min_p;           /* 0: all */
    float repeat_penalty;  /* 1: none */
    int repeat_last_n;     /* how many recent tokens the penalty looks at */
    uint64_t seed;
};
struct sampler_params sampler_defaults(void); /* temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, penalty 1 over 64 */

struct sampler;
int sampler_create(struct sampler **out, const struct sampler_params *p, int32_t n_vocab, struct hone_error *e);
void sampler_free(struct sampler *s);
/* Tells the sampler of a token that is in the context (prompt or generated), for the penalty. */
void sampler_accept(struct sampler *s, int32_t token);
/* The next token of logits[n_vocab] (not changed). NaN logits: HONE_EFAULT that says at which id. */
int sampler_next(struct sampler *s, const float *logits, int32_t *token, struct hone_error *e);
/* Greedy on its own: the lowest id of the largest logit. */
int32_t sampler_argmax(const float *logits, int32_t n_vocab);

#endif
