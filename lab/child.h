/* child.h: another program, run to its end, with what it printed. */
#ifndef LAB_CHILD_H
#define LAB_CHILD_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct child {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH where it has no slash */
    int binary;              /* an open file to run in place of argv[0], which then is only a name; -1: none */
    const char *const
        *env; /* NULL-terminated "NAME=VALUE" beside, or in place of, what this process has; "NAME" takes it away. NULL: none */
    const char *folder;           /* to run in; NULL: this one */
    double limit_s;               /* it is killed after so long; 0: never */
    int (*cancelled)(void *user); /* asked ten times a second; non-zero kills it; NULL: never */
    void *user;
};

struct child_output {
    char *out; /* stdout, NUL-terminated; malloc'd */
    size_t n;
    char said[400]; /* the end of stderr, "" where it said nothing */
    int exit_code;  /* 0 here always, unless child_run was to let others pass */
};

/* Runs it in a process group of its own, which dies with it and with this process. any_exit: an exit code other than 0 is no
 * error. HONE_ECANCELED; HONE_ERESOURCE when there is no process, or too much output; HONE_EINPUT when the program cannot be
 * run, fails or takes too long, with its name and what it said. On failure *o is empty. */
int child_run(struct child_output *o, const struct child *c, bool any_exit, struct hone_error *e);
void child_output_free(struct child_output *o);

#endif
