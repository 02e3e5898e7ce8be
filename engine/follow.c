/* follow.c: see follow.h. An order is 64 bytes from rank 0 to all; a decode step's token is within, so that it costs one
 * meeting. Longer things follow in a second message.
 *
 * Between orders the leader may be waiting for somebody to type, for hours. So a thread of its own sends an order that means
 * nothing, four times in the time limit, whenever the group has nothing else to do, and a follower waits for orders no longer
 * than for anything else. A process that is stopped or whose machine is gone sends none. Waiting for orders without limit was
 * the alternative: a stopped leader then kept the other processes for ever. */
#include "engine/follow.h"

#include "engine/session.h"
#include "model/model.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum order_kind {
    ORDER_END,
    ORDER_CREATE,
    ORDER_FREE,
    ORDER_EVAL,
    ORDER_REWIND,
    ORDER_FORK,
    ORDER_TIMED,
    ORDER_SAVE,
    ORDER_RESTORE,
    ORDER_LINK,
    ORDER_NOTHING
};

enum { IN_ORDER = 3, MAX_SESSIONS = 64, TEXTS = 7, TEXT_LIMIT = 1 << 24 };

struct order {
    int32_t kind, session;
    int32_t a, b;
    uint64_t n;
    struct follow_token tokens[IN_ORDER]; /* of a short eval; else they follow */
    int32_t zero;
};
_Static_assert(sizeof(struct order) == 64, "an order is one cache line");

static struct comm *world;
static atomic_int limit_ms = COMM_LIMIT_MS;
static bool sessions_used[MAX_SESSIONS]; /* the leader's numbers, from 1 on */
static bool agreed;                      /* the last failure was one that all processes know of, and the group works */
static void (*lost)(const struct hone_error *e);
static bool joined;                      /* the first meeting found all processes alike: the others wait for orders */

bool follow_wanted(void)
{
    return comm_mpi_built() && comm_mpi_launched();
}

static int failed(struct hone_error *e)
{
    return err_set(e, comm_error(world)->code, "%s", comm_error(world)->message);
}

/* ---- the leader's side */

/* Signs of life come four in the limit; a short limit is one for ranks that work, not for a process that may have to wait for a
 * processor. */
enum { ORDER_LIMIT_MS = 1000 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* whose the group is: an order's, to its end, or the sign of life's */

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool started, stop;
} life = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool used; /* something was ordered */

static int tell(const struct order *o, const void *more, size_t bytes, struct hone_error *e)
{
    struct order copy = *o;
    if (o->kind != ORDER_NOTHING && o->kind != ORDER_END)
        used = true;
    int rc = comm_broadcast(world, NULL, &copy, sizeof copy, 0, "an order");
    if (!rc && bytes)
        rc = comm_broadcast(world, NULL, (void *)(uintptr_t)more, bytes, 0, "what goes with an order");
    return rc ? failed(e) : 0;
}

/* Within the turn. */
static int order_now(const struct order *o, const void *more, size_t bytes, struct hone_error *e)
{
    return comm_error(world)->code ? failed(e) : tell(o, more, bytes, e);
}

/* Takes the turn for an order; it stays the caller's (follow_done) where `keep` and all is well. */
static int order(const struct order *o, const void *more, size_t bytes, bool keep, struct hone_error *e)
{
    pthread_mutex_lock(&turn);
    int rc = order_now(o, more, bytes, e);
    if (rc || !keep)
        pthread_mutex_unlock(&turn);
    return rc;
}

void follow_done(int id)
{
    if (id)
        pthread_mutex_unlock(&turn);
}

