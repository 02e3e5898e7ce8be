/* halves.h: prefill by products of halves (halves.cuh): what the host knows of a launch, and the formats that have one. */
#ifndef BACKENDS_CUDA_HALVES_H
#define BACKENDS_CUDA_HALVES_H

#include "backends/cuda/product.h"

enum {
    HALVES_ROWS = 128,                  /* of W in a tile */
    HALVES_DEPTH = 128,                 /* values of k in a step: four groups of 32 */
    HALVES_MOST = 160,                  /* blocks of a launch, one a multiprocessor */
    HALVES_FEWEST = PRODUCT_DECODE + 1, /* tokens */
    HALVES_STEPS = 4                    /* steps that a block has at least: fewer are not worth the sum of two blocks' parts */
};

/* The activation in f16, and where blocks meet that share a tile. Token t's values were multiplied by a power of two, 1 /
 * undo[t]. A tile of `width` tokens is a run of pieces of 64 values of k, each as shared memory wants it (wgmma.cuh). */
struct halves_room {
    uint8_t *x;
    float *undo;
    uint32_t *flag; /* [HALVES_MOST], zeros between launches */
    float *partial; /* of each block, a tile */
    int width;
    size_t bytes; /* of all of it */
};

struct halves_format {
    enum format_id format;
    /* a's matrices, all of this format, times room's activation. */
    int (*run)(const struct exec *x, const struct product_args *a, const struct halves_room *room);
};

extern "C" {
#define HALVES_FORMATS(X)                                                                                                      \
    X(Q4_0, q4_0)                                                                                                              \
    X(Q4_1, q4_1)                                                                                                              \
    X(Q5_0, q5_0)                                                                                                              \
    X(Q5_1, q5_1)                                                                                                              \
    X(Q8_0, q8_0)                                                                                                              \
    X(Q2_K, q2_K)                                                                                                              \
    X(Q3_K, q3_K)                                                                                                              \
    X(Q4_K, q4_K)                                                                                                              \
    X(Q5_K, q5_K)                                                                                                              \
    X(Q6_K, q6_K)                                                                                                              \
    X(IQ4_NL, iq4_nl)                                                                                                          \
    X(IQ4_XS, iq4_xs)
#define X(ID, id) extern const struct halves_format halves_##id;
HALVES_FORMATS(X)
#undef X
}

#endif
