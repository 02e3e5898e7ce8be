/* ranks_parts.c: the cells and states of ranks in other processes, brought to the leader for a session file and back.
 *
 * One rank's at a time go through the group in pieces of a megabyte, as rows in one order that both ends know: layer by layer,
 * only cells and slots in use, which every process counts alike. The piece that is not full is the last, so nobody has to know
 * a length before. All processes see every piece, since there is one kind of meeting; what is not for one it drops. The leader
 * holds the whole and one rank's part beside it. A file a process would need neither, and could be read by as many processes
 * alone. */
#include "engine/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 };

struct stream {
    struct comm *comm;
    int from; /* the rank that gives */
    unsigned char *room;
    size_t used;                /* of room, while giving */
    const unsigned char *piece; /* while taking: what is left of it */
    size_t left;
    bool last;
    struct hone_error *e;
};

static int failed(const struct stream *s)
{
    return err_set(s->e, comm_error(s->comm)->code, "%s", comm_error(s->comm)->message);
}

static int share(struct stream *s, size_t bytes)
{
    const struct comm_block *all;
    if (comm_share(s->comm, NULL, (struct comm_block){s->room, bytes}, PIECE, "a session's cells", &all))
        return failed(s);
    s->piece = all[s->from].data;
    s->left = all[s->from].bytes;
    s->last = s->left < PIECE;
    s->used = 0;
    return 0;
}

static int give(struct stream *s, void *data, size_t bytes)
{
    const unsigned char *p = data;
    int rc = 0;
    while (bytes && !rc) {
        size_t n = PIECE - s->used < bytes ? PIECE - s->used : bytes;
        memcpy(s->room + s->used, p, n);
        s->used += n;
        p += n;
        bytes -= n;
        rc = s->used == PIECE ? share(s, PIECE) : 0;
    }
    return rc;
}

static int take(struct stream *s, void *data, size_t bytes)
{
    unsigned char *p = data;
    int rc = 0;
    while (bytes && !rc) {
        size_t n = s->left < bytes ? s->left : bytes;
        if (n) { /* the first piece is not there yet */
            memcpy(p, s->piece, n);
            s->piece += n;
        }
        s->left -= n;
        p += n;
        bytes -= n;
        if (bytes && s->last)
            return err_set(s->e, HONE_EFAULT, "rank %d gave too little of its cells", s->from);
        rc = bytes ? share(s, 0) : 0;
    }
    return rc;
}

/* The end of a stream, on every rank. */
static int finish(struct stream *s)
{
    int rc = comm_rank(s->comm) == s->from ? share(s, s->used) : 0;
    while (!s->last && !rc)
        rc = share(s, 0);
    return rc;
}

typedef int pass_fn(struct stream *s, void *data, size_t bytes);

static int each_row(struct stream *s, const struct tensor *t, int axis, const int32_t *users, pass_fn *pass)
{
    int rc = 0;
    for (int64_t row = 0; t && row < tensor_rows(t) && !rc; row++) {
        int64_t at[3];
        tensor_row_index(t, row, at);
        if (users[at[axis - 1]])
            rc = pass(s, tensor_row(t, at[0], at[1], at[2]), format_row_bytes(format_get(t->format), t->ne[0]));
    }
    return rc;
}

/* A rank's rows, with the users that all processes count alike. */
static int pass_rank(struct stream *s, const struct kv *kv, const struct states *states, const int32_t *cells,
                     const int32_t *slots, int n_layer, pass_fn *pass)
{
    int rc = 0;
    for (int i = 0; i < n_layer && !rc; i++) {
        rc = each_row(s, kv->k[i], 1, cells, pass);
        if (!rc)
            rc = each_row(s, kv->v[i], 1, cells, pass);
        if (!rc && states->n_slots)
            rc = each_row(s, states->conv[i], 2, slots, pass);
        if (!rc && states->n_slots)
            rc = each_row(s, states->delta[i], 3, slots, pass);
    }
    return rc;
}

