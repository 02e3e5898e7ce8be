/* mpi.c: ranks that are processes, on one host or several, started by mpirun. Every rank sends its block to every other and
 * receives theirs; the sum is comm_sum's, so the bits are those of the local transport.
 *
 * The collectives of MPI are not used. MPI_Allreduce sums in an order that depends on the library, the sizes and the placement;
 * and neither it nor MPI_Allgather can say who is missing, while a receive that has not completed names its sender. For the few
 * ranks among which one-shot sums make sense, the messages are the same that MPI_Allgather would send.
 *
 * No call blocks: requests are tested until they are done or the limit has passed. What remains is MPI_Init, which waits for
 * processes that may never come to it and is watched by a thread, and MPI_Finalize, which a rank only calls when all ranks have
 * just met; a failed rank ends all by MPI_Abort instead. */
#include "comm/transport.h"

#include <stdlib.h>

bool comm_mpi_launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

#ifndef HONE_MPI

bool comm_mpi_built(void)
{
    return false;
}

int comm_mpi_create(struct comm **rank, const struct comm_params *p, struct hone_error *e)
{
    (void)p;
    *rank = NULL;
    return err_set(
        e, HONE_EUSAGE,
        "this build has no MPI: install Open MPI with its headers (Debian: openmpi-bin libopenmpi-dev) and build again");
}

#else

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { TESTS_A_LOOK = 256 }; /* of the requests, between two looks at the clock */
enum { LONG_NS = 100000000, STOPPED_NS = 1000000000 };

struct mpi {
    struct comm base;
    MPI_Comm world;
    int tag_most;
    char *room; /* size * slot bytes: what the others sent */
    size_t slot;
    MPI_Request *requests; /* of receives by rank, then of sends by rank; MPI_REQUEST_NULL at the own places */
    MPI_Status *statuses;
    struct comm_block *got; /* of the last exchange, for all workers */
    struct failure failure;
};

bool comm_mpi_built(void)
{
    return true;
}

static void mpi_abort(struct comm *c, int code, const char *message)
{
    struct hone_error e = {0};
    err_set(&e, code, "rank %d gave up: %s", c->rank, message);
    failure_set(&((struct mpi *)c)->failure, &e);
}

static const struct hone_error *mpi_error(const struct comm *c)
{
    return failure_error(&((struct mpi *)c)->failure);
}

static int mpi_failed(struct mpi *m, int mpi_code, const char *where)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    struct hone_error e = {0};
    MPI_Error_string(mpi_code, text, &length);
    text[strcspn(text, "\n")] = 0;
    err_set(&e, HONE_EFAULT, "rank %d at %s: MPI says: %.300s", m->base.rank, where, text);
    return failure_set(&m->failure, &e);
}

static int too_late(struct mpi *m, const char *where)
{
    struct hone_error e = {0};
    for (int takes = 0; takes < 2 && !e.code; takes++) { /* what others were to send; else what they were to take */
        char who[200] = "";
        size_t n = 0;
        for (int r = 0; r < m->base.size; r++) {
            MPI_Request *q = &m->requests[takes * m->base.size + r];
            int done = 1;
            if (*q != MPI_REQUEST_NULL)
                MPI_Test(q, &done, MPI_STATUS_IGNORE);
            if (!done && n + 24 < sizeof who) /* all of them: one that waits itself is not to blame */
                n += (size_t)snprintf(who + n, sizeof who - n, "%sfor rank %d", n ? " and " : "", r);
        }
        if (n)
            err_set(&e, HONE_ERESOURCE, "rank %d waited %.3g s at %s %s%s", m->base.rank, (double)m->base.limit_ns / 1e9, where, who,
                    takes ? " to take what it sent" : "");
    }
    err_set(&e, HONE_ERESOURCE, "rank %d waited %.3g s at %s, which was over then", m->base.rank, (double)m->base.limit_ns / 1e9,
            where); /* unless a rank was named */
    return failure_set(&m->failure, &e);
}

