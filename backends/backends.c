/* backends.c: the table of backends, from backends.def, and the kernels that came at run time.
 *
 * A list of kernels is read by every plan and changes a few times in a process's life, so a change makes a new list and lets
 * the old one be: planners on other threads read on without a lock, and the bytes lost are a few hundred pointers a plug-in. */
#include "backends/backend.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKEND(name) extern const struct backend backend_##name;
#include "backends/backends.def"
#undef BACKEND

enum { MAX_BACKENDS = 16 };
#define BACKEND(name) +1
enum { BUILT_IN = 0
#include "backends/backends.def"
};
#undef BACKEND

static const struct backend *table[MAX_BACKENDS] = {
#define BACKEND(name) &backend_##name,
#include "backends/backends.def"
#undef BACKEND
};
static atomic_int n_backends = BUILT_IN;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

const struct backend *const *backend_list(int *n)
{
    *n = atomic_load(&n_backends);
    return table;
}

const struct backend *backend_by_name(const char *name)
{
    int n = atomic_load(&n_backends);
    for (int i = 0; i < n; i++)
        if (!strcmp(table[i]->name, name))
            return table[i];
    return NULL;
}

int backend_add(const struct backend *b, struct hone_error *e)
{
    int rc = 0;
    pthread_mutex_lock(&registering);
    int n = atomic_load(&n_backends);
    if (n == MAX_BACKENDS) {
        rc = err_set(e, HONE_ERESOURCE, "more than %d backends", MAX_BACKENDS);
    } else {
        table[n] = b;
        atomic_store(&n_backends, n + 1);
    }
    pthread_mutex_unlock(&registering);
    return rc;
}

/* The table of a backend and what was registered behind it; NULL: nothing was. */
struct kernel_list {
    struct kernel_list *previous; /* kept, for those who read it still */
    int n;
    const struct kernel *kernels[];
};
static _Atomic(struct kernel_list *) lists[MAX_BACKENDS];

static int backend_number(const struct backend *b)
{
    int i = 0;
    while (table[i] != b)
        i++;
    return i;
}

int backend_register(const struct backend *b, const struct kernel *const *kernels, int n, struct hone_error *e)
{
    pthread_mutex_lock(&registering);
    int n_old, rc = 0;
    const struct kernel *const *old = b->kernels(&n_old);
    struct kernel_list *list = malloc(sizeof *list + (size_t)(n_old + n) * sizeof *list->kernels);
    if (!list) {
        rc = err_set(e, HONE_ERESOURCE, "no memory to register %d kernels", n);
    } else {
        list->previous = atomic_load(&lists[backend_number(b)]);
        list->n = n_old + n;
        memcpy(list->kernels, old, (size_t)n_old * sizeof *old);
        memcpy(list->kernels + n_old, kernels, (size_t)n * sizeof *kernels);
        atomic_store(&lists[backend_number(b)], list);
    }
    pthread_mutex_unlock(&registering);
    return rc;
}

const struct kernel *const *backend_with_registered(const struct backend *b, const struct kernel *const *own, int n_own, int *n)
{
    const struct kernel_list *list = atomic_load(&lists[backend_number(b)]);
    *n = list ? list->n : n_own;
    return list ? list->kernels : own;
}

bool backend_has_origin(const char *sha256)
{
    for (int b = 0; b < atomic_load(&n_backends); b++) {
        int n;
        const struct kernel *const *kernels = table[b]->kernels(&n);
        for (int i = 0; i < n; i++)
            if (kernels[i]->origin && !strcmp(kernels[i]->origin, sha256))
                return true;
    }
    return false;
}

bool fits_not(struct reason *r, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(r->text, sizeof r->text, format, ap);
    va_end(ap);
    return false;
}
