/* err.h: how every layer reports a failure. See include/hone_error.h for the codes. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "hone_error.h"

/* Fills *e (which may be NULL) with code and a printf-style message, and returns code. The first error of a chain
 * wins: a second call on an error that already holds one keeps the first message. */
int err_set(struct hone_error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts a printf-style prefix and ": " before the message that *e holds, to add the place (a file, a node) that the
 * failing function did not know. Returns e->code. */
int err_prefix(struct hone_error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The meaning of a code in words; "unknown code" for others. */
const char *err_meaning(int code);

/* A broken invariant of hone itself (never of the input): prints place and expression, aborts. Always on. */
#define INVARIANT(x) ((x) ? (void)0 : invariant_failed(__FILE__, __LINE__, #x))
_Noreturn void invariant_failed(const char *file, int line, const char *expression);

#endif
