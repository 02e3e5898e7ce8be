/* follow.c: see follow.h. An order is 64 bytes from rank 0 to all; a decode step's token is within, so that it costs one
 * meeting. Longer things follow in a second message.
 *
 * While a follower waits for an order there is no time limit: the leader may be waiting for somebody to type. Everything else
 * that ranks wait for has one (comm.h). */
#include "engine/follow.h"

#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum order_kind { ORDER_END, ORDER_CREATE, ORDER_FREE, ORDER_EVAL, ORDER_REWIND, ORDER_FORK };

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
static int limit_ms = COMM_LIMIT_MS;
static bool sessions_used[MAX_SESSIONS]; /* the leader's numbers, from 1 on */

bool follow_wanted(void)
{
    return comm_mpi_built() && comm_mpi_launched();
}

int follow_start(int poll, struct hone_error *e)
{
    struct comm_params p = {.n_workers = FOLLOW_THREADS, .poll = poll};
    return comm_mpi_create(&world, &p, e);
}

void follow_limit(int ms)
{
    limit_ms = ms;
    comm_set_limit(world, ms);
}

struct comm *follow_comm(void)
{
    return world;
}

/* ---- the leader's side */

static int failed(struct hone_error *e)
{
    return err_set(e, comm_error(world)->code, "%s", comm_error(world)->message);
}

static int tell(const struct order *o, const void *more, size_t bytes, struct hone_error *e)
{
    struct order copy = *o;
    int rc = comm_broadcast(world, NULL, &copy, sizeof copy, 0, "an order");
    if (!rc && bytes)
        rc = comm_broadcast(world, NULL, (void *)(uintptr_t)more, bytes, 0, "what goes with an order");
    return rc ? failed(e) : 0;
}

void follow_end(void)
{
    struct hone_error ignored;
    if (world && comm_rank(world) == 0 && !comm_error(world)->code)
        tell(&(struct order){.kind = ORDER_END}, NULL, 0, &ignored);
    comm_free(world);
    world = NULL;
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
    if (!world || comm_rank(world))
        return 0;
    int free_id = 1;
    while (free_id < MAX_SESSIONS && sessions_used[free_id])
        free_id++;
    if (free_id == MAX_SESSIONS)
        return err_set(e, HONE_ERESOURCE, "more than %d sessions over several processes", MAX_SESSIONS - 1);
    size_t texts = texts_of(NULL, path, p, gates), bytes = sizeof *p + texts;
    char *message = malloc(bytes);
    if (!message)
        return err_set(e, HONE_ERESOURCE, "no memory for a session");
    memcpy(message, p, sizeof *p); /* its pointers mean nothing there */
    texts_of(message + sizeof *p, path, p, gates);
    int rc = tell(&(struct order){.kind = ORDER_CREATE, .session = free_id, .n = bytes}, message, bytes, e);
    free(message);
    if (!rc)
        sessions_used[ *id = free_id] = true;
    return rc;
}

int follow_agree(int rc, const struct hone_error *own, const uint64_t *facts, const char *const *what, int n,
                 struct hone_error *e)
{
    struct hone_error mine = rc ? *own : (struct hone_error){0};
    const struct comm_block *all;
    if (comm_share_even(world, NULL, &mine, sizeof mine, "creating a session", &all))
        return failed(e);
    for (int r = 0; r < comm_size(world); r++) {
        struct hone_error one;
        memcpy(&one, all[r].data, sizeof one);
        one.message[sizeof one.message - 1] = 0;
        if (one.code) /* the same one on every rank: all give the session up */
            return r == comm_rank(world) ? err_set(e, one.code, "%s", one.message)
                                         : err_set(e, one.code, "rank %d: %s", r, one.message);
    }
    for (int i = 0; i < n; i++)
        if (comm_same(world, facts[i], what[i]))
            return failed(e);
    return 0;
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
    int rc = tell(&o, all, n <= IN_ORDER ? 0 : n * sizeof *all, e);
    if (n > IN_ORDER)
        free(all);
    return rc;
}

int follow_rewind(int id, int32_t seq, int32_t length, struct hone_error *e)
{
    return id ? tell(&(struct order){.kind = ORDER_REWIND, .session = id, .a = seq, .b = length}, NULL, 0, e) : 0;
}

int follow_fork(int id, int32_t from, int32_t to, struct hone_error *e)
{
    return id ? tell(&(struct order){.kind = ORDER_FORK, .session = id, .a = from, .b = to}, NULL, 0, e) : 0;
}

void follow_free(int id)
{
    struct hone_error ignored;
    if (!id)
        return;
    if (!comm_error(world)->code)
        tell(&(struct order){.kind = ORDER_FREE, .session = id}, NULL, 0, &ignored);
    sessions_used[id] = false;
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
        model_put(f, id);
        return follow_agree(rc, &own, NULL, NULL, 0, e);
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
    int rc = hone_session_eval(s, tokens, (size_t)o->n, e);
    free(tokens);
    return rc;
}

static int obey(struct following *f, const struct order *o, const char *more, struct hone_error *e)
{
    INVARIANT(o->session > 0 && o->session < MAX_SESSIONS);
    struct hone_session *s = f->sessions[o->session];
    if (o->kind == ORDER_CREATE)
        return do_create(f, o->session, more, (size_t)o->n, e);
    if (o->kind == ORDER_EVAL)
        return do_eval(s, o, (const struct follow_token *)(const void *)more, e);
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
    comm_set_limit(world, 0);
    int rc = comm_broadcast(world, NULL, &o, sizeof o, 0, "an order");
    comm_set_limit(world, limit_ms);
    *end = o.kind == ORDER_END;
    if (rc || *end)
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
