/* plugin.h: a user's kernels, loaded at run time: shared objects (include/hone_kernel.h) as kernels of the CPU backend, files
 * of device code (include/hone_cuda.h) as those of the backend that runs such.
 *
 * Who only loads calls hone_plugin_load (include/hone.h). The rest of this header is what the files of this folder share. */
#ifndef BACKENDS_PLUGIN_PLUGIN_H
#define BACKENDS_PLUGIN_PLUGIN_H

#include "backends/backend.h"
#include "hone_cuda.h"
#include "hone_kernel.h"

enum {
    PLUGIN_LIMIT_MS = 10000,  /* for a plug-in to load and prove its layouts */
    PLUGIN_NAME_SIZE = 41,    /* of every name in a table, with its NUL */
    PLUGIN_MAX_KERNELS = 128, /* in a process: see slots.c */
    PLUGIN_MAX_LAYOUTS = 64,  /* in a process */
    PLUGIN_MAX_WANTED = 32,   /* layouts that one kernel names */
    PLUGIN_MAX_SCRATCH = 1 << 30,
};

struct plugin_kernel;

struct plugin_layout {
    struct layout layout; /* calls the plug-in's functions directly */
    char name[PLUGIN_NAME_SIZE];
};

/* What the functions of a slot do, with the kernel that the slot was given. Those of struct kernel, and as optional. */
struct slot_calls {
    bool (*fits)(const struct plugin_kernel *k, const struct node *n, struct reason *r);
    size_t (*scratch)(const struct plugin_kernel *k, const struct node *n);
    size_t (*shared)(const struct plugin_kernel *k, const struct node *n);
    int (*run)(const struct plugin_kernel *k, const struct exec *x, const struct node *n);
    bool (*declines)(const struct plugin_kernel *k, const struct node *n, struct reason *r);
};
extern const struct slot_calls host_calls;

/* A kernel of device code: its entry of the file's table, and what the words there mean. */
struct device_kernel {
    struct hone_cuda_kernel entry;
    const struct module_api *api;
    void *module;
    _Atomic(void *) function; /* of this process: found when it is first launched */
    int max_threads;
    size_t max_shared;
    int formats[HONE_CUDA_MAX_SRC]; /* enum format_id of each source; -1: any; -2: f32 or i32 */
    int out_format;
};

struct plugin_kernel {
    struct kernel kernel; /* what the backend lists; its functions are those of slot number `slot` */
    const struct slot_calls *calls;
    struct hone_kernel abi; /* of device code: the words alone */
    struct device_kernel device;
    char variant[PLUGIN_NAME_SIZE];
    int format; /* enum format_id of src[0]; -1: any */
    const struct layout *wanted[PLUGIN_MAX_WANTED];
    int n_wanted;
    int slot;
};

struct plugin {
    char *path;
    char sha256[65]; /* of the file, when it was loaded: the origin of its kernels */
    void *handle;    /* of dlopen */
    void *module;    /* or of device code, */
    const struct module_api *modules; /* that these load */
    char name[PLUGIN_NAME_SIZE], version[PLUGIN_NAME_SIZE];
    struct plugin_kernel *kernels;
    int n_kernels;
    struct plugin_layout *layouts;
    int n_layouts;
};

/* The plug-ins of this process, in the order of loading; NULL from i = their number on. */
const struct plugin *plugin_get(int i);
/* hone_plugin_load with another time limit. */
int plugin_load(const char *path, int limit_ms, struct hone_error *e);

/* table.c: checks the exported table, symbol_bytes long, and fills *p but for path and handle; slots are numbered from
 * first_slot on. HONE_EINPUT names what is wrong; p's arrays are then for plugin_free as well. */
int table_read(struct plugin *p, const struct hone_plugin *table, size_t symbol_bytes, int first_slot, struct hone_error *e);
/* A struct of a table that says it has `size` bytes, into one of `room`; the first release had `least`. */
int table_struct(void *to, size_t room, size_t least, const void *from, size_t size, const char *what, struct hone_error *e);
/* Fills p->kernels[p->n_kernels], whose abi has the words of entry number `number`, and counts it. The caller sets calls
 * before, and has looked at functions. */
int table_kernel(struct plugin *p, const struct backend *b, int number, int slot, struct hone_error *e);
/* What is known of a file of device code: its table, and of each entry's function what a launch may ask. */
struct device_facts {
    void *table;
    size_t bytes;
    struct device_limits {
        int32_t rc; /* of looking for the function; message says what is wrong */
        int32_t max_threads;
        uint64_t max_shared;
        char message[200];
    } * functions;
    size_t n;
};
/* device_probe.c: reads them, in a child where this process has not begun to work with devices yet. The caller frees. */
int device_facts_read(struct device_facts *f, const struct module_api *api, void *module, struct hone_error *e);
void device_facts_free(struct device_facts *f);
/* device.c: loads a file of device code and reads its table. *known: the same file is loaded already, and p is left empty. */
int device_open(struct plugin *p, const struct backend *b, const char *path, int first_slot, bool *known, struct hone_error *e);
/* The backend that runs files of this name; NULL: none does, and it is a shared object. */
const struct backend *device_backend(const char *path);
/* What hone sees to before it asks a plug-in: the format it named, and that what it wants can be brought about. */
bool wanted_fits(const struct plugin_kernel *k, const struct node *n, struct reason *r);
/* Sources are as they were promised; a plan that is run against them would have the plug-in read the wrong bytes. */
bool wanted_done(const struct plugin_kernel *k, const struct node *n);
/* The layout that the kernel reads matrices of this format in; NULL: rows. */
const struct layout *wanted_layout(const struct plugin_kernel *k, enum format_id format);
/* prove.c: packs and restores matrices of several shapes. HONE_EINPUT with the shape and row that came back changed. */
int layout_prove(const struct layout *l, struct hone_error *e);
/* probe.c: opens and proves the plug-in in a child process. HONE_EINPUT when it crashes, hangs or is refused there. */
int plugin_probe(const char *path, int limit_ms, struct hone_error *e);
/* In the child: what it is about to do, so that a crash can be placed. Elsewhere it does nothing. */
void probe_stage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* plugin.c: dlopen, and table_read. *known: the very object is loaded already, and p is left empty. */
int plugin_open(struct plugin *p, const char *path, bool *known, struct hone_error *e);
void plugin_free(struct plugin *p);
/* slots.c: the functions of slot i, those that calls has, go into k; and the slot is filled, for good. */
void slot_functions(int i, const struct slot_calls *calls, struct kernel *k);
void slot_fill(int i, const struct plugin_kernel *k);

/* Layouts of hone and of the plug-ins by name, in any case; NULL: none. */
const struct layout *layout_by_name(const char *name);

#endif
