/* synth.h: a random model in the shape of a real one, to measure and test with where the real one cannot be had. Its text means
 * nothing; its tensors, their formats and its keys are those of a real file. */
#ifndef MODEL_SYNTH_H
#define MODEL_SYNTH_H

#include "base/err.h"
#include "hone.h"

struct synth_params {
    const char *shape;                 /* "llama3.2-1b" */
    const char *type;                  /* "Q4_K_M" (model/mix.h) */
    int32_t layers, width, vocab, ctx; /* 0: the shape's own. Heads and the feed-forward size follow the width */
    uint64_t seed;
    bool no_vocab;   /* no tokens in the file: token ids only */
    bool no_weights; /* holes in their place, which read as zeros and take no room on the disk: a shape to look at */
};

/* The name of the i-th shape; NULL behind the last. */
const char *synth_shape(int i);

/* Writes the model to `out`. The same parameters give the same bytes. progress may be NULL; on any failure nothing is left. */
int model_synth(const char *out, const struct synth_params *p, hone_progress_fn *progress, void *user, struct hone_error *e);

#endif
