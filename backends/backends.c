/* backends.c: the table of backends, from backends.def. */
#include "backends/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BACKEND(name) extern const struct backend backend_##name;
#include "backends/backends.def"
#undef BACKEND

static const struct backend *const table[] = {
#define BACKEND(name) &backend_##name,
#include "backends/backends.def"
#undef BACKEND
};

const struct backend *const *backend_list(int *n)
{
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

const struct backend *backend_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i]->name, name))
            return table[i];
    return NULL;
}

bool fits_not(struct reason *r, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(r->text, sizeof r->text, format, ap);
    va_end(ap);
    return false;
}
