/* local.c: ranks within one process. Nothing is copied and nobody is in the middle: a rank writes where its block lies and then
 * a number, and every reader looks at the numbers of the ranks that it waits for. A rank's number and its two blocks share one
 * cache line, so whoever sees the number has the address; the blocks take turns, so the number of the next collective tells
 * that the last one's blocks have been read, and one meeting a collective is enough.
 *
 * Waiting is base/threads.c's: spin, offer the processor, sleep on the number's futex. Sleepers wake 50 times a second to look
 * for an abort and at the time limit, since a rank that hangs wakes nobody.
 *
 * Copying into shared staging was the alternative: the sum would read it with the same misses and the copy's stores would miss
 * as well. So would a reduction in two steps (each rank sums its part, then reads the others' parts): it moves fewer bytes with
 * more than two ranks and pays a second meeting, which at 20 KB costs more. */
#include "comm/transport.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    YIELD_EVERY = 512,
    NAP_NS = 20000000,
    STOPPED_NS = 500000000
}; /* spins between two offers of the processor, about 20 us; longest sleep without a look around */

struct seat {
    _Alignas(64) atomic_uint seq; /* collectives that this rank has come to */
    struct comm_block block[2];   /* what it brings, by the number's last bit */
    _Alignas(64) atomic_uint
        sleepers; /* who wait for the number to grow: looked at after it was told, when others already have its line */
    atomic_bool left;
};

struct group {
    _Alignas(64) struct failure failure;
    atomic_int ends; /* not yet freed */
    int n;
    struct seat seats[];
};

struct local {
    _Alignas(64) struct comm base; /* counts in lines that no other rank writes */
    struct group *group;
};