static int room_for(struct mpi *m, size_t most, const char *where)
{
    struct hone_error e = {0};
    if (most > INT_MAX) {
        err_set(&e, HONE_EFAULT, "%s: %zu bytes in one message", where, most);
        return failure_set(&m->failure, &e);
    }
    if (most <= m->slot)
        return 0;
    size_t slot = (most + 63) / 64 * 64, bytes;
    char *room = __builtin_mul_overflow(slot, (size_t)m->base.size, &bytes) ? NULL : aligned_alloc(64, bytes);
    if (!room) {
        err_set(&e, HONE_ERESOURCE, "%s: no memory for %zu bytes from each of %d ranks", where, most, m->base.size);
        return failure_set(&m->failure, &e);
    }
    free(m->room);
    m->room = room;
    m->slot = slot;
    return 0;
}

/* Tests all requests until they are done, first without pause, then offering the processor, then with naps. */
static int complete(struct mpi *m, const char *where)
{
    int n = 2 * m->base.size, done = 0;
    int64_t start = 0, last = 0;
    for (long i = 0;; i++) {
        int rc = MPI_Testall(n, m->requests, &done, m->statuses);
        if (rc == MPI_ERR_IN_STATUS)
            for (int j = 0; j < n && rc == MPI_ERR_IN_STATUS; j++)
                rc = m->statuses[j].MPI_ERROR != MPI_SUCCESS && m->statuses[j].MPI_ERROR != MPI_ERR_PENDING
                         ? m->statuses[j].MPI_ERROR
                         : rc;
        if (rc != MPI_SUCCESS)
            return mpi_failed(m, rc, where);
        if (done)
            return 0;
        cpu_relax();
        if (i % TESTS_A_LOOK != TESTS_A_LOOK - 1)
            continue;
        int64_t now = clock_ns();
        start = start ? start : now;
        if (last && now - last > STOPPED_NS) /* it was this process that did not run */
            start += now - last;
        last = now;
        if (now - start > m->base.limit_ns)
            return too_late(m, where);
        if (i < m->base.spins)
            sched_yield();
        else /* for the next order a rank may wait long, and has no hurry then */
            nanosleep(&(struct timespec){0, now - start > LONG_NS ? 1000000 : 50000}, NULL);
    }
}

/* By one thread. */
static int exchange(struct mpi *m, unsigned seq, struct comm_block mine, size_t most, const char *where)
{
    int size = m->base.size, rank = m->base.rank, tag = (int)(seq % ((unsigned)m->tag_most + 1u)),
        rc = failure_code(&m->failure);
    if (!rc)
        rc = room_for(m, most, where);
    if (rc)
        return rc;
    int code = MPI_SUCCESS;
    for (int r = 0; r < size && code == MPI_SUCCESS; r++)
        if (r != rank)
            code = MPI_Irecv(m->room + (size_t)r * m->slot, (int)most, MPI_BYTE, r, tag, m->world, &m->requests[r]);
    for (int d = 1; d < size && code == MPI_SUCCESS; d++) { /* not all to the same rank first */
        int r = (rank + d) % size;
        code = MPI_Isend(mine.data, (int)mine.bytes, MPI_BYTE, r, tag, m->world, &m->requests[size + r]);
    }
    rc = code == MPI_SUCCESS ? complete(m, where) : mpi_failed(m, code, where);
    for (int r = 0; r < size && !rc; r++) {
        int bytes = 0;
        if (r != rank)
            MPI_Get_count(&m->statuses[r], MPI_BYTE, &bytes);
        m->got[r] = r == rank ? mine : (struct comm_block){m->room + (size_t)r * m->slot, (size_t)bytes};
    }
    return rc;
}

static int mpi_share(struct comm *c, const struct worker *w, unsigned seq, struct comm_block mine, size_t most,
                     const char *where, struct comm_block *blocks)
{
    struct mpi *m = (struct mpi *)c;
    if (!w || w->ith == 0)
        exchange(m, seq, mine, most, where);
    if (w)
        worker_barrier(w);
    memcpy(blocks, m->got, (size_t)c->size * sizeof *blocks);
    return failure_code(&m->failure);
}

static void mpi_free(struct comm *c)
{
    struct mpi *m = (struct mpi *)c;
    const struct hone_error *e = failure_error(&m->failure);
    if (!e->code)
        comm_barrier(c, NULL, "the end"); /* else MPI_Finalize waits for ever for a rank that hangs */
    e = failure_error(&m->failure);
    if (e->code)
        MPI_Abort(m->world, e->code == HONE_ECANCELED ? 130 : -e->code); /* as shells know interrupted ones */
    MPI_Comm_free(&m->world);
    MPI_Finalize();
    free(m->room);
    free(m->requests);
    free(m->statuses);
    free(m->got);
    comm_finish(c);
    free(m);
}

