/* attention_step.h: one token's attention as a launch sees it, and how a node becomes that (attention_step.cu): for the kernel that does it
 * by itself, and for the one that does a whole step (persistent.cuh). */
#ifndef BACKENDS_CUDA_ATTENTION_STEP_H
#define BACKENDS_CUDA_ATTENTION_STEP_H

#include "backends/cuda/cuda.h"

/* Frequencies as a function (ops/rope.h). */
struct attend_angles {
    double ratio, scale, extension; /* the logarithm to base 2 of what a pair's frequency is to the one before's */
    double low, span;               /* of YaRN's ramp */
    float magnitude;
    const float *factors; /* or NULL */
    int pairs;
    bool neighbours; /* pairs are (2 i, 2 i + 1), not (i, i + pairs) */
};

struct attend_rows {
    const char *rows;  /* of f32 */
    int64_t head;      /* bytes from head to head */
    const float *norm; /* its weight, or NULL */
    float eps;
};

struct attend_task {
    struct attend_rows q, k, v, gate; /* gate.rows NULL: none */
    char *k_cache, *v_cache;
    int64_t k_cell, k_head, v_cell, v_head; /* bytes */
    const int32_t *positions, *cells, *sequences, *map;
    int64_t map_sequence;
    int n_cells, n_ctx, n_seq, format, kind; /* kind: of the gate */
    int group, parts, window, temperature_period;
    float scale, softcap, temperature;
    float *y; /* NULL: only quantised */
    struct block_a8 *quantized;
    struct attend_angles angles;
};

/* Whether a rope_kv_attention node, with or without its quantisation, is of one token and of shapes that these kernels take. */
bool attend_fits(const struct node *n, struct reason *r);
/* With the addresses that its tensors have now; `parts` is for eight heads a part. */
struct attend_task attend_task_of(const struct node *n);

#endif