static void wake(struct seat *s)
{
    syscall(SYS_futex, &s->seq, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int fail(struct group *g, const struct hone_error *e)
{
    int code = failure_set(&g->failure, e);
    for (int r = 0; r < g->n; r++)
        wake(&g->seats[r]);
    return code;
}

static void local_abort(struct comm *c, int code, const char *message)
{
    struct hone_error e = {0};
    err_set(&e, code, "rank %d gave up: %s", c->rank, message);
    fail(((struct local *)c)->group, &e);
}

static const struct hone_error *local_error(const struct comm *c)
{
    return failure_error(&((const struct local *)c)->group->failure);
}

/* ---- meeting */

/* Numbers wrap: what counts is who is ahead. */
static inline bool reached(const struct seat *s, unsigned seq)
{
    return (int)(atomic_load_explicit(&s->seq, memory_order_acquire) - seq) >= 0;
}

static int too_late(struct local *l, int r, unsigned seq, const char *where)
{
    struct hone_error e = {0};
    unsigned behind = seq - atomic_load(&l->group->seats[r].seq);
    err_set(&e, HONE_ERESOURCE, "rank %d waited %.3g s at %s for rank %d, which is %u collective%s behind", l->base.rank,
            (double)l->base.limit_ns / 1e9, where, r, behind, behind == 1 ? "" : "s");
    return fail(l->group, &e);
}

static int gone(struct local *l, int r, const char *where)
{
    struct hone_error e = {0};
    err_set(&e, HONE_EFAULT, "rank %d waits at %s for rank %d, which has left", l->base.rank, where, r);
    return fail(l->group, &e);
}

/* With the seat's sleepers counted. */
static int sleep_until(struct local *l, int r, unsigned seq, const char *where)
{
    struct seat *s = &l->group->seats[r];
    int64_t start = clock_ns(), last = start;
    struct timespec nap = {0, NAP_NS};
    for (;;) {
        unsigned now = atomic_load(&s->seq);
        if ((int)(now - seq) >= 0)
            return 0;
        int rc = failure_code(&l->group->failure);
        if (rc)
            return rc;
        bool left = atomic_load(&s->left);
        if (left && !reached(s, seq))
            return gone(l, r, where);
        int64_t t = clock_ns();
        if (t - last > STOPPED_NS) /* it was this process that did not run */
            start += t - last;
        last = t;
        if (t - start > l->base.limit_ns)
            return too_late(l, r, seq, where);
        syscall(SYS_futex, &s->seq, FUTEX_WAIT_PRIVATE, now, &nap, NULL, 0);
    }
}

static inline int wait_for(struct local *l, int r, unsigned seq, const char *where)
{
    struct seat *s = &l->group->seats[r];
    for (long i = 0; i < l->base.spins; i++) {
        if (reached(s, seq))
            return 0;
        cpu_relax();
        if (i % YIELD_EVERY == YIELD_EVERY - 1)
            sched_yield();
    }
    atomic_fetch_add(&s->sleepers, 1);
    int rc = sleep_until(l, r, seq, where);
    atomic_fetch_sub(&s->sleepers, 1);
    return rc;
}

static void publish(struct seat *s, unsigned seq, struct comm_block mine)
{
    s->block[seq & 1] = mine;
    atomic_store(&s->seq, seq); /* sequentially consistent with the sleepers' own order: nobody is missed */
    if (atomic_load(&s->sleepers))
        wake(s);
}

static int too_large(struct local *l, int r, size_t bytes, size_t most, const char *where)
{
    struct hone_error e = {0};
    err_set(&e, HONE_EFAULT,
            "%s: rank %d brings %zu bytes where rank %d expects at most %zu: the ranks are not at the same node", where, r,
            bytes, l->base.rank, most);
    return fail(l->group, &e);
}

static int local_share(struct comm *c, const struct worker *w, unsigned seq, struct comm_block mine, size_t most,
                       const char *where, struct comm_block *blocks)
{
    struct local *l = (struct local *)c;
    struct group *g = l->group;
    int rc = failure_code(&g->failure);
    if (rc)
        return rc;
    if (!w || w->ith == 0)
        publish(&g->seats[c->rank], seq, mine);
    blocks[c->rank] = mine;
    for (int d = 1; d < c->size; d++) {
        int r = c->rank + d < c->size ? c->rank + d : c->rank + d - c->size;
        rc = wait_for(l, r, seq, where);
        if (rc)
            return rc;
        blocks[r] = g->seats[r].block[seq & 1];
        if (blocks[r].bytes > most)
            return too_large(l, r, blocks[r].bytes, most, where);
    }
    return 0;
}

static void local_free(struct comm *c)
{
    struct local *l = (struct local *)c;
    struct group *g = l->group;
    atomic_store(&g->seats[c->rank].left, true);
    wake(&g->seats[c->rank]);
    if (atomic_fetch_sub(&g->ends, 1) == 1)
        free(g);
    comm_finish(c);
    free(l);
}

static const struct transport local_transport = {
    .name = "local", .share = local_share, .settles = true, .abort = local_abort, .error = local_error, .free = local_free};

int comm_local_create(struct comm **ranks, int n, const struct comm_params *p, struct hone_error *e)
{
    if (n < 1 || n > COMM_MAX_RANKS)
        return err_set(e, HONE_EUSAGE, "%d ranks; 1 to %d are possible", n, COMM_MAX_RANKS);
    size_t bytes = sizeof(struct group) + (size_t)n * sizeof(struct seat);
    struct group *g = aligned_alloc(64, bytes);
    if (!g)
        return err_set(e, HONE_ERESOURCE, "no memory for %d ranks", n);
    memset(g, 0, bytes);
    g->n = n;
    int rc = 0, made = 0;
    for (; made < n && !rc; made += !rc) {
        struct local *l = aligned_alloc(64, sizeof *l);
        rc = l ? comm_init(&l->base, &local_transport, made, n, p, e) : err_set(e, HONE_ERESOURCE, "no memory for %d ranks", n);
        if (rc) {
            free(l);
        } else {
            l->group = g;
            ranks[made] = &l->base;
        }
    }
    atomic_store(&g->ends, made + (rc != 0));
    if (!rc)
        return 0;
    while (made-- > 0)
        comm_free(ranks[made]);
    free(g); /* the one end more that was counted */
    return rc;
}