/* A quarter of the limit from now. */
static struct timespec next_sign(void)
{
    struct timespec t;
    int64_t limit = atomic_load(&limit_ms);
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + (limit > ORDER_LIMIT_MS ? limit : ORDER_LIMIT_MS) * 250000;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

static void *live(void *unused)
{
    struct hone_error ignored = {0};
    (void)unused;
    pthread_mutex_lock(&life.mutex);
    while (!life.stop) {
        struct timespec at = next_sign();
        if (!pthread_cond_clockwait(&life.changed, &life.mutex, CLOCK_MONOTONIC, &at)) /* another limit, or the end */
            continue;
        pthread_mutex_unlock(&life.mutex);
        if (!pthread_mutex_trylock(&turn)) { /* else an order is obeyed: nobody waits for one */
            if (!comm_error(world)->code && tell(&(struct order){.kind = ORDER_NOTHING}, NULL, 0, &ignored) && lost) {
                lost(&ignored); /* whoever types would not learn of it before his next line */
                comm_free(world);
            }
            pthread_mutex_unlock(&turn); /* without a `lost` the next order tells what is wrong */
        }
        pthread_mutex_lock(&life.mutex);
    }
    pthread_mutex_unlock(&life.mutex);
    return NULL;
}

static int life_start(struct hone_error *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* Ctrl-C is for the thread that waits for a key */
    int rc = pthread_create(&life.thread, NULL, live, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    life.started = !rc;
    return rc ? err_set(e, HONE_ERESOURCE, "cannot start a thread for the other processes: %s", strerror(rc)) : 0;
}

static void life_change(bool stop)
{
    pthread_mutex_lock(&life.mutex);
    life.stop |= stop;
    pthread_cond_signal(&life.changed);
    pthread_mutex_unlock(&life.mutex);
}

int follow_start(const struct follow_params *params, struct hone_error *e)
{
    struct comm_params p = {
        .n_workers = FOLLOW_THREADS, .poll = params->poll, .limit_ms = params->limit_ms, .late = params->late};
    lost = params->lost;
    if (params->limit_ms)
        atomic_store(&limit_ms, params->limit_ms);
    int rc = comm_mpi_create(&world, &p, e);
    if (!rc)
        rc = follow_meet(world, params->command ? params->command : "", e);
    if (!rc)
        rc = comm_self_test(world, e);
    joined = !rc;
    return rc || comm_rank(world) || !follow_comm() ? rc : life_start(e);
}

void follow_limit(int ms)
{
    atomic_store(&limit_ms, ms);
    comm_set_limit(world, ms);
    life_change(false);
}

/* A world of one is no world: there is nobody to split over. */
struct comm *follow_comm(void)
{
    return world && comm_size(world) > 1 ? world : NULL;
}

void follow_end(void)
{
    struct hone_error ignored = {0};
    if (life.started) {
        life_change(true);
        pthread_join(life.thread, NULL);
        life.started = false;
    }
    if (joined && comm_rank(world) == 0 && !comm_error(world)->code)
        order(&(struct order){.kind = ORDER_END}, NULL, 0, false, &ignored);
    comm_free(world);
    world = NULL;
    joined = false;
}

static void text_add(char *to, size_t *at, const char *text)
{
    size_t n = text ? strlen(text) + 1 : 1;
    if (to)
        memcpy(to + *at, text ? text : "", n);
    *at += n;
}

/* The texts of a session's parameters, each with its NUL; to NULL: only their length. */
static size_t texts_of(char *to, const char *path, const struct hone_session_params *p, const char *gates)
{
    size_t n = 0;
    const char *const all[TEXTS] = {path, p->type_k, p->type_v, p->split_mode, p->tensor_split, p->devices, gates};
    for (int i = 0; i < TEXTS; i++)
        text_add(to, &n, all[i]);
    return n;
}

int follow_create(const char *path, const struct hone_session_params *p, const char *gates, int *id, struct hone_error *e)
{
    *id = 0;
    if (!follow_comm() || comm_rank(world))
        return 0;
    size_t texts = texts_of(NULL, path, p, gates), bytes = sizeof *p + texts;
    char *message = malloc(bytes);
    if (!message)
        return err_set(e, HONE_ERESOURCE, "no memory for a session");
    memcpy(message, p, sizeof *p); /* its pointers mean nothing there */
    texts_of(message + sizeof *p, path, p, gates);
    pthread_mutex_lock(&turn); /* numbers too: sessions of several threads are made at a time */
    int one = 1;
    while (one < MAX_SESSIONS && sessions_used[one])
        one++;
    int rc = one == MAX_SESSIONS
                 ? err_set(e, HONE_ERESOURCE, "more than %d sessions over several processes", MAX_SESSIONS - 1)
                 : order_now(&(struct order){.kind = ORDER_CREATE, .session = one, .n = bytes}, message, bytes, e);
    if (rc)
        pthread_mutex_unlock(&turn);
    else
        sessions_used[*id = one] = true;
    free(message);
    return rc;
}

int follow_agree(int rc, const struct hone_error *own, const char *where, const uint64_t *facts, const char *const *what, int n,
                 struct hone_error *e)
{
    struct hone_error mine = rc ? *own : (struct hone_error){0};
    const struct comm_block *all;
    if (comm_share_even(world, NULL, &mine, sizeof mine, where, &all))
        return failed(e);
    for (int r = 0; r < comm_size(world); r++) {
        struct hone_error one;
        memcpy(&one, all[r].data, sizeof one);
        one.message[sizeof one.message - 1] = 0;
        agreed |= one.code != 0;
        if (one.code) /* the same one on every rank: all give up */
            return r == comm_rank(world) ? err_set(e, one.code, "%s", one.message)
                                         : err_set(e, one.code, "rank %d%s%s: %s", r, *follow_host(r) ? " on " : "", follow_host(r), one.message);
    }
    for (int i = 0; i < n; i++)
        if (comm_same(world, facts[i], what[i]))
            return failed(e);
    return 0;
}

int follow_ready(int rc, const struct hone_error *own, uint32_t *off, uint64_t plan, struct hone_error *e)
{
    struct ready {
        uint64_t plan;
        uint32_t off, failed;
    } mine = {plan, rc ? 0 : *off, rc != 0}, one;
    const struct comm_block *all;
    uint32_t any = 0, failures = 0;
    int odd = -1;
    if (comm_share_even(world, NULL, &mine, sizeof mine, "a step's plan", &all))
        return failed(e);
    for (int r = 0; r < comm_size(world); r++) {
        memcpy(&one, all[r].data, sizeof one);
        any |= one.off;
        failures |= one.failed;
        odd = one.plan != plan ? r : odd;
    }
    if (failures)
        return follow_agree(rc, own, "planning a step", NULL, NULL, 0, e);
    *off = any;
    if (any || odd < 0)
        return 0;
    struct hone_error why = {0};
    err_set(&why, HONE_ECHECK, "the plans of rank %d and rank %d differ", comm_rank(world), odd);
    comm_abort(world, why.code, why.message);
    return failed(e);
}

int follow_eval(int id, const struct hone_token *tokens, size_t n, struct hone_error *e)
{
    struct order o = {.kind = ORDER_EVAL, .session = id, .n = n};
    if (!id)
        return 0;
    struct follow_token *all = n <= IN_ORDER ? o.tokens : malloc(n * sizeof *all);
    if (!all)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++)
        all[i] = (struct follow_token){tokens[i].id, tokens[i].seq, tokens[i].want_logits};
    int rc = order(&o, all, n <= IN_ORDER ? 0 : n * sizeof *all, true, e);
    if (n > IN_ORDER)
        free(all);
    return rc;
}

int follow_rewind(int id, int32_t seq, int32_t length, struct hone_error *e)
{
    return id ? order(&(struct order){.kind = ORDER_REWIND, .session = id, .a = seq, .b = length}, NULL, 0, false, e) : 0;
}

int follow_fork(int id, int32_t from, int32_t to, struct hone_error *e)
{
    return id ? order(&(struct order){.kind = ORDER_FORK, .session = id, .a = from, .b = to}, NULL, 0, false, e) : 0;
}

int follow_timed(int id, bool timed, struct hone_error *e)
{
    if (!id)
        return 0;
    int rc = order(&(struct order){.kind = ORDER_TIMED, .session = id, .a = timed}, NULL, 0, true, e);
    if (!rc) { /* before the next sign of life */
        comm_set_timed(world, timed);
        follow_done(id);
    }
    return rc;
}

int follow_save(int id, struct hone_error *e)
{
    return id ? order(&(struct order){.kind = ORDER_SAVE, .session = id}, NULL, 0, true, e) : 0;
}

int follow_restore(int id, struct hone_error *e)
{
    return id ? order(&(struct order){.kind = ORDER_RESTORE, .session = id}, NULL, 0, true, e) : 0;
}

int follow_link(double *latency_ns, double *bytes_per_s, struct hone_error *e)
{
    int rc = order(&(struct order){.kind = ORDER_LINK, .session = 1}, NULL, 0, true, e);
    if (!rc) {
        rc = comm_link(world, latency_ns, bytes_per_s, e);
        follow_done(1);
    }
    return rc;
}

bool follow_used(void)
{
    return used;
}

void follow_free(int id)
{
    struct hone_error ignored = {0};
    if (!id)
        return;
    pthread_mutex_lock(&turn);
    order_now(&(struct order){.kind = ORDER_FREE, .session = id}, NULL, 0, &ignored);
    sessions_used[id] = false;
    pthread_mutex_unlock(&turn);
}

/* ---- the followers' side */

struct following {
    struct hone_session *sessions[MAX_SESSIONS];
    struct hone_model *models[MAX_SESSIONS]; /* of each session; one that is open already is shared */
    char *paths[MAX_SESSIONS];
};

static int model_get(struct following *f, int id, const char *path, struct hone_error *e)
{
    for (int i = 1; i < MAX_SESSIONS; i++)
        if (f->models[i] && !strcmp(f->paths[i], path)) {
            f->models[id] = f->models[i];
            f->paths[id] = strdup(path);
            return f->paths[id] ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a path");
        }
    f->paths[id] = strdup(path);
    if (!f->paths[id])
        return err_set(e, HONE_ERESOURCE, "no memory for a path");
    return hone_model_open(&f->models[id], path, e);
}

/* Closes the model of a place, unless another place has it too. */
static void model_put(struct following *f, int id)
{
    bool shared = false;
    for (int i = 1; i < MAX_SESSIONS; i++)
        shared |= i != id && f->models[i] && f->models[i] == f->models[id];
    if (!shared)
        hone_model_close(f->models[id]);
    f->models[id] = NULL;
    free(f->paths[id]);
    f->paths[id] = NULL;
}

static int do_create(struct following *f, int id, const char *message, size_t bytes, struct hone_error *e)
{
    struct hone_session_params p;
    const char *texts[TEXTS], *at = message + sizeof p, *end = message + bytes;
    struct hone_error own = {0};
    memcpy(&p, message, sizeof p);
    for (int i = 0; i < TEXTS; i++) {
        texts[i] = at;
        at += at < end ? strnlen(at, (size_t)(end - at)) + 1 : 0;
        INVARIANT(at <= end);
    }
    p.type_k = *texts[1] ? texts[1] : NULL;
    p.type_v = *texts[2] ? texts[2] : NULL;
    p.split_mode = *texts[3] ? texts[3] : NULL;
    p.tensor_split = *texts[4] ? texts[4] : NULL;
    p.devices = *texts[5] ? texts[5] : NULL;
    p.gates = *texts[6] ? texts[6] : NULL;
    p.recipe = NULL;
    p.progress = NULL;
    if (f->paths[id] && strcmp(f->paths[id], texts[0]))
        model_put(f, id);
    int rc = f->models[id] ? 0 : model_get(f, id, texts[0], &own);
    if (rc) { /* the others wait for what this rank has to say */
        struct hone_error all = {0};
        model_put(f, id);
        follow_agree(rc, &own, "creating a session", NULL, NULL, 0, &all);
        return comm_error(world)->code ? err_set(e, all.code, "%s", all.message) : 0; /* it is the leader's to tell */
    }
    rc = hone_session_create(&f->sessions[id], f->models[id], &p, &own);
    return comm_error(world)->code ? err_set(e, own.code, "%s", own.message)
                                   : 0; /* a refusal that all share is the leader's to tell */
}

static int do_eval(struct hone_session *s, const struct order *o, const struct follow_token *more, struct hone_error *e)
{
    const struct follow_token *from = o->n <= IN_ORDER ? o->tokens : more;
    struct hone_token *tokens = malloc((size_t)o->n * sizeof *tokens + 1);
    if (!tokens)
        return err_set(e, HONE_ERESOURCE, "no memory for %llu tokens", (unsigned long long)o->n);
    for (uint64_t i = 0; i < o->n; i++)
        tokens[i] = (struct hone_token){from[i].id, from[i].seq, from[i].wanted != 0};
    agreed = false;
    int rc = hone_session_eval(s, tokens, (size_t)o->n, e);
    free(tokens);
    return agreed ? 0 : rc; /* what all know is the leader's to tell */
}

static int obey(struct following *f, const struct order *o, const char *more, struct hone_error *e)
{
    INVARIANT(o->session > 0 && o->session < MAX_SESSIONS);
    struct hone_session *s = f->sessions[o->session];
    if (o->kind == ORDER_TIMED) {
        comm_set_timed(world, o->a != 0);
        return 0;
    }
    double latency_ns, bytes_per_s;
    if (o->kind == ORDER_LINK)
        return comm_link(world, &latency_ns, &bytes_per_s, e);
    if (o->kind == ORDER_CREATE)
        return do_create(f, o->session, more, (size_t)o->n, e);
    if (o->kind == ORDER_EVAL)
        return do_eval(s, o, (const struct follow_token *)(const void *)more, e);
    if (o->kind == ORDER_SAVE)
        return session_give_part(s, e);
    if (o->kind == ORDER_RESTORE)
        return session_take_part(s, e);
    if (o->kind == ORDER_REWIND)
        return hone_session_rewind(s, o->a, o->b, e);
    if (o->kind == ORDER_FORK)
        return hone_session_fork(s, o->a, o->b, e);
    hone_session_free(s); /* the model stays open: the next session is likely of the same one */
    f->sessions[o->session] = NULL;
    return 0;
}

/* Bytes that follow an order. */
static size_t more_of(const struct order *o)
{
    if (o->kind == ORDER_CREATE)
        return (size_t)o->n;
    return o->kind == ORDER_EVAL && o->n > IN_ORDER ? (size_t)o->n * sizeof(struct follow_token) : 0;
}

static int next_order(struct following *f, bool *end, struct hone_error *e)
{
    struct order o = {0};
    int limit = atomic_load(&limit_ms);
    comm_set_limit(world, limit < ORDER_LIMIT_MS ? ORDER_LIMIT_MS : limit);
    int rc = comm_broadcast(world, NULL, &o, sizeof o, 0, "the next order");
    comm_set_limit(world, limit);
    *end = o.kind == ORDER_END;
    if (rc || *end || o.kind == ORDER_NOTHING)
        return rc ? failed(e) : 0;
    size_t bytes = more_of(&o);
    char *more = bytes < (size_t)INT32_MAX ? malloc(bytes + 1) : NULL;
    if (!more)
        return err_set(e, HONE_ERESOURCE, "no memory for an order of %zu bytes", bytes);
    if (bytes && comm_broadcast(world, NULL, more, bytes, 0, "what goes with an order"))
        rc = failed(e);
    if (!rc)
        rc = obey(f, &o, more, e);
    free(more);
    return rc;
}

int follow_run(struct hone_error *e)
{
    struct following *f = calloc(1, sizeof *f);
    bool end = false;
    int rc = f ? 0 : err_set(e, HONE_ERESOURCE, "no memory to follow");
    while (!rc && !end)
        rc = next_order(f, &end, e);
    if (rc && !comm_error(world)->code) /* the others must not wait for this rank */
        comm_abort(world, rc, e->message);
    for (int i = 1; f && i < MAX_SESSIONS; i++) {
        hone_session_free(f->sessions[i]);
        f->sessions[i] = NULL;
    }
    for (int i = 1; f && i < MAX_SESSIONS; i++)
        model_put(f, i);
    free(f);
    return rc;
}
