/* log.c: one sink. A library that prints by itself spoils somebody's JSON, so the default is silence. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
    log_fn *fn;
    void *user;
    enum log_level lowest;
} sink;

void log_to(log_fn *fn, void *user, enum log_level lowest)
{
    sink.fn = fn;
    sink.user = user;
    sink.lowest = lowest;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (!sink.fn || level < sink.lowest)
        return;
    char line[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    sink.fn(sink.user, level, line);
}
