/* ranks.h: a session over several ranks: who they are, what each of them has, and running them together.
 *
 * A rank is one device with its own graph, plan, KV cells, recurrent states, values and group of threads: the threads
 * themselves, or a GPU that they launch for; several ranks may share one. The session is itself the first rank of its process;
 * the others in the process stand here. What belongs to the text and not to a device (the map
 * from positions to cells, slots, lengths) is the session's alone: all ranks are given the same inputs. */
#ifndef ENGINE_RANKS_H
#define ENGINE_RANKS_H

#include "base/cpu.h"
#include "comm/comm.h"
#include "engine/cuts.h"
#include "engine/kv.h"
#include "engine/places.h"
#include "engine/room.h"
#include "engine/states.h"
#include "graph/plan.h"

struct hone_session_params;

/* Where a rank runs. */
struct rank_at {
    const struct backend *backend; /* NULL: on its threads */
    int device;
};

/* What the user asked for. */
struct ranks_spec {
    int n; /* 1: no ranks */
    int n_devices; /* ranks that are not on threads */
    struct rank_at at[SHARD_MAX_RANKS];
    enum shard_mode mode;
    double shares[SHARD_MAX_RANKS];
    int threads[SHARD_MAX_RANKS]; /* of each; filled up from n_threads */
};

/* One step's graph and plan of a rank. */
struct rank_step {
    struct graph graph;
    struct step_inputs in;
    struct plan *plan;
};

/* A rank beside the session's own. */
struct rank {
    struct pool *pool;
    struct comm *comm;
    struct places places; /* its device; zeroed: it runs on its threads */
    void *link;           /* its end on devices; NULL: it meets the others at the host */
    const struct observer *observer; /* NULL: none */
    struct kv kv;         /* its tensors alone: the map is the session's */
    struct states states; /* the same */
    struct room room;
};

struct ranks {
    struct ranks_spec spec;
    int first;      /* the session's own rank */
    bool processes; /* each rank is a process: there are no others here, and the group is not ours */
    int n_others;   /* in this process, numbered from first + 1 on */
    struct rank *others;
    struct comm *comm; /* of the session's own rank */
    struct places *places; /* the same; the session's */
    void *link;            /* the same */
    bool crowded;          /* some device has several ranks */
    bool skips;        /* collectives are left out (debug.skip_all_reduce) */
    struct comm_params comm_params;
    struct pool *leaders; /* one thread a rank of this process */
    cpu_set_t *cpus;      /* where the threads of each rank of this process run; NULL: where the system puts them */
    struct cut *cut;
    int *codes; /* of the step at hand, by rank of this process */
    struct hone_error *errors;
};

/* split_mode, tensor_split and devices of p, with n_threads shared out. HONE_EUSAGE says what is wrong with them. */
int ranks_spec_read(struct ranks_spec *out, const struct hone_session_params *p, struct hone_error *e);

/* Cuts the model, and starts the other ranks' threads and streams; their memory comes with ranks_memory. own: the session's
 * places, which become those of its rank and outlive the ranks. Gates: what runs on devices at all, how ranks meet, and
 * how long one waits for another. */
int ranks_create(struct ranks **out, const struct ranks_spec *spec, const struct model *m, int poll, struct places *own,
                 const struct gates *gates, struct hone_error *e);
void ranks_free(struct ranks *r); /* may be NULL */
/* A pool for the i-th rank of this process, on its cores. */
struct pool *ranks_pool(const struct ranks *r, int i, int n_threads, int poll, struct hone_error *e);
/* The model as a rank sees it, by its number. */
const struct model *ranks_model(const struct ranks *r, int rank);
/* The other ranks' cells and states, in the formats and numbers of the session's own. */
int ranks_memory(struct ranks *r, struct kv *kv, const struct states *states, struct hone_error *e);

/* Builds the graph of a step for all ranks of the process: into own, whose inputs and states are made, and into *others, in the
 * arena. */
int ranks_graphs(struct ranks *r, const struct model *m, struct graph *own, const struct step_inputs *in,
                 struct rank_step **others, struct hone_error *e);
