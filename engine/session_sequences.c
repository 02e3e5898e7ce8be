/* session_sequences.c: what the sequences of a session hold, without running a step: how much, cut back, forked, saved to a
 * file and restored from one. Each changes the cells' map and the slots together, since a sequence is both.
 *
 * A file holds the whole model's cells. Where ranks have parts of them, these are put together first and taken apart afterwards
 * (ranks_whole.c); those of other processes come and go through the group (ranks_parts.c). */
#include "engine/session.h"

#include "base/mmap.h"
#include "engine/follow.h"
#include "engine/session_file.h"

int32_t hone_session_n_ctx(const struct hone_session *s)
{
    return s->kv.n_ctx;
}

int32_t hone_session_length(const struct hone_session *s, int32_t seq)
{
    return seq >= 0 && seq < s->kv.n_seq ? s->kv.length[seq] : 0;
}

static int check_seq(const struct hone_session *s, int32_t seq, struct hone_error *e)
{
    return seq >= 0 && seq < s->kv.n_seq ? 0 : err_set(e, HONE_EUSAGE, "sequence %d; the session has %d", seq, s->kv.n_seq);
}

int hone_session_rewind(struct hone_session *s, int32_t seq, int32_t length, struct hone_error *e)
{
    struct hone_error own = {0};
    int rc = check_seq(s, seq, &own);
    if (!rc && (length < 0 || length > s->kv.length[seq]))
        rc = err_set(&own, HONE_EUSAGE, "sequence %d holds %d positions; it cannot go back to %d", seq, s->kv.length[seq], length);
    if (!rc && length < s->kv.length[seq] && !states_can_rewind(&s->states, seq, length)) {
        char text[STATES_MAX_SNAPSHOTS * 13];
        rc = err_set(&own, HONE_EUSAGE, "sequence %d has a recurrent state: it can go back to %.300s, not to %d", seq,
                     states_positions(&s->states, seq, text, sizeof text), length);
    }
    if (!rc)
        rc = follow_rewind(s->followed, seq, length, &own);
    if (!rc) {
        kv_truncate(&s->kv, seq, length);
        states_rewind(&s->states, seq, length);
    }
    if (e)
        *e = own;
    return rc;
}

int hone_session_fork(struct hone_session *s, int32_t from, int32_t to, struct hone_error *e)
{
    struct hone_error own = {0};
    int rc = check_seq(s, from, &own);
    if (!rc)
        rc = check_seq(s, to, &own);
    if (!rc)
        rc = follow_fork(s->followed, from, to, &own);
    if (!rc) {
        kv_fork(&s->kv, from, to);
        states_fork(&s->states, from, to);
    }
    if (e)
        *e = own;
    return rc;
}

/* What a file holds: the session's own memory, or that of all its ranks put together in w. */
static int parts_of(struct session_parts *parts, struct ranks_whole *w, struct hone_session *s, struct hone_error *e)
{
    *parts = (struct session_parts){s->model, &s->kv, &s->states};
    if (!s->ranks)
        return 0;
    int rc = ranks_whole_create(w, s->model, &s->kv, &s->states, e);
    *parts = (struct session_parts){s->model, &w->kv, &w->states};
    return rc;
}

static int gather(struct ranks_whole *w, struct hone_session *s, struct hone_error *e)
{
    int rc = ranks_gather(w, s->ranks, &s->kv, &s->states, e);
    if (rc || !s->ranks->processes)
        return rc;
    rc = follow_save(s->followed, e);
    if (rc)
        return rc;
    rc = ranks_collect(w, s->ranks, &s->kv, &s->states, e);
    follow_done(s->followed);
    return rc;
}

static int scatter(struct ranks_whole *w, struct hone_session *s, struct hone_error *e)
{
    int rc = 0;
    if (s->ranks->processes && !(rc = follow_restore(s->followed, e))) {
        rc = ranks_spread(w, s->ranks, &s->kv, &s->states, e);
        follow_done(s->followed);
    }
    return rc ? rc : ranks_scatter(w, s->ranks, &s->kv, &s->states, e);
}

int session_give_part(struct hone_session *s, struct hone_error *e)
{
    return ranks_collect(NULL, s->ranks, &s->kv, &s->states, e);
}

int session_take_part(struct hone_session *s, struct hone_error *e)
{
    s->n_logits = 0;
    return ranks_spread(NULL, s->ranks, &s->kv, &s->states, e);
}

int hone_session_save_noted(struct hone_session *s, const char *path, const char *note, struct hone_error *e)
{
    struct hone_error own = {0};
    struct session_parts parts;
    struct ranks_whole whole = {0};
    int rc = parts_of(&parts, &whole, s, &own);
    if (!rc && s->ranks)
        rc = gather(&whole, s, &own);
    if (!rc)
        rc = session_file_save(&parts, path, note, &own);
    ranks_whole_free(&whole);
    if (e)
        *e = own;
    return rc;
}

int hone_session_save(struct hone_session *s, const char *path, struct hone_error *e)
{
    return hone_session_save_noted(s, path, NULL, e);
}

int session_restore_memory(struct hone_session *s, const void *data, size_t size, const char *label, char **note, struct hone_error *e)
{
    struct session_parts parts;
    struct ranks_whole whole = {0};
    int rc = parts_of(&parts, &whole, s, e);
    if (!rc)
        rc = session_file_restore(&parts, data, size, label, note, e);
    if (!rc && s->ranks)
        rc = scatter(&whole, s, e);
    if (!rc)
        s->n_logits = 0;
    ranks_whole_free(&whole);
    return rc;
}

int hone_session_restore_noted(struct hone_session *s, const char *path, char **note, struct hone_error *e)
{
    struct hone_error own = {0};
    struct mapping m;
    int rc = mapping_open(&m, path, &own);
    if (!rc) {
        rc = session_restore_memory(s, m.data, m.size, path, note, &own);
        mapping_close(&m);
    }
    if (e)
        *e = own;
    return rc;
}

int hone_session_restore(struct hone_session *s, const char *path, struct hone_error *e)
{
    return hone_session_restore_noted(s, path, NULL, e);
}
