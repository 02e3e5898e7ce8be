/* engine.h: what the lab and the command line may see of a model and a session beyond include/hone.h. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "graph/plan.h"
#include "graph/shard.h"
#include "hone.h"
#include "model/model.h"

struct hone_model {
    struct model *model;
};

/* How many commits the history of the build has; 0: unknown. */
int build_number(void);
/* What make was told, "CUDA=0 LINK_STATIC= SAN= DEBUG=": told the same it builds another commit alike. */
const char *build_settings(void);

/* Plans a step of n_tokens tokens with n_outputs outputs, without running it: for inspect and trace. Valid until the next
 * call on the session. */
int session_plan(struct hone_session *s, int32_t n_tokens, int32_t n_outputs, const struct plan **out, struct hone_error *e);
/* From now on the session only plans: no weight is packed, and it must not evaluate. Before its first plan. */
void session_set_dry(struct hone_session *s);
/* What declined so far, by fusion (enum fusion_id), N_FUSIONS of them. */
struct decline {
    int64_t count;
    struct reason reason; /* the last */
};
const struct decline *session_declines(const struct hone_session *s);
/* The observer of all later runs; NULL: none. Its memory stays the caller's. */
void session_observe(struct hone_session *s, const struct observer *o);
/* The same for a rank of this process, by its number: it is called by that rank's first thread, while other ranks run. */
void session_observe_rank(struct hone_session *s, int rank, const struct observer *o);
/* The share by which debug.spin makes every step longer; 0: not at all. Whatever prints a speed says it when it is not 0, and such a
 * run is no result. */
double session_spin(const struct hone_session *s);
/* Whether debug.skip_all_reduce leaves collectives out: the output is wrong, and nothing is a result. */
bool session_skips_all_reduce(const struct hone_session *s);
/* The session's own rank's end of its group; NULL: one device. A failed step ends the group; the next one makes another. */
struct comm;
const struct comm *session_comm(const struct hone_session *s);
/* Steps that were run so far, chunk by chunk, on every rank alike. */
int64_t session_graphs(const struct hone_session *s);
/* Ranks that meet before each collective (comm_set_timed), between steps. */
void session_set_timed(struct hone_session *s, bool timed);
/* Bytes of the KV cells, of the recurrent states with their snapshots, and of the values and scratch of the plans made so far. */
size_t session_kv_bytes(const struct hone_session *s);
size_t session_state_bytes(const struct hone_session *s);
/* The position that a rewind to `length` reaches, at most: length itself where no layer has a recurrent state. */
int32_t session_rewind_reach(const struct hone_session *s, int32_t seq, int32_t length);
size_t session_value_bytes(const struct hone_session *s);
/* Devices that the session's model is split over: 1, or its ranks; how it is split (NULL: it is not), and the number of the session's own rank. */
int session_ranks(const struct hone_session *s);
const struct shard *session_shard(const struct hone_session *s);
int session_rank(const struct hone_session *s);
/* What a rank has: bytes of weights that are its own, and of those that all ranks share; cells, states, values with scratch. */
struct rank_memory {
    char device[24]; /* "cpu", "cuda0" */
    int threads;
    double weights, mirrored;
    size_t kv, states;
    size_t values; /* of a rank in another process not known: 0 */
    bool here;                 /* in this process */
};
void session_rank_memory(const struct hone_session *s, int rank, struct rank_memory *m);
/* A rank's plan beside `own`, which session_plan gave, and valid as long; NULL: the rank is in another process. */
const struct plan *session_rank_plan(const struct hone_session *s, const struct plan *own, int rank);
/* hone_session_restore_noted from bytes in memory; label names them in messages. */
int session_restore_memory(struct hone_session *s, const void *data, size_t size, const char *label, char **note, struct hone_error *e);

#endif
