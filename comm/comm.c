/* comm.c: what all transports have in common: the collectives, each a share and a loop over blocks, the counts, and the
 * self-test.
 *
 * The self-test is held against a sum that every rank makes by itself: a rank's data is drawn from a seed and the rank, so each
 * knows what all others bring, and a transport that mixes up, cuts or reorders blocks is found before a model gives plausible
 * nonsense. */
#include "comm/transport.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

int comm_init(struct comm *c, const struct transport *t, int rank, int size, const struct comm_params *p, struct hone_error *e)
{
    int n = p->n_workers ? p->n_workers : 1, limit = p->limit_ms ? p->limit_ms : COMM_LIMIT_MS;
    if (n < 1 || n > 1024 || limit < 1 || p->poll < 0 || p->poll > 100)
        return err_set(e, HONE_EUSAGE,
                       "ranks of %d threads with poll %d and a limit of %d ms: 1 to 1024 threads, poll 0 to 100", n, p->poll,
                       limit);
    cpu_features(); /* the first look is not for several threads at once; sums ask later */
    size_t callers = (size_t)n * sizeof *c->callers, blocks = (size_t)size * sizeof(struct comm_block);
    size_t stride = (blocks + 63) / 64 * 64;
    char *memory = aligned_alloc(64, callers + (size_t)n * stride);
    if (!memory)
        return err_set(e, HONE_ERESOURCE, "no memory for %d ranks", size);
    memset(memory, 0, callers + (size_t)n * stride);
    /* The same measure as the pool's: 50 is about a millisecond. */
    *c = (struct comm){.transport = t,
                       .rank = rank,
                       .size = size,
                       .n_workers = n,
                       .spins = (long)p->poll * 500,
                       .limit_ns = (int64_t)limit * 1000000,
                       .callers = (struct caller *)(void *)memory,
                       .memory = memory};
    for (int i = 0; i < n; i++)
        c->callers[i].blocks = (struct comm_block *)(void *)(memory + callers + (size_t)i * stride);
    return 0;
}

void comm_finish(struct comm *c)
{
    free(c->memory);
}

void comm_free(struct comm *c)
{
    if (c)
        c->transport->free(c);
}

const char *comm_transport(const struct comm *c)
{
    return c->transport->name;
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->size;
}

void comm_set_limit(struct comm *c, int limit_ms)
{
    c->limit_ns = limit_ms ? (int64_t)limit_ms * 1000000 : INT64_MAX;
}

void comm_abort(struct comm *c, int code, const char *message)
{
    c->transport->abort(c, code, message);
}

const struct hone_error *comm_error(const struct comm *c)
{
    return c->transport->error(c);
}

struct comm_counts comm_counts(const struct comm *c)
{
    return c->counts;
}

void comm_count(struct comm *c, int64_t collectives, int64_t bytes)
{
    c->counts.collectives += collectives;
    c->counts.bytes += bytes;
}

void comm_set_timed(struct comm *c, bool timed)
{
    c->timed = timed;
}

bool comm_timed(const struct comm *c)
{
    return c->timed;
}

/* ---- failing */

enum { WORKS, FAILING, FAILED };

int failure_code(struct failure *f)
{
    int state = atomic_load_explicit(&f->state, memory_order_acquire);
    while (state == FAILING) { /* somebody is writing the message */
        sched_yield();
        state = atomic_load_explicit(&f->state, memory_order_acquire);
    }
    return state == FAILED ? f->error.code : 0;
}

int failure_set(struct failure *f, const struct hone_error *e)
{
    int works = WORKS;
    if (atomic_compare_exchange_strong(&f->state, &works, FAILING)) {
        f->error = *e;
        atomic_store_explicit(&f->state, FAILED, memory_order_release);
    }
    return failure_code(f);
}

const struct hone_error *failure_error(struct failure *f)
{
    static const struct hone_error none;
    return failure_code(f) ? &f->error : &none;
}

/* ---- collectives */

static struct caller *caller_of(struct comm *c, const struct worker *w)
{
    int ith = w ? w->ith : 0;
    INVARIANT(ith < c->n_workers);
    return &c->callers[ith];
}

