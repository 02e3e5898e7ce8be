/* plugin.c: loading plug-ins and joining them to the CPU backend, or to that of a device (device.c).
 *
 * A plug-in is code, so nothing can make it harmless; what is promised is that a wrong one is an error with a name and not a
 * dead process or a wrong number. It is first opened in a child (probe.c), where it may crash or hang; its table is checked
 * entry by entry (table.c), its layouts are packed and restored (prove.c); only then is it opened here. Its kernels are
 * registered under by_name_only: no plan takes one that no gate names. A plug-in stays until the process ends, since plans,
 * weights and records point into it. Running plug-ins in a process of their own was the alternative: every weight and value
 * would have to be shared memory, and each of hundreds of nodes a step would cost a wake-up of another process. */
#include "backends/plugin/plugin.h"

#include "base/hash.h"
#include "formats/layouts.h"
#include "hone.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_PLUGINS = 64 };

static const struct plugin *plugins[MAX_PLUGINS];
static atomic_int n_plugins;
static int n_slots; /* taken */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

const struct plugin *plugin_get(int i)
{
    return i >= 0 && i < atomic_load(&n_plugins) ? plugins[i] : NULL;
}

const struct layout *layout_by_name(const char *name)
{
    static const struct layout *const own[] = {
#define LAYOUT(name) &layout_##name,
#include "formats/layouts.def"
#undef LAYOUT
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcasecmp(own[i]->name, name))
            return own[i];
    const struct plugin *p;
    for (int i = 0; (p = plugin_get(i)); i++)
        for (int j = 0; j < p->n_layouts; j++)
            if (!strcasecmp(p->layouts[j].name, name))
                return &p->layouts[j].layout;
    return NULL;
}

void plugin_free(struct plugin *p)
{
    if (p->handle)
        dlclose(p->handle);
    if (p->module)
        p->modules->unload(p->module);
    free(p->path);
    free(p->kernels);
    free(p->layouts);
    *p = (struct plugin){0};
}

/* The reason that dlerror gives, without the path that it begins with. */
static const char *loader_reason(const char *path)
{
    const char *text = dlerror();
    if (!text)
        return "no reason given";
    size_t n = strlen(path);
    return !strncmp(text, path, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

/* The exported table and the bytes that the symbol has. */
static const struct hone_plugin *table_find(void *handle, size_t *bytes, struct hone_error *e)
{
    Dl_info info;
    void *entry = NULL;
    const void *symbol = dlsym(handle, "hone_plugin");
    if (!symbol) {
        err_set(e, HONE_EINPUT, "it exports no symbol hone_plugin: see include/hone_kernel.h");
        return NULL;
    }
    if (!dladdr1(symbol, &info, &entry, RTLD_DL_SYMENT) || !entry) {
        err_set(e, HONE_EINPUT, "its symbol hone_plugin has no entry in the symbol table");
        return NULL;
    }
    const ElfW(Sym) *s = entry;
    if ((s->st_info & 15) != STT_OBJECT || s->st_size < 16) {
        err_set(e, HONE_EINPUT, "its hone_plugin is no constant of type struct hone_plugin but %s of %zu bytes",
                (s->st_info & 15) == STT_FUNC ? "a function" : "something", (size_t)s->st_size);
        return NULL;
    }
    *bytes = s->st_size;
    return symbol;
}

int plugin_open(struct plugin *p, const char *path, bool *known, struct hone_error *e)
{
    *p = (struct plugin){0};
    *known = false;
    probe_stage("it was being loaded");
    p->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!p->handle)
        return err_set(e, HONE_EINPUT, "cannot be loaded: %s", loader_reason(path));
    const struct plugin *other;
    for (int i = 0; (other = plugin_get(i)); i++)
        if (other->handle == p->handle) {
            *known = true;
            plugin_free(p);
            return 0;
        }
    size_t bytes;
    const struct hone_plugin *table = table_find(p->handle, &bytes, e);
    if (!table)
        return e->code;
    probe_stage("its table was being read");
    int rc = table_read(p, table, bytes, n_slots, e);
    for (int i = 0; i < p->n_layouts && !rc; i++)
        if (layout_by_name(p->layouts[i].name))
            rc = err_set(e, HONE_EINPUT, "layout %s: there is one of this name already", p->layouts[i].name);
    return rc;
}

/* From here on the plug-in is for good. */
static int plugin_register(struct plugin *p, const struct backend *b, struct hone_error *e)
{
    if (n_plugins == MAX_PLUGINS)
        return err_set(e, HONE_ERESOURCE, "%d plug-ins are loaded already", MAX_PLUGINS);
    struct plugin *keep = malloc(sizeof *keep);
    const struct kernel **list = malloc((size_t)p->n_kernels * sizeof *list);
    struct sha256 sum;
    int rc =
        keep && list ? hash_sha256_file(&sum, p->path, NULL, NULL, e) : err_set(e, HONE_ERESOURCE, "no memory for its kernels");
    if (!rc)
        memcpy(p->sha256, sum.hex, sizeof p->sha256);
    for (int i = 0; i < p->n_kernels && !rc; i++) {
        p->kernels[i].kernel.origin = keep->sha256;
        slot_fill(p->kernels[i].slot, &p->kernels[i]);
        list[i] = &p->kernels[i].kernel;
    }
    if (!rc)
        rc = backend_register(b, list, p->n_kernels, e);
    if (!rc) {
        *keep = *p;
        plugins[n_plugins] = keep;
        n_slots += p->n_kernels;
        atomic_fetch_add(&n_plugins, 1);
        keep = NULL;
    }
    free(keep);
    free(list);
    return rc;
}

static int shared_open(struct plugin *p, const char *path, int limit_ms, bool *known, struct hone_error *e)
{
    static const char *const device_code[] = {".cu", ".cubin", ".ptx"};
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending && i < sizeof device_code / sizeof *device_code; i++)
        if (!strcasecmp(ending, device_code[i]))
            return err_set(e, HONE_EINPUT, "it is CUDA code, and this build of hone has no CUDA");
    int rc = plugin_probe(path, limit_ms, e);
    return rc ? rc : plugin_open(p, path, known, e);
}

int plugin_load(const char *path, int limit_ms, struct hone_error *e)
{
    struct hone_error own = {0};
    struct plugin p = {0};
    bool known = false;
    /* A name without a slash would be looked for where the system keeps its libraries. */
    size_t n = strlen(path) + 3;
    char *file = malloc(n);
    if (file) {
        memcpy(file, "./", 2);
        memcpy(file + (strchr(path, '/') ? 0 : 2), path, strlen(path) + 1);
    }
    pthread_mutex_lock(&loading);
    const struct backend *device = device_backend(path);
    int rc = file ? 0 : err_set(&own, HONE_ERESOURCE, "no memory");
    if (!rc)
        rc = device ? device_open(&p, device, file, n_slots, &known, &own) : shared_open(&p, file, limit_ms, &known, &own);
    if (!rc && !known) {
        p.path = file;
        file = NULL;
        rc = plugin_register(&p, device ? device : backend_by_name("cpu"), &own);
    }
    if (rc) {
        plugin_free(&p);
        err_prefix(&own, "plug-in %s", path);
    }
    pthread_mutex_unlock(&loading);
    free(file);
    if (e)
        *e = own;
    return rc;
}

int hone_plugin_load(const char *path, struct hone_error *e)
{
    return plugin_load(path, PLUGIN_LIMIT_MS, e);
}
