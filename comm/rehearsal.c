/* rehearsal.c: a group of one real rank. The others are made up, so that a kernel of a collective can be checked against its
 * reference and timed like any other, on one thread or several, without a second rank that would have to run the same cases at
 * the same time. It proves the arithmetic; that ranks meet is proven where there are some (tests/test_comm.c). */
#include "comm/transport.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

struct rehearsal {
    struct comm base;
    float *made; /* the other ranks' values, `each` of them a rank */
    size_t each;
    struct failure failure;
};

static void rehearsal_abort(struct comm *c, int code, const char *message)
{
    struct hone_error e = {0};
    err_set(&e, code, "rank %d gave up: %s", c->rank, message);
    failure_set(&((struct rehearsal *)c)->failure, &e);
}

static const struct hone_error *rehearsal_error(const struct comm *c)
{
    return failure_error(&((struct rehearsal *)c)->failure);
}

void comm_rehearsal_values(int r, size_t n, float *values)
{
    struct rng rng = rng_seed((uint64_t)r);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)rng_normal(&rng);
}

/* Values of the other ranks, as many as n: the first ones stay the same when there are more. */
static void make(struct rehearsal *h, size_t n)
{
    if (n <= h->each)
        return;
    float *made = calloc(n * (size_t)h->base.size, sizeof *made);
    if (!made) {
        rehearsal_abort(&h->base, HONE_ERESOURCE, "no memory for made-up ranks");
        return;
    }
    for (int r = 1; r < h->base.size; r++)
        comm_rehearsal_values(r, n, made + (size_t)r * n);
    free(h->made);
    h->made = made;
    h->each = n;
}

static int rehearsal_share(struct comm *c, const struct worker *w, unsigned seq, struct comm_block mine, size_t most,
                           const char *where, struct comm_block *blocks)
{
    struct rehearsal *h = (struct rehearsal *)c;
    (void)seq, (void)most, (void)where;
    if (!w || w->ith == 0)
        make(h, (mine.bytes + sizeof(float) - 1) / sizeof(float));
    if (w)
        worker_barrier(w);
    blocks[0] = mine;
    for (int r = 1; r < c->size; r++)
        blocks[r] = (struct comm_block){h->made ? h->made + (size_t)r * h->each : NULL, mine.bytes};
    return failure_code(&h->failure);
}

static void rehearsal_free(struct comm *c)
{
    free(((struct rehearsal *)c)->made);
    comm_finish(c);
    free(c);
}

static const struct transport rehearsal_transport = {.name = "rehearsal",
                                                     .share = rehearsal_share,
                                                     .settles = false,
                                                     .abort = rehearsal_abort,
                                                     .error = rehearsal_error,
                                                     .free = rehearsal_free};

int comm_rehearsal_create(struct comm **rank, int size, const struct comm_params *p, struct hone_error *e)
{
    *rank = NULL;
    if (size < 1 || size > COMM_MAX_RANKS)
        return err_set(e, HONE_EUSAGE, "%d ranks; 1 to %d are possible", size, COMM_MAX_RANKS);
    struct rehearsal *h = calloc(1, sizeof *h);
    int rc = h ? comm_init(&h->base, &rehearsal_transport, 0, size, p, e)
               : err_set(e, HONE_ERESOURCE, "no memory for %d ranks", size);
    if (rc)
        free(h);
    else
        *rank = &h->base;
    return rc;
}
