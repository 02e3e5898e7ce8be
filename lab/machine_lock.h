/* machine_lock.h: one measurement of a machine at a time. Two programs that measure beside one another measure each other. */
#ifndef LAB_MACHINE_LOCK_H
#define LAB_MACHINE_LOCK_H

#include "base/err.h"

#include <stdbool.h>

struct machine_lock {
    int fd;    /* of the lock's file */
    bool held; /* zeroed: not held */
};
struct machine_wait {
    int (*tick)(void *user);                   /* asked ten times a second while another measures; non-zero: no more; NULL */
    void (*tell)(void *user, const char *who); /* once, when it has to wait: "process 1234 (hone bench)"; NULL */
    void *user;
};
/* Waits until the machine is ours. A process that was started by one which has it, at any distance, has it too and does not
 * wait. It ends with machine_lock_drop, or with this process and those that it forked, however they go. HONE_ECANCELED: tick
 * said so; HONE_ERESOURCE: there is no place for such a lock. */
int machine_lock_take(struct machine_lock *l, const struct machine_wait *w, struct hone_error *e);
void machine_lock_drop(struct machine_lock *l); /* harmless where it is not held */
/* The lock's file: HONE_LOCK, else hone.lock in /run/lock, or in /tmp where that is not for all. */
const char *machine_lock_path(void);

#endif
