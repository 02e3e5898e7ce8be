/* ranks_whole.c: the ranks' parts of cells and states put together, and taken apart again: what a session file is written from
 * and read into.
 *
 * A file says nothing of ranks, so a session may be saved on two devices and go on on three, or on one. Only cells and slots
 * that are in use are copied. Writing the ranks' parts one behind the other was the alternative: no copy, and a file that only
 * the same cut can read. */
#include "engine/image.h"
#include "engine/ranks.h"

#include <stdlib.h>
#include <string.h>

/* Which of the indices along an axis are moved: those that somebody uses. */
struct in_use {
    int axis;
    const int32_t *users;
};

static void copy(void *whole, void *local, size_t bytes, bool in)
{
    memcpy(in ? local : whole, in ? whole : local, bytes);
}

/* One row of a local tensor, at its indices 1 to 3. */
static void move_row(const struct tensor *whole, const struct tensor *local, const struct split *split, const int64_t at[3],
                     bool in)
{
    int64_t there[3] = {at[0], at[1], at[2]};
    char *mine = tensor_row(local, at[0], at[1], at[2]);
    if (split && split->axis > 0) {
        int64_t i = at[split->axis - 1];
        int p = 0;
        while (i >= split->pieces[p].count)
            i -= split->pieces[p++].count;
        there[split->axis - 1] = split->pieces[p].first + i;
    }
    char *row = tensor_row(whole, there[0], there[1], there[2]);
    if (!split || split->axis > 0) {
        copy(row, mine, format_row_bytes(format_get(local->format), local->ne[0]), in);
        return;
    }
    for (int p = 0; p < split->n_pieces; p++) { /* along axis 0 only f32 is split */
        size_t bytes = (size_t)split->pieces[p].count * sizeof(float);
        copy(row + (size_t)split->pieces[p].first * sizeof(float), mine, bytes, in);
        mine += bytes;
    }
}

static int move_part(const struct tensor *whole, const struct tensor *local, const struct split *split, struct in_use use,
                     bool in, struct hone_error *e)
{
    struct tensor image;
    int rc = local ? image_open(&image, local, e) : 0;
    if (rc || !local)
        return rc;
    for (int64_t row = 0; row < tensor_rows(local); row++) {
        int64_t at[3];
        tensor_row_index(local, row, at);
        if (use.users[at[use.axis - 1]])
            move_row(whole, &image, split, at, in);
    }
    return image_close(&image, local, in, e);
}

int ranks_move(const struct ranks_whole *w, const struct ranks *r, int rank, const struct kv *kv, const struct states *states,
               bool in, struct hone_error *e)
{
    int rc = 0;
    const struct cut *c = r->cut;
    int n_layer = ranks_model(r, rank)->n_layer;
    for (int i = 0; i < n_layer && !rc; i++) {
        struct in_use cells = {1, w->kv.users};
        if (kv->k[i])
            rc = move_part(w->kv.k[i], kv->k[i], shard_split(c->shard, rank, c->k[i]), cells, in, e);
        if (kv->k[i] && !rc)
            rc = move_part(w->kv.v[i], kv->v[i], shard_split(c->shard, rank, c->v[i]), cells, in, e);
        if (!states->n_slots || rc)
            continue;
        rc = move_part(w->states.conv[i], states->conv[i], c->conv[i] ? shard_split(c->shard, rank, c->conv[i]) : NULL,
                       (struct in_use){2, w->states.users}, in, e);
        if (!rc)
            rc = move_part(w->states.delta[i], states->delta[i], c->delta[i] ? shard_split(c->shard, rank, c->delta[i]) : NULL,
                           (struct in_use){3, w->states.users}, in, e);
    }
    return rc;
}

static int move_all(const struct ranks_whole *w, const struct ranks *r, const struct kv *kv, const struct states *states,
                    bool in, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < r->n_others && !rc; i++)
        rc = ranks_move(w, r, r->first + 1 + i, &r->others[i].kv, &r->others[i].states, in, e);
    return rc ? rc : ranks_move(w, r, r->first, kv, states, in, e);
}

/* What is the text's: lengths, the map, who uses which cell and slot. Both have as many of all. */
static void copy_kv(struct kv *to, const struct kv *from)
{
    size_t cells = (size_t)from->n_cells;
    memcpy(to->map, from->map, cells * sizeof *to->map);
    memcpy(to->length, from->length, (size_t)from->n_seq * sizeof *to->length);
    memcpy(to->users, from->users, cells * sizeof *to->users);
    memcpy(to->free_list, from->free_list, cells * sizeof *to->free_list);
    to->n_free = from->n_free;
}

static void copy_states(struct states *to, const struct states *from)
{
    size_t n_seq = (size_t)from->n_seq;
    if (!from->n_slots)
        return;
    memcpy(to->history, from->history, n_seq * (size_t)(from->n_snapshots + 1) * sizeof *to->history);
    memcpy(to->n_history, from->n_history, n_seq * sizeof *to->n_history);
    memcpy(to->users, from->users, (size_t)from->n_slots * sizeof *to->users);
    memcpy(to->slots, from->slots, 2 * n_seq * sizeof *to->slots);
}

int ranks_whole_create(struct ranks_whole *w, const struct model *m, const struct kv *kv, const struct states *states,
                       struct hone_error *e)
{
    *w = (struct ranks_whole){0};
    int rc = states_create(&w->states, m, kv->n_seq, states->n_snapshots, NULL, e);
    if (!rc)
        rc = kv_create(&w->kv, m, kv->n_ctx, kv->n_seq, kv->format_k, kv->format_v, w->states.bytes, NULL, e);
    if (rc)
        ranks_whole_free(w);
    return rc;
}

void ranks_whole_free(struct ranks_whole *w)
{
    kv_free(&w->kv);
    states_free(&w->states);
}

int ranks_gather(struct ranks_whole *w, const struct ranks *r, const struct kv *kv, const struct states *states,
                 struct hone_error *e)
{
    copy_kv(&w->kv, kv);
    copy_states(&w->states, states);
    return move_all(w, r, kv, states, false, e);
}

int ranks_scatter(const struct ranks_whole *w, const struct ranks *r, struct kv *kv, struct states *states,
                  struct hone_error *e)
{
    copy_kv(kv, &w->kv);
    kv_changed(kv);
    copy_states(states, &w->states);
    int rc = move_all(w, r, kv, states, true, e);
    for (int32_t q = 0; q < kv->n_seq && rc; q++) { /* a device failed: nothing is half restored */
        kv_truncate(kv, q, 0);
        states_rewind(states, q, 0);
    }
    return rc;
}
