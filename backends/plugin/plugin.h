/* plugin.h: a user's kernels, loaded at run time through include/hone_kernel.h, as kernels of the CPU backend.
 *
 * Who only loads calls hone_plugin_load (include/hone.h). The rest of this header is what the files of this folder share. */
#ifndef BACKENDS_PLUGIN_PLUGIN_H
#define BACKENDS_PLUGIN_PLUGIN_H

#include "backends/backend.h"
#include "hone_kernel.h"

enum {
    PLUGIN_LIMIT_MS = 10000,  /* for a plug-in to load and prove its layouts */
    PLUGIN_NAME_SIZE = 41,    /* of every name in a table, with its NUL */
    PLUGIN_MAX_KERNELS = 128, /* in a process: see slots.c */
    PLUGIN_MAX_LAYOUTS = 64,  /* in a process */
    PLUGIN_MAX_WANTED = 32,   /* layouts that one kernel names */
    PLUGIN_MAX_SCRATCH = 1 << 30,
};

struct plugin_layout {
    struct layout layout; /* calls the plug-in's functions directly */
    char name[PLUGIN_NAME_SIZE];
};

struct plugin_kernel {
    struct kernel kernel; /* what the backend lists; its functions are those of slot number `slot` */
    struct hone_kernel abi;
    char variant[PLUGIN_NAME_SIZE];
    int format; /* enum format_id of src[0]; -1: any */
    const struct layout *wanted[PLUGIN_MAX_WANTED];
    int n_wanted;
    int slot;
};

struct plugin {
    char *path;
    char sha256[65]; /* of the file, when it was loaded: the origin of its kernels */
    void *handle; /* of dlopen */
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
/* prove.c: packs and restores matrices of several shapes. HONE_EINPUT with the shape and row that came back changed. */
int layout_prove(const struct layout *l, struct hone_error *e);
/* probe.c: opens and proves the plug-in in a child process. HONE_EINPUT when it crashes, hangs or is refused there. */
int plugin_probe(const char *path, int limit_ms, struct hone_error *e);
/* In the child: what it is about to do, so that a crash can be placed. Elsewhere it does nothing. */
void probe_stage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* plugin.c: dlopen, and table_read. *known: the very object is loaded already, and p is left empty. */
int plugin_open(struct plugin *p, const char *path, bool *known, struct hone_error *e);
void plugin_free(struct plugin *p);
/* slots.c: the functions of slot i go into k; and the slot is filled, for good. */
void slot_functions(int i, struct kernel *k);
void slot_fill(int i, const struct plugin_kernel *k);

/* Layouts of hone and of the plug-ins by name, in any case; NULL: none. */
const struct layout *layout_by_name(const char *name);

#endif
