/* err.c: errors as values. No stack traces, no error stack: one code and one sentence, made where the cause is known. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int err_set(struct hone_error *e, int code, const char *format, ...)
{
    if (!e || e->code)
        return e ? e->code : code;
    va_list ap;
    va_start(ap, format);
    vsnprintf(e->message, sizeof e->message, format, ap);
    va_end(ap);
    e->code = code;
    return code;
}

int err_prefix(struct hone_error *e, const char *format, ...)
{
    if (!e)
        return HONE_EFAULT;
    char old[sizeof e->message];
    memcpy(old, e->message, sizeof old);
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(e->message, sizeof e->message, format, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->message)
        snprintf(e->message + n, sizeof e->message - (size_t)n, ": %.*s", (int)(sizeof e->message - (size_t)n), old);
    return e->code;
}

const char *err_meaning(int code)
{
    switch (code) {
#define X(name, number, meaning) \
    case number:                 \
        return meaning;
        HONE_ERRORS(X)
#undef X
    }
    return "unknown code";
}

_Noreturn void invariant_failed(const char *file, int line, const char *expression)
{
    fprintf(stderr, "hone: broken invariant at %s:%d: %s\n", file, line, expression);
    abort();
}
