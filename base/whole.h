/* whole.h: output files that are there whole or not at all: written beside their place and renamed at the end. */
#ifndef BASE_WHOLE_H
#define BASE_WHOLE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

struct whole {
    FILE *file;           /* to be written to, and read from */
    char *path, *partial; /* what is replaced in the end; what the file is called meanwhile */
};

/* What path names, through links, also one whose end is not there yet: malloc'd. HONE_EUSAGE: links without an end. */
int whole_target(char **target, const char *path, struct hone_error *e);
/* That the file could be written, before work is done for it. HONE_EUSAGE: no file name, or what is there is no regular file;
 * HONE_ERESOURCE: there is no such folder, or one cannot write in it. The message names path. */
int whole_check(const char *path, struct hone_error *e);
/* The same, and opens it. On failure *w is zeroed. */
int whole_begin(struct whole *w, const char *path, struct hone_error *e);
/* Puts it in place, or, keep false, drops it, which cannot fail. HONE_ERESOURCE: it could not be written, and what was there
 * stays. *w is zeroed; harmless on a zeroed one. */
int whole_end(struct whole *w, bool keep, struct hone_error *e);

#endif
