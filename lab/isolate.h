/* isolate.h: jobs run in child processes, so that one that crashes or hangs ends alone and the ones behind it still run. */
#ifndef LAB_ISOLATE_H
#define LAB_ISOLATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* How a job's process ended before the job did. */
struct casualty {
    int signal; /* 0: it exited */
    int exit_code;
    bool timed_out;   /* killed: the job was over its time */
    const char *said; /* the end of what the process wrote to stdout and stderr, maybe "" */
};

struct isolation {
    void *user;
    int n_jobs;
    int limit_ms;  /* of one job */
    int n_workers; /* processes at once */
    /* In the child. Jobs of one group run in order in one process, so that what they share is made once. */
    void (*job)(void *user, int i);
    int (*group)(void *user, int i); /* equal for neighbours that belong together; NULL: all apart */
    /* In the child, before its first job and after its last; may be NULL. A start that fails ends the child with that message.
     */
    int (*start)(void *user, struct hone_error *e);
    void (*end)(void *user);
    /* In the parent. */
    void (*died)(void *user, int i, const struct casualty *c);
    int (*progress)(void *user, int done); /* non-zero: stop now; NULL: none */
};

/* Runs all jobs. 0, HONE_ECANCELED, or why no process could be had; jobs that did not run then are those that nobody told of.
 * The process must have no other threads. What a job finds it writes to memory from shared_alloc. */
int isolate(const struct isolation *i, struct hone_error *e);

/* Zeroed memory that children share with their parent; NULL when there is none. */
void *shared_alloc(size_t size);
void shared_free(void *p, size_t size); /* p may be NULL */

#endif
