/* follow.h: one rank a process: the process of rank 0 leads, the others follow.
 *
 * Only the leader runs what the user asked for. The others do to their own models and sessions what it tells them: open,
 * evaluate, go back, close. So whatever decides by the clock, reads a terminal or prints is done once, and everything that runs
 * on one device runs on several processes as it is. Running the same command in every process was the alternative; two that
 * measure stop at different moments, and one that reads a prompt has no terminal. */
#ifndef ENGINE_FOLLOW_H
#define ENGINE_FOLLOW_H

#include "comm/comm.h"
#include "hone.h"

/* Whether mpirun started this process, and the build can follow. */
bool follow_wanted(void);
/* Joins the group of all processes; once, in each of them. */
int follow_start(int poll, struct hone_error *e);
/* On ranks other than 0, in place of everything else: does what it is told until the leader ends. */
int follow_run(struct hone_error *e);
/* In every process at its end; also where follow_start was not called. When the group has failed this ends all processes: print
 * first. */
void follow_end(void);

/* How long a process waits for another within an order, from now on (comm.timeout); an order itself is waited for without limit. */
void follow_limit(int ms);

/* The group; NULL: this process is alone. Its rank and size. */
struct comm *follow_comm(void);
enum { FOLLOW_THREADS = 256 }; /* of a rank, at most */

/* ---- for the leader's sessions */

struct follow_token { /* of hone_token */
    int32_t id, seq, wanted;
};
/* Makes the followers create a session of the model at `path`; its number is put into *id (0: nobody follows). gates: all of
 * them, as text. */
int follow_create(const char *path, const struct hone_session_params *p, const char *gates, int *id, struct hone_error *e);
/* In every process, with its own result of creating: 0 if all could and are alike, or what went wrong, with the rank. `facts`:
 * n numbers that must be the same everywhere, and what each is. */
int follow_agree(int rc, const struct hone_error *own, const uint64_t *facts, const char *const *what, int n,
                 struct hone_error *e);
/* The same call on the followers' session; the leader then makes its own. id 0: does nothing. */
int follow_eval(int id, const struct hone_token *tokens, size_t n, struct hone_error *e);
int follow_rewind(int id, int32_t seq, int32_t length, struct hone_error *e);
int follow_fork(int id, int32_t from, int32_t to, struct hone_error *e);
void follow_free(int id);

#endif
