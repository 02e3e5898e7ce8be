/* device_probe.c: what a file of device code says of itself: its table, and what its functions allow, read from the device.
 *
 * A process that has begun to work with a device can make no children that do (the driver does not survive a fork), and the
 * check runs its cases in such children. So the first look is taken by a child, and this process learns what it saw; a file
 * that makes the driver crash or hang is an error with a name besides. Reading the table out of the file's own ELF sections
 * was the alternative: it works for .cubin, is another parser for .ptx, and says nothing of what the functions allow. */
#include "backends/plugin/plugin.h"

#include "base/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 60000, LEAST = 2 * sizeof(unsigned) }; /* .ptx is compiled meanwhile */

void device_facts_free(struct device_facts *f)
{
    free(f->table);
    free(f->functions);
    *f = (struct device_facts){0};
}

static const char *entry_function(const struct device_facts *f, size_t i,
                                  char name[sizeof((struct hone_cuda_kernel *)0)->function])
{
    struct hone_cuda_kernel entry = {0};
    size_t size = f->bytes / f->n;
    memcpy(&entry, (const char *)f->table + i * size, size < sizeof entry ? size : sizeof entry);
    entry.function[sizeof entry.function - 1] = 0;
    return memcpy(name, entry.function, sizeof entry.function);
}

static int facts_here(struct device_facts *f, const struct module_api *api, void *module, struct hone_error *e)
{
    unsigned size = 0;
    int rc = api->constant(module, "hone_cuda_kernels", &f->table, &f->bytes, e);
    if (rc)
        return rc;
    if (f->bytes >= LEAST)
        memcpy(&size, f->table, sizeof size);
    if (size < LEAST || size > f->bytes || f->bytes % size)
        return err_set(e, HONE_EINPUT,
                       "hone_cuda_kernels has %zu bytes, in entries of %u: begin each with HONE_CUDA_KERNEL (%zu)", f->bytes,
                       size, sizeof(struct hone_cuda_kernel));
    f->n = f->bytes / size;
    if (f->n > PLUGIN_MAX_KERNELS)
        return err_set(e, HONE_EINPUT, "it has %zu kernels; %d are possible", f->n, PLUGIN_MAX_KERNELS);
    f->functions = calloc(f->n, sizeof *f->functions);
    if (!f->functions)
        return err_set(e, HONE_ERESOURCE, "no memory for its table");
    for (size_t i = 0; i < f->n; i++) {
        struct device_limits *l = &f->functions[i];
        struct hone_error own = {0};
        char name[sizeof((struct hone_cuda_kernel *)0)->function];
        void *function;
        size_t shared = 0;
        l->rc = api->function(module, entry_function(f, i, name), sizeof(struct hone_cuda_node), &function, &l->max_threads,
                              &shared, &own);
        l->max_shared = shared;
        snprintf(l->message, sizeof l->message, "%.199s", own.message);
    }
    return 0;
}

/* ---- from a child: the numbers of both, the table, the functions */

struct asked {
    const struct module_api *api;
    void *module;
};

static int produce(void *arg, void **bytes, size_t *n, struct hone_error *e)
{
    const struct asked *a = arg;
    struct device_facts f = {0};
    int rc = facts_here(&f, a->api, a->module, e);
    if (rc)
        return rc;
    size_t functions = f.n * sizeof *f.functions;
    *n = sizeof f + f.bytes + functions;
    char *all = *bytes = malloc(*n);
    if (!all)
        return err_set(e, HONE_ERESOURCE, "no memory for its table");
    memcpy(all, &f, sizeof f);
    memcpy(all + sizeof f, f.table, f.bytes);
    memcpy(all + sizeof f + f.bytes, f.functions, functions);
    return 0;
}

int device_facts_read(struct device_facts *f, const struct module_api *api, void *module, struct hone_error *e)
{
    char *all;
    size_t n;
    *f = (struct device_facts){0};
    if (api->started())
        return facts_here(f, api, module, e);
    int rc = child_bytes(produce, &(struct asked){api, module}, LIMIT_MS, (void **)&all, &n, e);
    if (rc)
        return rc;
    memcpy(f, all, sizeof *f); /* with the child's addresses */
    f->table = malloc(f->bytes + 1);
    f->functions = calloc(f->n, sizeof *f->functions);
    if (f->table && f->functions) {
        memcpy(f->table, all + sizeof *f, f->bytes);
        memcpy(f->functions, all + sizeof *f + f->bytes, f->n * sizeof *f->functions);
    } else {
        rc = err_set(e, HONE_ERESOURCE, "no memory for its table");
    }
    free(all);
    return rc;
}
