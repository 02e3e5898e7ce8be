/* child.h: bytes that a child process makes, for what must not be done in this one: it may crash, hang, or leave this process
 * in a state that its later children could not use (a driver's). */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include "base/err.h"

#include <stddef.h>

/* Runs produce(arg) in a child and gives the bytes that it made: malloc'd in both, this process's are the caller's. produce
 * returns 0, or a HONE_E code with *e, which comes back as it is. HONE_EINPUT: the child crashed, ended, or took longer than
 * limit_ms. */
int child_bytes(int (*produce)(void *arg, void **bytes, size_t *n, struct hone_error *e), void *arg, int limit_ms, void **bytes,
                size_t *n, struct hone_error *e);

#endif