static const struct transport mpi_transport = {
    .name = "mpi", .share = mpi_share, .settles = false, .abort = mpi_abort, .error = mpi_error, .free = mpi_free};

/* While MPI starts. */
struct watch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t over;
    bool runs, done;
    int limit_ms;
    void (*late)(int limit_ms);
};

static void *watch_main(void *arg)
{
    struct watch *w = arg;
    struct timespec at;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += w->limit_ms / 1000;
    at.tv_nsec += w->limit_ms % 1000 * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->mutex);
    while (!w->done && rc != ETIMEDOUT)
        rc = pthread_cond_clockwait(&w->over, &w->mutex, CLOCK_MONOTONIC, &at);
    bool late = !w->done;
    pthread_mutex_unlock(&w->mutex);
    if (late)
        w->late(w->limit_ms);
    return NULL;
}

static void watch_start(struct watch *w, const struct comm_params *p)
{
    *w = (struct watch){.mutex = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER, .late = p->late,
                        .limit_ms = p->limit_ms ? p->limit_ms : COMM_LIMIT_MS};
    w->runs = p->late && !pthread_create(&w->thread, NULL, watch_main, w);
}

static void watch_end(struct watch *w)
{
    if (!w->runs)
        return;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_signal(&w->over);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
}

/* MPI starts: from here on every failure must end all processes. */
static int start(MPI_Comm *world, int *rank, int *size, int *tag_most, struct hone_error *e)
{
    int provided = 0, set = 0, *most = NULL;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_SERIALIZED)
        return err_set(e, HONE_ERESOURCE, "MPI does not start, or lets only the main thread call");
    if (MPI_Comm_dup(MPI_COMM_WORLD, world) != MPI_SUCCESS ||
        MPI_Comm_set_errhandler(*world, MPI_ERRORS_RETURN) != MPI_SUCCESS || MPI_Comm_rank(*world, rank) != MPI_SUCCESS ||
        MPI_Comm_size(*world, size) != MPI_SUCCESS)
        return err_set(e, HONE_ERESOURCE, "MPI has no communicator for us");
    MPI_Comm_get_attr(*world, MPI_TAG_UB, &most, &set);
    *tag_most = set && most && *most < INT_MAX ? *most : 32767;
    return *size <= COMM_MAX_RANKS ? 0 : err_set(e, HONE_EUSAGE, "%d ranks; 1 to %d are possible", *size, COMM_MAX_RANKS);
}

int comm_mpi_create(struct comm **out, const struct comm_params *p, struct hone_error *e)
{
    int rank = 0, size = 0, started = 0;
    *out = NULL;
    MPI_Initialized(&started);
    if (started)
        return err_set(e, HONE_EUSAGE, "MPI has been started before: one group a process");
    if (!comm_mpi_launched())
        return err_set(e, HONE_EUSAGE, "this process was not started by mpirun");
    struct mpi *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HONE_ERESOURCE, "no memory for a rank");
    struct watch watch;
    watch_start(&watch, p);
    int rc = start(&m->world, &rank, &size, &m->tag_most, e);
    watch_end(&watch);
    if (!rc)
        rc = comm_init(&m->base, &mpi_transport, rank, size, p, e);
    if (!rc) {
        m->requests = malloc(2 * (size_t)size * sizeof(MPI_Request));
        m->statuses = calloc(2 * (size_t)size, sizeof(MPI_Status));
        m->got = calloc((size_t)size, sizeof *m->got);
        if (!m->requests || !m->statuses || !m->got)
            rc = err_set(e, HONE_ERESOURCE, "no memory for %d ranks", size);
    }
    if (rc) { /* the process ends without MPI_Finalize, which mpirun takes for a failure and ends the others */
        free(m->requests);
        free(m->statuses);
        free(m->got);
        comm_finish(&m->base);
        free(m);
        return rc;
    }
    for (int i = 0; i < 2 * size; i++)
        m->requests[i] = MPI_REQUEST_NULL;
    *out = &m->base;
    return 0;
}

#endif
