/* bench_model.h: a model's name, size and parameters as llama-bench gives them. */
#ifndef LAB_BENCH_MODEL_H
#define LAB_BENCH_MODEL_H

#include "engine/engine.h"

struct bench_model {
    char type[128];       /* "llama 1B Q4_K - Medium" */
    int64_t size, params; /* bytes and elements of all tensors */
};

void bench_model_of(struct bench_model *b, const struct hone_model *m);

#endif
