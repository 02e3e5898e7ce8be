/* program.h: a program of anybody's, run to its end or to its limit, with all that it started. */
#ifndef LAB_PROGRAM_H
#define LAB_PROGRAM_H

#include "base/err.h"

#include <stdbool.h>

struct program {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH where it has no slash */
    const char *binary;      /* the file to run in place of argv[0], which then is only a name; NULL: none */
    const char *const *env;  /* "NAME=VALUE" beside, or in place of, what this process has; "NAME" takes it away; NULL: none */
    const char *folder;      /* to run in; NULL: this one */
    const char *log;         /* file that stdout and stderr are added to, behind the command line; NULL: /dev/null */
    const char *out;         /* file that stdout goes to instead, made anew; NULL: the log */
    double limit_s;          /* 0: none */
    long long log_limit;     /* bytes that it may add to the log; 0: none */
    int (*tick)(void *user); /* called ten times a second; 1 ends the program, 2 or more does so behind our back; NULL: none */
    void *user;
};

/* SIGNALLED: by a signal of its own; LATE: it reached its limit; LOUD: its log did; STOPPED: tick said so. */
enum program_end { PROGRAM_EXITED, PROGRAM_SIGNALLED, PROGRAM_LATE, PROGRAM_LOUD, PROGRAM_STOPPED };

struct program_result {
    enum program_end end;
    int exit_code, signal;
    double seconds;
    char said[400]; /* the last line that it printed to the log, "" where there is none */
};

/* Runs it. When this returns nothing runs any more of what the program started, unless tick said 2; then, as when this process
 * is killed, however that is done, some seconds later. 0 whatever came of the program; HONE_ERESOURCE where it could not be
 * started. */
int program_run(struct program_result *r, const struct program *s, struct hone_error *e);
/* "exit code 3: no such file", "was not done after 60 s", ... */
const char *program_describe(const struct program *s, const struct program_result *r, char *text, int size);

#endif
