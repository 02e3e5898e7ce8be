/* session_facts.c: what the lab asks of a session, and the two things that it sets: whom runs are shown to, and that a session only
 * plans. Sums of memory are of all ranks in this process; what ranks in others keep, but for their values, every process works out from the
 * split. */
#include "engine/session.h"

#include "engine/follow.h"


const struct decline *session_declines(const struct hone_session *s)
{
    return s->declines;
}

void session_set_dry(struct hone_session *s)
{
    s->dry = true;
}

void session_observe(struct hone_session *s, const struct observer *o)
{
    s->observer = o;
}

void session_observe_rank(struct hone_session *s, int rank, const struct observer *o)
{
    int other = s->ranks ? rank - s->ranks->first - 1 : -1;
    if (other < 0)
        s->observer = o;
    else if (other < s->ranks->n_others)
        s->ranks->others[other].observer = o;
}

double session_spin(const struct hone_session *s)
{
    return s->spin;
}

int64_t session_graphs(const struct hone_session *s)
{
    return s->graphs;
}

void session_set_timed(struct hone_session *s, bool timed)
{
    struct hone_error ignored = {0}; /* the next step tells */
    if (s->ranks && s->ranks->processes)
        follow_timed(s->followed, timed, &ignored);
    else if (s->ranks)
        ranks_set_timed(s->ranks, timed);
}

bool session_skips_all_reduce(const struct hone_session *s)
{
    return gates_skip_all_reduce(&s->gates);
}

int session_ranks(const struct hone_session *s)
{
    return s->ranks ? s->ranks->spec.n : 1;
}

const struct shard *session_shard(const struct hone_session *s)
{
    return s->ranks ? s->ranks->cut->shard : NULL;
}

int session_rank(const struct hone_session *s)
{
    return s->ranks ? s->ranks->first : 0;
}

const struct comm *session_comm(const struct hone_session *s)
{
    return s->ranks ? s->ranks->comm : NULL;
}

/* What a rank in another process keeps, worked out from the split as that process does; its values are its own to know. */
static void memory_elsewhere(const struct hone_session *s, int rank, struct rank_memory *m)
{
    const struct model *theirs = ranks_model(s->ranks, rank);
    m->here = false;
    m->threads = s->ranks->spec.threads[rank];
    m->kv = kv_bytes(theirs, s->kv.format_k, s->kv.format_v, s->kv.n_cells);
    m->states = states_bytes(theirs, s->params.n_seq, s->params.n_snapshots);
    m->values = 0;
}

void session_rank_memory(const struct hone_session *s, int rank, struct rank_memory *m)
{
    const struct places *places = &s->places;
    int other = s->ranks ? rank - s->ranks->first - 1 : -1;
    *m = (struct rank_memory){.here = true, .threads = s->params.n_threads, .kv = s->kv.bytes, .states = s->states.bytes,
                              .values = room_bytes(&s->room, places), .device = "cpu"};
    if (s->ranks)
        shard_bytes(s->ranks->cut->shard, rank, &m->weights, &m->mirrored);
    if (s->ranks && rank != s->ranks->first && (other < 0 || other >= s->ranks->n_others)) {
        memory_elsewhere(s, rank, m);
        return;
    }
    if (s->ranks && other >= 0) {
        const struct rank *k = &s->ranks->others[other];
        places = &k->places;
        m->threads = pool_size(k->pool);
        m->kv = k->kv.bytes;
        m->states = k->states.bytes;
        m->values = room_bytes(&k->room, places);
    }
    if (places_on_device(places))
        place_name(&places->placement, 1, m->device, sizeof m->device);
}

const struct plan *session_rank_plan(const struct hone_session *s, const struct plan *own, int rank)
{
    int other = s->ranks ? rank - s->ranks->first - 1 : -1;
    if (other < 0)
        return own;
    for (int i = 0; i < MAX_PLANS && other < s->ranks->n_others; i++)
        if (s->plans[i].plan == own)
            return s->plans[i].others[other].plan;
    return NULL;
}

/* Of all ranks in this process. */
static struct rank_memory memory_sum(const struct hone_session *s)
{
    struct rank_memory sum, one;
    session_rank_memory(s, session_rank(s), &sum);
    for (int i = 0; s->ranks && i < s->ranks->n_others; i++) {
        session_rank_memory(s, s->ranks->first + 1 + i, &one);
        sum.kv += one.kv;
        sum.states += one.states;
        sum.values += one.values;
    }
    return sum;
}

size_t session_kv_bytes(const struct hone_session *s)
{
    return memory_sum(s).kv;
}

size_t session_state_bytes(const struct hone_session *s)
{
    return memory_sum(s).states;
}

int32_t session_rewind_reach(const struct hone_session *s, int32_t seq, int32_t length)
{
    while (length > 0 && !states_can_rewind(&s->states, seq, length))
        length--;
    return length;
}

size_t session_value_bytes(const struct hone_session *s)
{
    return memory_sum(s).values;
}
