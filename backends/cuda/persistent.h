/* persistent.h: a run of decode nodes as one kernel sees it: a table of phases in device memory (persistent.cuh interprets it, persistent.cu
 * makes it).
 *
 * Between two phases all blocks meet, so a phase is what needs nothing that another block makes in it: products of one activation,
 * with what makes that activation (each block does it for itself) and with what becomes of the sums; or attention, up to the
 * parts of it that blocks have of one head, which the phase behind it adds up. */
#ifndef BACKENDS_CUDA_PERSISTENT_H
#define BACKENDS_CUDA_PERSISTENT_H

#include "backends/cuda/attention_step.h"

enum {
    PERSIST_WARPS = 16,                    /* that compute; one more asks for weights */
    PERSIST_WORKERS = 32 * PERSIST_WARPS,
    PERSIST_THREADS = PERSIST_WORKERS + 32,
    PERSIST_MATRICES = 4,
    PERSIST_ROWS = 4,       /* that a warp multiplies at once, at most */
    PERSIST_PAIR = 256,     /* rows of gate, and of up, that a block may have */
    PERSIST_NORM = 8192,    /* values of a row under a norm */
    PERSIST_SPLITS = 8,     /* blocks that share a head's positions, at most */
    PERSIST_COLUMNS = 512,  /* heads of a block times their width, at most */
    PERSIST_HEAD = 128,     /* values of a head, at most */
};

/* Where a phase's activation comes from. */
enum persist_from {
    PERSIST_FROM_NONE,  /* it is attention */
    PERSIST_FROM_NORM,  /* an f32 row under an rms_norm and its weight, quantised */
    PERSIST_FROM_A8,    /* as it lies in memory */
    PERSIST_FROM_PARTS, /* what the blocks have of attention, added and quantised */
};

struct persist_matrix {
    const uint8_t *stream[4];
    float *out;             /* of a pair, gate and up: not used */
    const float *add;       /* a residual; NULL: none */
    uint32_t rows, chunk;   /* chunk: rows that are brought, and multiplied by a warp, together */
    uint32_t row_bytes[4];  /* of a row in each stream, multiples of 16; 0: there is no such stream */
    int32_t format;
    int32_t unused;
};

struct persist_phase {
    int32_t from, n_matrices;
    uint32_t units, unit;   /* what is dealt out: units of so many rows; of attention, KV heads and parts of their groups */
    uint32_t groups;        /* of 32 values in a row */
    int32_t pair;           /* gate and up: 1 + the activation (enum unary_kind); 0: not */
    float eps, share;       /* of the norm; 1 / its values */
    const void *x;
    const float *norm;
    uint8_t *quantized;     /* of a pair: where its glu goes, A8 */
    float *values, *stats;  /* attention's parts: [split][head][value], [split][head] maximum and sum */
    int32_t heads, width;   /* all of them; values of one */
    int32_t block_heads;    /* that a block of attention takes */
    int32_t same_angles;    /* as the attention before */
    int32_t most_splits, unused[3];
    union {
        struct persist_matrix matrix[PERSIST_MATRICES];
        struct attend_task attend;
    };
};

/* Bytes of shared memory that each of these takes, and where it begins. */
struct persist_room {
    uint32_t slots, slot_bytes; /* the ring, which begins at 0 */
    uint32_t landings, phases, glu, sums, angles, work, bytes;
};

struct persist_args {
    const struct persist_phase *phases;
    int n_phases;
    uint32_t in_flight; /* chunks that a block has asked for and that have not landed, at most; 0: as many as there are slots */
    struct persist_room room;
    uint32_t *counter;  /* device memory, 0 between steps */
    uint32_t *failed;   /* memory of the host that the device writes: 1 + the phase in which a wait took too long */
    uint64_t limit_ns;  /* of one wait */
    uint64_t *times;    /* [phase][block][4], for measuring; NULL */
};

/* Blocks that share the positions of a head, from the tiles of 16 that there are. */
static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
    int
    persist_splits(int tiles, int most)
{
    int splits = (tiles + PERSIST_WARPS - 1) / PERSIST_WARPS;
    return splits < 1 ? 1 : splits < most ? splits : most;
}

/* Shared memory for phases whose longest activation has so many groups, whose largest block of attention so many heads times values, and
 * whose largest chunk so many bytes; false: there is no room for a ring. */
static inline bool persist_room_of(struct persist_room *r, uint32_t groups, uint32_t columns, uint32_t chunk_bytes, size_t limit)
{
    const uint32_t activation = (groups * 40 + 15) / 16 * 16,
                   /* q, the new rows, what the warps have, their maxima and sums */
                   attention = columns ? (8 + 2) * (PERSIST_HEAD + 4) * 4 + PERSIST_WARPS * (columns * 4 + 8 * 8) : 0;
    const uint32_t work = activation > attention ? activation : attention, landings = 64 * 2 * 16, angles = 2 * PERSIST_HEAD / 2 * 4,
                   phases = 4 * (uint32_t)sizeof(struct persist_phase), glu = 2 * PERSIST_PAIR * 4, sums = 32 * 8 + 32 * 4 + 128;
    const size_t beside = work + landings + angles + phases + glu + sums + 256;
    memset(r, 0, sizeof *r);
    r->slot_bytes = (chunk_bytes + 15) / 16 * 16;
    for (r->slots = 64 / PERSIST_WARPS * PERSIST_WARPS; r->slots && beside + (size_t)r->slots * r->slot_bytes > limit; r->slots -= PERSIST_WARPS)
        ;
    r->landings = (r->slots * r->slot_bytes + 127) / 128 * 128;
    r->phases = r->landings + landings;
    r->glu = r->phases + phases;
    r->sums = r->glu + glu;
    r->angles = r->sums + sums;
    r->work = r->angles + angles;
    r->bytes = r->work + work;
    return r->slots > 0;
}

#endif
