/* link.h: what ranks on NVIDIA GPUs meet through, as the host that makes it and the kernels that use it see it.
 *
 * Every rank has an end: a block of memory that all others of the group can write and read. It lies on the rank's own device
 * where all devices reach each other (the same card, or peers over NVLink or PCIe), else in pinned memory of the host that all
 * of them have mapped. Two ways to exchange go through it, link.cuh says how: `words` for the kilobytes of a decode step, and
 * `staged` for anything.
 *
 * A block of a kernel is a channel: it meets the block of the same number on the other ranks, and nobody else, so a grid needs
 * no barrier of its own and blocks that are not resident yet keep nobody waiting but their own partners. Each channel counts
 * its turns in device memory and not in an argument, so a captured graph can be replayed. Slots take turns by the count's last
 * bit: whoever comes to turn s + 2 has had something from everybody in turn s + 1, and who sent that was done with turn s. */
#ifndef BACKENDS_CUDA_LINK_H
#define BACKENDS_CUDA_LINK_H

#include "backends/cuda/cuda.h"

enum {
    LINK_RANKS = 32,        /* of a group, at most */
    LINK_CHANNELS = 128,    /* blocks of a collective's kernel, at most */
    LINK_CROWDED = 32,      /* and where ranks share a device: who waits leaves it to who is waited for */
    LINK_WORD_CHANNELS = 8, /* of one that exchanges words */
    LINK_WORDS = 8192,      /* values that a channel exchanges in a turn as words */
    LINK_STAGED = 16384,    /* and staged */
};

/* Where things lie within an end; all but the flags by slot first. */
enum {
    LINK_WORD_BYTES = LINK_WORDS * 8,                   /* of a channel, from one sender */
    LINK_STAGE_BYTES = LINK_STAGED * 4,                 /* of a channel */
    LINK_FLAGS = 2 * LINK_CHANNELS * LINK_RANKS * 8,    /* [slot][channel][sender], 64 bits each */
    LINK_STAGES = 2 * LINK_CHANNELS * LINK_STAGE_BYTES, /* [slot][channel] */
    LINK_SENDER = LINK_WORD_CHANNELS * LINK_WORD_BYTES, /* what one sender may write of a slot */
};

static inline size_t link_end_bytes(int n_ranks)
{
    return (size_t)LINK_FLAGS + LINK_STAGES + 2 * (size_t)n_ranks * LINK_SENDER;
}

/* STOPPED: it was waiting, or came to wait, when another had ended the step: where it stood. */
enum link_fault { LINK_FINE, LINK_STOPPED, LINK_LATE, LINK_UNEVEN };

/* What one rank has to say; written by its kernels alone. */
struct link_report {
    uint64_t where; /* address of the node's name in the host's memory */
    uint32_t fault; /* enum link_fault; written last */
    uint32_t rank;  /* who had not come, or came with another size */
};

/* Of a group, in memory of the host: `stop` ends all waiting. A report is written before it. */
struct link_status {
    uint32_t stop, unused;
    struct link_report reports[LINK_RANKS];
};

/* An end as a kernel's argument. */
struct link {
    int32_t rank, size;
    uint32_t limit_ms;
    int32_t crowded; /* some device has several of the ranks */
    uint32_t *turns; /* [LINK_CHANNELS], on the rank's own device */
    char *ends[LINK_RANKS];
    struct link_status *status;
    uint64_t where;
};

/* Blocks of a kernel that has work for so many, and takes `most`: the same on all ranks. */
static inline unsigned link_grid(const struct link *l, int64_t wanted, int64_t most)
{
    most = l->crowded && most > LINK_CROWDED ? LINK_CROWDED : most;
    return (unsigned)(wanted < most ? wanted : most);
}

#ifdef __cplusplus
extern "C" {
#endif
/* The link of x for node n; without one a group of this rank alone. */
struct link link_of(const struct exec *x, const struct node *n);
/* link_report.c: of a group of n that has stopped, why, and where all ranks stood. The code, with that in *e. */
int link_told(const struct link_status *s, int n, uint32_t limit_ms, struct hone_error *e);
#ifdef __cplusplus
}
#endif

#endif