static unsigned next(struct comm *c, const struct worker *w)
{
    unsigned seq = ++caller_of(c, w)->seq;
    if (!w || w->nth == 1)
        for (int i = 1; i < c->n_workers; i++) /* the others wait elsewhere, at a barrier: they count what they do not call */
            c->callers[i].seq = seq;
    return seq;
}

int comm_meet(struct comm *c, const char *where)
{
    int64_t start = clock_ns();
    int rc = c->transport->share(c, NULL, next(c, NULL), (struct comm_block){NULL, 0}, 0, where, c->callers[0].blocks);
    c->counts.wait_ns += clock_ns() - start;
    return rc;
}

int comm_share(struct comm *c, const struct worker *w, struct comm_block mine, size_t most, const char *where,
               const struct comm_block **all)
{
    struct comm_block *blocks = caller_of(c, w)->blocks;
    bool counts = w && w->ith == 0; /* what one thread alone says is about steps, not of them */
    if (counts) {
        c->counts.collectives++;
        c->counts.bytes += (int64_t)mine.bytes;
    }
    if (c->timed && w) {
        int64_t start = counts ? clock_ns() : 0;
        int rc = c->transport->share(c, w, next(c, w), (struct comm_block){NULL, 0}, 0, where, blocks);
        if (counts)
            c->counts.wait_ns += clock_ns() - start;
        if (rc)
            return rc;
    }
    *all = blocks;
    return c->transport->share(c, w, next(c, w), mine, most, where, blocks);
}

/* Ranks that came with different sizes are at different nodes: one of them says so for all. */
static int uneven(struct comm *c, const struct comm_block *all, int r, size_t bytes, const char *where)
{
    struct hone_error e = {0};
    err_set(&e, HONE_EFAULT, "%s: rank %d brings %zu bytes, rank %d brings %zu: the ranks are not at the same node", where,
            c->rank, bytes, r, all[r].bytes);
    comm_abort(c, e.code, e.message);
    return e.code;
}

int comm_share_even(struct comm *c, const struct worker *w, const void *data, size_t bytes, const char *where,
                    const struct comm_block **all)
{
    int rc = comm_share(c, w, (struct comm_block){data, bytes}, bytes, where, all);
    for (int r = 0; r < c->size && !rc; r++)
        if ((*all)[r].bytes != bytes)
            rc = uneven(c, *all, r, bytes, where);
    return rc;
}

int comm_all_reduce(struct comm *c, const struct worker *w, const float *x, float *sum, int64_t n, const char *where)
{
    const struct comm_block *all;
    int rc = comm_share_even(c, w, x, (size_t)n * sizeof *x, where, &all);
    int64_t lo = 0, hi = n;
    if (w)
        worker_range(w, n, COMM_GRAIN, &lo, &hi);
    if (!rc)
        comm_sum(all, c->size, lo, NULL, sum + lo, hi - lo);
    return rc;
}

int comm_all_gather(struct comm *c, const struct worker *w, const void *mine, size_t bytes, void *all, size_t total,
                    const char *where)
{
    const struct comm_block *blocks;
    int rc = comm_share(c, w, (struct comm_block){mine, bytes}, total, where, &blocks);
    if (rc || (w && w->ith))
        return rc;
    size_t at = 0;
    for (int r = 0; r < c->size; r++)
        at += blocks[r].bytes;
    if (at != total) {
        struct hone_error e = {0};
        err_set(&e, HONE_EFAULT, "%s: the ranks bring %zu bytes together, not %zu", where, at, total);
        comm_abort(c, e.code, e.message);
        return e.code;
    }
    at = 0;
    for (int r = 0; r < c->size; at += blocks[r++].bytes)
        if (blocks[r].bytes)
            memcpy((char *)all + at, blocks[r].data, blocks[r].bytes);
    return 0;
}

int comm_broadcast(struct comm *c, const struct worker *w, void *data, size_t bytes, int root, const char *where)
{
    const struct comm_block *blocks;
    struct comm_block mine = c->rank == root ? (struct comm_block){data, bytes} : (struct comm_block){NULL, 0};
    int rc = comm_share(c, w, mine, bytes, where, &blocks);
    if (!rc && blocks[root].bytes != bytes)
        rc = uneven(c, blocks, root, bytes, where);
    if (!rc && c->rank != root && (!w || !w->ith) && bytes)
        memcpy(data, blocks[root].data, bytes);
    return rc;
}