/* Plans what ranks_graphs built for the others, with the options of the own plan, makes room for it, and gives all ranks their
 * weights. */
int ranks_plan(struct ranks *r, const struct plan *own, struct rank_step *others, const struct plan_options *options,
               struct hone_error *e);
/* Gives back what was captured of a step that goes. */
void ranks_release(const struct ranks *r, struct rank_step *others);
/* Addresses of the others' values: for each kept step that they still have room for after ranks_plan, which may have moved them. */
bool ranks_hold(const struct ranks *r, const struct rank_step *others);
void ranks_bind(const struct ranks *r, struct rank_step *others);
bool ranks_current(const struct ranks *r, const struct rank_step *others);
bool ranks_stale(const struct ranks *r, struct rank_step *others);

/* Runs a step on all ranks of the process; run is the own rank's, without comm. When one fails all end, and *e says which. */
int ranks_run(struct ranks *r, const struct plan *own, const struct run *run, const struct rank_step *others,
              struct hone_error *e);
/* Ranks that meet before each collective (comm_set_timed). Between steps. Of ranks in one process. */
void ranks_set_timed(const struct ranks *r, bool timed);
/* The logits of n tokens, [n_vocab] each, from all ranks of the process. */
void ranks_logits(const struct ranks *r, const struct graph *own, const struct rank_step *others, int64_t n, int64_t n_vocab,
                  float *to);

/* Cells and states of the whole model, of the formats and numbers of a session's: what a file is written from and read into. */
struct ranks_whole {
    struct kv kv;
    struct states states;
};
int ranks_whole_create(struct ranks_whole *w, const struct model *m, const struct kv *kv, const struct states *states,
                       struct hone_error *e);
void ranks_whole_free(struct ranks_whole *w);
/* From the ranks' parts and the session's map, and back. */
int ranks_gather(struct ranks_whole *w, const struct ranks *r, const struct kv *kv, const struct states *states,
                 struct hone_error *e);
int ranks_scatter(const struct ranks_whole *w, const struct ranks *r, struct kv *kv, struct states *states,
                  struct hone_error *e);

/* ---- ranks on devices (ranks_device.c); the session's own is rank 0 of those here */

static inline bool places_on_device(const struct places *p)
{
    return p->placement.n > 1;
}
/* Of all ranks of the process: their places, and how they meet. */
int ranks_devices_open(struct ranks *r, const struct model *m, const struct gates *gates, struct hone_error *e);
void ranks_devices_close(struct ranks *r);
/* What a session keeps beside its weights. */
struct ranks_need {
    enum format_id k, v;
    int64_t n_cells;
    int32_t n_seq, n_snapshots;
};
/* Whether that and the weights of all ranks fit the free memory of their devices; HONE_ERESOURCE says what each lacks. */
int ranks_fit(const struct ranks *r, const struct model *m, const struct ranks_need *need, struct hone_error *e);
/* Collectives in kernels against sums on the host, on all ranks at once. */
int ranks_devices_test(struct ranks *r, struct hone_error *e);
/* Before a step on devices that are crowded. */
int ranks_prepare(struct ranks *r, const struct plan *own, const struct run *run, const struct rank_step *others,
                  struct hone_error *e);
struct places *rank_places(const struct ranks *r, int i);
void *rank_link(const struct ranks *r, int i);
/* All cells and slots in use of one rank, whose memory is kv and states: into the whole, or out of it (`in`). */
int ranks_move(const struct ranks_whole *w, const struct ranks *r, int rank, const struct kv *kv, const struct states *states,
               bool in, struct hone_error *e);
/* The same for ranks that are processes, in all of them at once: beside ranks_gather and ranks_scatter, which do the leader's
 * own. w: the leader's; NULL: this one follows. On failure the group has ended. */
int ranks_collect(struct ranks_whole *w, const struct ranks *r, const struct kv *kv, const struct states *states,
                  struct hone_error *e);
int ranks_spread(struct ranks_whole *w, const struct ranks *r, struct kv *kv, struct states *states, struct hone_error *e);

#endif