/* What is the text's, as copied within a process by ranks_whole.c. */
static int pass_text(struct stream *s, struct kv *kv, struct states *states, pass_fn *pass)
{
    size_t cells = (size_t)kv->n_cells, n_seq = (size_t)kv->n_seq;
    int rc = pass(s, kv->map, cells * sizeof *kv->map);
    if (!rc)
        rc = pass(s, kv->length, n_seq * sizeof *kv->length);
    if (!rc)
        rc = pass(s, kv->users, cells * sizeof *kv->users);
    if (!rc)
        rc = pass(s, kv->free_list, cells * sizeof *kv->free_list);
    if (!rc)
        rc = pass(s, &kv->n_free, sizeof kv->n_free);
    if (rc || !states->n_slots)
        return rc;
    rc = pass(s, states->history, n_seq * (size_t)(states->n_snapshots + 1) * sizeof *states->history);
    if (!rc)
        rc = pass(s, states->n_history, n_seq * sizeof *states->n_history);
    if (!rc)
        rc = pass(s, states->users, (size_t)states->n_slots * sizeof *states->users);
    return rc ? rc : pass(s, states->slots, 2 * n_seq * sizeof *states->slots);
}

/* Whoever cannot go on ends the group: the others would wait. */
static int ended(const struct ranks *r, int rc, struct hone_error *e)
{
    if (rc && !comm_error(r->comm)->code)
        comm_abort(r->comm, rc, e->message);
    return rc;
}

/* One rank's rows to the leader (w not NULL), where they go into the whole. */
static int collect_rank(struct stream *s, int rank, struct ranks_whole *w, const struct ranks *r, const struct kv *kv,
                        const struct states *states)
{
    struct ranks_whole part = {0};
    int n_layer = ranks_model(r, rank)->n_layer;
    int rc = w ? ranks_whole_create(&part, ranks_model(r, rank), &w->kv, &w->states, s->e) : 0;
    if (!rc && w)
        rc = pass_rank(s, &part.kv, &part.states, w->kv.users, w->states.users, n_layer, take);
    else if (!rc && r->first == rank)
        rc = pass_rank(s, kv, states, kv->users, states->users, n_layer, give);
    if (!rc)
        rc = finish(s);
    if (!rc && w)
        rc = ranks_move(w, r, rank, &part.kv, &part.states, false, s->e);
    ranks_whole_free(&part);
    return rc;
}

int ranks_collect(struct ranks_whole *w, const struct ranks *r, const struct kv *kv, const struct states *states,
                  struct hone_error *e)
{
    struct stream s = {.comm = r->comm, .room = malloc(PIECE), .e = e};
    int rc = s.room ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a session's cells");
    for (int rank = 1; rank < r->spec.n && !rc; rank++) {
        s.from = rank;
        s.left = 0;
        s.last = false;
        rc = collect_rank(&s, rank, w, r, kv, states);
    }
    free(s.room);
    return ended(r, rc, e);
}

/* One rank's rows of the whole from the leader. */
static int spread_rank(struct stream *s, int rank, struct ranks_whole *w, const struct ranks *r, struct kv *kv,
                       struct states *states)
{
    struct ranks_whole part = {0};
    int n_layer = ranks_model(r, rank)->n_layer;
    int rc = w ? ranks_whole_create(&part, ranks_model(r, rank), &w->kv, &w->states, s->e) : 0;
    if (!rc && w) {
        rc = ranks_move(w, r, rank, &part.kv, &part.states, true, s->e);
        rc = rc ? rc : pass_rank(s, &part.kv, &part.states, w->kv.users, w->states.users, n_layer, give);
    } else if (!rc && r->first == rank) {
        rc = pass_rank(s, kv, states, kv->users, states->users, n_layer, take);
    }
    if (!rc)
        rc = finish(s);
    ranks_whole_free(&part);
    return rc;
}

int ranks_spread(struct ranks_whole *w, const struct ranks *r, struct kv *kv, struct states *states, struct hone_error *e)
{
    struct stream s = {.comm = r->comm, .room = malloc(PIECE), .e = e};
    int rc = !s.room ? err_set(e, HONE_ERESOURCE, "no memory for a session's cells")
             : w     ? pass_text(&s, &w->kv, &w->states, give)
                     : pass_text(&s, kv, states, take);
    if (!rc)
        rc = finish(&s);
    for (int rank = 1; rank < r->spec.n && !rc; rank++) {
        s.left = 0;
        s.last = false;
        rc = spread_rank(&s, rank, w, r, kv, states);
    }
    free(s.room);
    return ended(r, rc, e);
}
