/* comm.h: where the ranks of a tensor-parallel run meet.
 *
 * A rank is one device with its own graph, plan and group of threads. All ranks run the same program, so they come to the same
 * collectives in the same order; the n-th call of one meets the n-th call of every other, whatever it is named.
 *
 * There is one primitive: comm_share. Each rank brings a block, and on return it may read everybody's. All that the field names
 * separately (all_reduce, all_gather, broadcast, barrier) is that and a loop over blocks, here or fused into a kernel, so there
 * is one thing to make fast, to limit in time and to test. Sums run in rank order in f32, on every rank by itself: the same
 * bits on every run, on every rank and over every transport. A reduction inside the transport (MPI_Allreduce) adds in an order
 * of its own.
 *
 * The price is that every rank reads all partials: right for the kilobytes of a decode step and few ranks, wrong for megabytes.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/err.h"
#include "base/threads.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm; /* one rank's end of its group */

enum { COMM_MAX_RANKS = 1024, COMM_LIMIT_MS = 60000 };

struct comm_params {
    int n_workers; /* threads of a rank that call together, at most; 0: one */
    int poll;      /* how long a waiting rank spins before it sleeps: as pool_create's */
    int limit_ms;  /* of one wait for another rank; 0: COMM_LIMIT_MS */
    /* Over MPI: called from a thread when the limit is over and not all processes have come to their start, which nothing can leave:
     * it ends this process. NULL: one waits for as long as it takes. */
    void (*late)(int limit_ms);
};

/* ---- groups */

/* n ranks within this process, on shared memory: fills ranks[0 .. n). Each rank's end is used by that rank's threads alone and
 * freed once; the last one freed ends the group. */
int comm_local_create(struct comm **ranks, int n, const struct comm_params *p, struct hone_error *e);
/* This process as one rank of those that mpirun started; once a process. HONE_EUSAGE in a build without MPI. Any thread may
 * call, one at a time. */
int comm_mpi_create(struct comm **rank, const struct comm_params *p, struct hone_error *e);
/* A group whose other ranks are made up: they bring as many bytes as this one, f32 drawn from their number. For checking and
 * timing kernels of collectives on one rank. */
int comm_rehearsal_create(struct comm **rank, int size, const struct comm_params *p, struct hone_error *e);
/* What its made-up rank r brings: n values. */
void comm_rehearsal_values(int r, size_t n, float *values);
/* Whether this build has MPI, and whether mpirun seems to have started this process. */
bool comm_mpi_built(void);
bool comm_mpi_launched(void);
/* c may be NULL. Of a group that has failed over MPI it ends the processes of all ranks, this one included (MPI_Abort): nobody
 * stays behind. So print the error first. */
void comm_free(struct comm *c);

const char *comm_transport(const struct comm *c); /* "local", "mpi" */
int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);

/* How long this rank waits for another from now on, in ms; 0: for ever (for a follower that waits for its next order). Between two collectives. */
void comm_set_limit(struct comm *c, int limit_ms);

/* ---- collectives
 *
 * All w->nth workers of a rank call with the same arguments but their own w (NULL: called by one thread alone, while the rank's
 * others do not call), and `where`, the node's name, which is kept until the next call. On failure all of them get the same
 * code, and so do all other ranks sooner or later: no collective of the group works any more, and comm_error says why. A kernel
 * with barriers of its own passes them all the same.
 *
 * A block that was shared must not be written before this rank's next collective has returned on all of its workers: others may
 * read it until then (comm_settle is the cheapest). What is got is valid until this rank's next call. */

struct comm_block {
    const void *data;
    size_t bytes;
};

/* mine: at most `most` bytes, which all ranks give alike; *all becomes an array of comm_size() blocks, by rank. */
int comm_share(struct comm *c, const struct worker *w, struct comm_block mine, size_t most, const char *where,
               const struct comm_block **all);
/* The same where every rank must bring as many bytes: ranks that differ are an error, not a hang. */
int comm_share_even(struct comm *c, const struct worker *w, const void *data, size_t bytes, const char *where,
                    const struct comm_block **all);

/* sum[i] = x of rank 0 + x of rank 1 + ..., in f32, in that order. Each worker writes its share (worker_range with COMM_GRAIN);
 * they meet before anybody reads the whole. sum must not overlap x. */
int comm_all_reduce(struct comm *c, const struct worker *w, const float *x, float *sum, int64_t n, const char *where);
enum { COMM_GRAIN = 64 };
/* The blocks one behind the other, in rank order, of any sizes whose sum is total. Worker 0 writes all of it. */
int comm_all_gather(struct comm *c, const struct worker *w, const void *mine, size_t bytes, void *all, size_t total,
                    const char *where);
/* data of rank root on every rank. */
int comm_broadcast(struct comm *c, const struct worker *w, void *data, size_t bytes, int root, const char *where);
int comm_barrier(struct comm *c, const struct worker *w, const char *where);
/* The or of all ranks' bits: one decision for all. By one thread. */
int comm_agree(struct comm *c, uint64_t *bits, const char *where);
/* HONE_ECHECK on every rank unless all ranks bring the same number (the hash of a plan, say). By one thread. */
int comm_same(struct comm *c, uint64_t number, const char *what);
/* Waits until nobody reads this rank's blocks any more, where the transport needs that. By one thread, on every rank. */
int comm_settle(struct comm *c, const char *where);

/* Random data of odd sizes against sums on the host. Every rank calls it, with one thread. HONE_ECHECK when the transport is
 * wrong. */
int comm_self_test(struct comm *c, struct hone_error *e);

/* What a sum takes, as latency and the bytes of other ranks that reach one in a second: from medians of small and large ones. Every rank
 * calls it, with one thread; on failure the group has ended. */
int comm_link(struct comm *c, double *latency_ns, double *bytes_per_s, struct hone_error *e);

/* y[i] = x[0][at + i] + x[1][at + i] + ... (+ addend[i]), i in [0, n), blocks in rank order: the sum that comm_all_reduce does,
 * for kernels that go on with it. addend may be NULL; y overlaps nothing. */
void comm_sum(const struct comm_block *x, int n_ranks, int64_t at, const float *addend, float *y, int64_t n);

/* ---- failing */

/* Ends the group: every rank's present and later calls return the code, with "rank <r> gave up: <message>". From any thread. */
void comm_abort(struct comm *c, int code, const char *message);
/* Why the group failed: code 0 while it works. */
const struct hone_error *comm_error(const struct comm *c);

/* ---- what it did */

/* Of calls by workers, which are a step's; what one thread says to the others between steps (w NULL) is not among them. */
struct comm_counts {
    int64_t collectives, bytes; /* that this rank took part in; bytes of its own blocks */
    int64_t wait_ns;            /* while timed: what passed until the last rank had come */
};
struct comm_counts comm_counts(const struct comm *c);
/* For ranks that meet in kernels of their devices: so many collectives more, with so many bytes of this rank. */
void comm_count(struct comm *c, int64_t collectives, int64_t bytes);
/* Timed collectives meet first and move then, so that waiting for a late rank is told from moving: this perturbs what it
 * measures. Between two collectives, on every rank alike. */
void comm_set_timed(struct comm *c, bool timed);
bool comm_timed(const struct comm *c);
/* The meeting that comes before a timed collective, for one that moves its data elsewhere. By one thread. */
int comm_meet(struct comm *c, const char *where);

#endif
