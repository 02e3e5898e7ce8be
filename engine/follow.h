/* follow.h: one rank a process: the process of rank 0 leads, the others follow.
 *
 * Only the leader runs what the user asked for. The others do to their own models and sessions what it tells them: open,
 * evaluate, go back, close. So whatever decides by the clock, reads a terminal or prints is done once, and everything that runs
 * on one device runs on several processes as it is. Running the same command in every process was the alternative; two that
 * measure stop at different moments, and one that reads a prompt has no terminal.
 *
 * While its user thinks, the leader gives a sign of life from a thread of its own: a follower that misses it for the time limit
 * ends, and with it all processes. */
#ifndef ENGINE_FOLLOW_H
#define ENGINE_FOLLOW_H

#include "base/cpu.h"
#include "comm/comm.h"
#include "hone.h"

/* Whether mpirun started this process, and the build can follow. */
bool follow_wanted(void);
struct follow_params {
    int poll, limit_ms;  /* comm_params' */
    const char *command; /* the words that the process was started with, which all must have alike: only those of rank 0 count; NULL: none */
    void (*late)(int limit_ms); /* comm_params' */
    /* Called from a thread where a process is missed while the leader has nothing to order; then all processes end. NULL: the next order
     * tells. */
    void (*lost)(const struct hone_error *e);
};
/* Joins the group of all processes; once, in each of them. */
int follow_start(const struct follow_params *p, struct hone_error *e);
/* On ranks other than 0, in place of everything else: does what it is told until the leader ends. */
int follow_run(struct hone_error *e);
/* In every process at its end; also where follow_start was not called. When the group has failed this ends all processes: print
 * first. */
void follow_end(void);

/* How long a process waits for another from now on (comm.timeout): within an order, and for the leader's next sign of life. */
void follow_limit(int ms);

/* The group; NULL: this process is alone. Its rank and size. */
struct comm *follow_comm(void);
enum { FOLLOW_THREADS = 256 }; /* of a rank, at most */

/* ---- the first meeting (follow_meet.c) */

/* follow_start's: all processes tell what and where they are. HONE_EUSAGE, on all of them, where one is of another build or was started with
 * another command. */
int follow_meet(struct comm *c, const char *command, struct hone_error *e);
/* Threads that a session takes where nobody says how many: a core each, of those that this process may run on; shared: out among the group's
 * processes on this machine, unless each was given its own. */
int follow_threads(bool shared);
/* Where a rank is, by its machine's name; "" where all are on one. */
const char *follow_host(int rank);
/* Processes of the group on this machine; 1 where this process is alone. */
int follow_here(void);
/* The cores of this process' rank, of so many threads, where those of the machine's processes can be dealt out among them;
 * false: they cannot, or who started the processes has given each its own. */
bool follow_deal(int threads, cpu_set_t *cpus);
/* All that the group's processes on this machine may run on: for a session of the leader's that has the machine to itself.
 * false: this process is alone. */
bool follow_all_cpus(cpu_set_t *cpus);

/* ---- for the leader's sessions */

struct follow_token { /* of hone_token */
    int32_t id, seq, wanted;
};
/* Makes the followers create a session of the model at `path`; its number is put into *id (0: nobody follows). gates: all of
 * them, as text. */
int follow_create(const char *path, const struct hone_session_params *p, const char *gates, int *id, struct hone_error *e);
/* In every process, with its own result: 0 if all could and are alike, or what went wrong, with the rank. `facts`: n numbers
 * that must be the same everywhere, and what each is; where: for messages. */
int follow_agree(int rc, const struct hone_error *own, const char *where, const uint64_t *facts, const char *const *what, int n,
                 struct hone_error *e);
/* Before a step, in every process: whether all can run it, as follow_agree; *off becomes what any of them leaves out (a bit a
 * fusion); plan: a number that all must have alike where nothing is left out. */
int follow_ready(int rc, const struct hone_error *own, uint32_t *off, uint64_t plan, struct hone_error *e);
/* The same call on the followers' session; the leader then makes its own. id 0: does nothing. Between a create, eval, save or
 * restore that succeeded and follow_done the group is busy with what was ordered. */
int follow_eval(int id, const struct hone_token *tokens, size_t n, struct hone_error *e);
int follow_rewind(int id, int32_t seq, int32_t length, struct hone_error *e);
int follow_fork(int id, int32_t from, int32_t to, struct hone_error *e);
int follow_timed(int id, bool timed, struct hone_error *e);
/* The followers bring their cells to the leader (session_give_part), or take them from it; then follow_done. */
int follow_save(int id, struct hone_error *e);
int follow_restore(int id, struct hone_error *e);
/* What it takes the processes to meet: comm_link. */
int follow_link(double *latency_ns, double *bytes_per_s, struct hone_error *e);
void follow_done(int id);
/* Whether the other processes have had anything to do yet. */
bool follow_used(void);
void follow_free(int id);

#endif