int comm_barrier(struct comm *c, const struct worker *w, const char *where)
{
    const struct comm_block *all;
    return comm_share(c, w, (struct comm_block){NULL, 0}, 0, where, &all);
}

int comm_settle(struct comm *c, const char *where)
{
    if (!c->transport->settles)
        return comm_error(c)->code;
    return c->transport->share(c, NULL, next(c, NULL), (struct comm_block){NULL, 0}, 0, where, c->callers[0].blocks);
}

int comm_agree(struct comm *c, uint64_t *bits, const char *where)
{
    const struct comm_block *all;
    uint64_t mine = *bits, any = 0, one;
    int rc = comm_share_even(c, NULL, &mine, sizeof mine, where, &all);
    for (int r = 0; r < c->size && !rc; r++) {
        memcpy(&one, all[r].data, sizeof one);
        any |= one;
    }
    int settled = comm_settle(c, where); /* mine is on this stack */
    if (!rc && !settled)
        *bits = any;
    return rc ? rc : settled;
}

int comm_same(struct comm *c, uint64_t number, const char *what)
{
    const struct comm_block *all;
    uint64_t one;
    int odd = -1, rc = comm_share_even(c, NULL, &number, sizeof number, what, &all);
    for (int r = 0; r < c->size && !rc && odd < 0; r++) {
        memcpy(&one, all[r].data, sizeof one);
        odd = one != number ? r : -1;
    }
    int settled = comm_settle(c, what);
    if (rc || settled || odd < 0)
        return rc ? rc : settled;
    struct hone_error e = {0};
    err_set(&e, HONE_ECHECK, "%s: rank %d and rank %d differ", what, c->rank, odd);
    comm_abort(c, e.code, e.message);
    return e.code;
}

/* ---- self-test */

static float drawn(struct rng *r)
{
    float x = (float)(rng_uniform(r) - 0.5);
    return rng_below(r, 16) ? x : x * 1e6f; /* magnitudes that make the order of a sum show */
}

/* One size: every rank's data, summed here, against what the group gives. */
static int test_size(struct comm *c, int64_t n, float *mine, float *want, float *got, const char *where)
{
    memset(want, 0, (size_t)n * sizeof *want);
    for (int r = 0; r < c->size; r++) {
        struct rng rng = rng_seed((uint64_t)n * 4096 + (uint64_t)r);
        for (int64_t i = 0; i < n; i++) {
            float x = drawn(&rng);
            want[i] = r ? want[i] + x : x;
            if (r == c->rank)
                mine[i] = x;
        }
    }
    int rc = comm_all_reduce(c, NULL, mine, got, n, where);
    bool wrong = !rc && memcmp(want, got, (size_t)n * sizeof *want) != 0;
    int settled = comm_settle(c, where); /* mine is written next */
    return rc ? rc : settled ? settled : wrong ? HONE_ECHECK : 0;
}

int comm_self_test(struct comm *c, struct hone_error *e)
{
    static const int64_t sizes[] = {1, 7, 64, 1001, 5120, 16387};
    enum { N = sizeof sizes / sizeof *sizes, MOST = 16387 };
    float *room = malloc(3 * MOST * sizeof *room);
    int rc = room ? 0 : HONE_ERESOURCE;
    int64_t n = 0;
    for (int i = 0; i < N && !rc; i++) {
        n = sizes[i];
        rc = test_size(c, n, room, room + MOST, room + 2 * MOST, "self-test");
    }
    free(room);
    if (rc && !comm_error(c)->code) /* the others wait for this rank, and shall say why it is not there */
        comm_abort(c, rc, rc == HONE_ECHECK ? "the self-test's sum differs from the sum on the host" : "no memory for the self-test");
    if (!rc)
        return 0;
    return err_set(e, comm_error(c)->code, "%s: self-test, %lld values: %s", c->transport->name, (long long)n, comm_error(c)->message);
}
