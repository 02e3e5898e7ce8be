/* transport.h: what a transport is, for the files of comm/ alone. A rank's end begins with a struct comm; the rest is the
 * transport's. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include "comm/comm.h"

#include <stdatomic.h>

/* Why a group, or one end of it, works no more. The first reason stays. */
struct failure {
    atomic_int state;
    struct hone_error error;
};
int failure_code(struct failure *f);
/* Returns the code that holds from now on. */
int failure_set(struct failure *f, const struct hone_error *e);
/* The error, with code 0 while there is none. */
const struct hone_error *failure_error(struct failure *f);

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* One worker's place, in cache lines of its own. */
struct caller {
    _Alignas(64) unsigned seq; /* collectives so far: all workers of a rank count alike */
    struct comm_block *blocks; /* what it got last, one a rank */
};

struct transport {
    const char *name;
    /* comm_share; fills blocks, one a rank. seq: this collective's number, the same on every rank. */
    int (*share)(struct comm *c, const struct worker *w, unsigned seq, struct comm_block mine, size_t most, const char *where,
                 struct comm_block *blocks);
    bool settles; /* blocks are read where they lie: settling takes a barrier */
    void (*abort)(struct comm *c, int code, const char *message);
    const struct hone_error *(*error)(const struct comm *c);
    void (*free)(struct comm *c);
};

struct comm {
    const struct transport *transport;
    int rank, size, n_workers;
    long spins; /* of one wait, before it sleeps */
    int64_t limit_ns;
    bool timed;
    struct comm_counts counts;
    struct caller *callers; /* n_workers of them */
    void *memory;           /* of callers and their blocks */
};

/* Checks the parameters and makes the callers. On failure there is nothing to finish. */
int comm_init(struct comm *c, const struct transport *t, int rank, int size, const struct comm_params *p, struct hone_error *e);
void comm_finish(struct comm *c);

#endif
