/* table.c: reading a plug-in's table: every word of it is checked, copied and turned into hone's own types, so that nothing
 * behind this file meets a name that does not exist or a function that is not there. Pointers cannot be checked: a wild one
 * crashes, which is why this runs in a child first (probe.c).
 *
 * Structs carry their size. A shorter one is from an older header and is filled up with zeros; a longer one is from a newer
 * header, and fine as long as what this hone does not know is zero. */
#include "backends/plugin/plugin.h"

#include "base/cpu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes in ABI 1, as it was first released: the least that a table's structs have. */
enum {
    PLUGIN_V1 = offsetof(struct hone_plugin, layouts) + sizeof(void *),
    KERNEL_V1 = offsetof(struct hone_kernel, declines) + sizeof(void *),
    LAYOUT_V1 = offsetof(struct hone_layout, restore_row) + sizeof(void *),
    LARGEST = 4096,
};

int table_struct(void *to, size_t room, size_t least, const void *from, size_t size, const char *what, struct hone_error *e)
{
    if (size < least || size > LARGEST)
        return err_set(e, HONE_EINPUT, "%s: its size is given as %zu bytes; set .size to sizeof of the struct (%zu)", what,
                       size, room);
    memset(to, 0, room);
    memcpy(to, from, size < room ? size : room);
    for (size_t i = room; i < size; i++)
        if (((const unsigned char *)from)[i])
            return err_set(e, HONE_EINPUT, "%s: it uses a field that this hone does not know (byte %zu): it needs a newer one",
                           what, i);
    return 0;
}

/* Copies a name of the given characters. `other`: which besides letters and digits. */
static int read_name(char to[PLUGIN_NAME_SIZE], const char *from, const char *other, const char *what, struct hone_error *e)
{
    if (!from || !*from)
        return err_set(e, HONE_EINPUT, "%s: it has no name", what);
    size_t n = 0;
    for (; from[n]; n++) {
        if (n == PLUGIN_NAME_SIZE - 1)
            return err_set(e, HONE_EINPUT, "%s: its name '%.40s...' is longer than %d characters", what, from,
                           PLUGIN_NAME_SIZE - 1);
        if (!isalnum((unsigned char)from[n]) && !strchr(other, from[n]))
            return err_set(e, HONE_EINPUT, "%s: its name has the byte 0x%02x at %zu; letters, digits and '%s' are possible",
                           what, (unsigned char)from[n], n, other);
    }
    memcpy(to, from, n + 1);
    return 0;
}

/* A function that must be there. */
#define NEED(it, field, what, e) ((it)->field ? 0 : err_set((e), HONE_EINPUT, "%s: it has no function `" #field "`", (what)))

static int read_format(const char *name, enum format_id *id, const char *what, struct hone_error *e)
{
    if (!name)
        return err_set(e, HONE_EINPUT, "%s: it names no format", what);
    if (!format_by_name(name, id))
        return 0;
    char known[300];
    int n = 0;
    for (int i = 0; i < N_FORMATS && n < (int)sizeof known; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, " %s", format_word(i));
    return err_set(e, HONE_EINPUT, "%s: there is no format '%.40s'; formats:%s", what, name, known);
}

static int layout_read(struct plugin *p, const struct hone_layout *from, int number, struct hone_error *e)
{
    struct plugin_layout *l = &p->layouts[p->n_layouts];
    struct hone_layout abi;
    char what[PLUGIN_NAME_SIZE + 16];
    snprintf(what, sizeof what, "layout %d", number);
    int rc = table_struct(&abi, sizeof abi, LAYOUT_V1, from, from->size, what, e);
    if (!rc)
        rc = read_name(l->name, abi.name, "_.-", what, e);
    if (rc)
        return rc;
    snprintf(what, sizeof what, "layout %s", l->name);
    enum format_id format = FORMAT_F32;
    if ((rc = read_format(abi.format, &format, what, e)) || (rc = NEED(&abi, bytes, what, e)) ||
        (rc = NEED(&abi, pack, what, e)) || (rc = NEED(&abi, unpack_row, what, e)) || (rc = NEED(&abi, restore_row, what, e)))
        return rc;
    if (!format_get(format)->unpack)
        return err_set(e, HONE_EINPUT, "%s: no weight is %s", what, format_word((int32_t)format));
    if (abi.grain < 1 || abi.grain > 4096)
        return err_set(e, HONE_EINPUT, "%s: its grain is %d; 1 to 4096 are possible", what, abi.grain);
    if (!strcasecmp(l->name, "rows") || !strcasecmp(l->name, "any"))
        return err_set(e, HONE_EINPUT, "%s: this name has a meaning of its own", what);
    for (int i = 0; i < p->n_layouts; i++)
        if (!strcasecmp(p->layouts[i].name, l->name))
            return err_set(e, HONE_EINPUT, "%s: the plug-in has two of this name", what);
    l->layout = (struct layout){.name = l->name,
                                .format = format,
                                .refuses = abi.refuses,
                                .bytes = abi.bytes,
                                .pack = abi.pack,
                                .unpack_row = abi.unpack_row,
                                .restore_row = abi.restore_row,
                                .grain = abi.grain};
    p->n_layouts++;
    return 0;
}

static int read_needs(const char *words, unsigned *bits, const char *what, struct hone_error *e)
{
    for (const char *w = words ? words : ""; *(w += strspn(w, " ,"));) {
        size_t n = strcspn(w, " ,");
        unsigned bit = 1;
        while (bit && cpu_feature_name(bit) &&
               (strlen(cpu_feature_name(bit)) != n || strncmp(cpu_feature_name(bit), w, n) != 0))
            bit <<= 1;
        if (!bit || !cpu_feature_name(bit)) {
            char known[200] = "";
            for (bit = 1; bit && cpu_feature_name(bit); bit <<= 1)
                snprintf(known + strlen(known), sizeof known - strlen(known), " %s", cpu_feature_name(bit));
            return err_set(e, HONE_EINPUT, "%s: it needs the feature '%.*s', which hone does not know; features:%s", what,
                           n < 40 ? (int)n : 40, w, known);
        }
        *bits |= bit;
        w += n;
    }
    return 0;
}

/* The layout of this name: the plug-in's own (not yet registered), or one that is known. */
static const struct layout *layout_named(const struct plugin *p, const char *name)
{
    for (int i = 0; i < p->n_layouts; i++)
        if (!strcasecmp(p->layouts[i].name, name))
            return &p->layouts[i].layout;
    return layout_by_name(name);
}

static int read_wanted_layouts(const struct plugin *p, struct plugin_kernel *k, const char *what, struct hone_error *e)
{
    struct wants *wants = &k->kernel.wants;
    const char *words = k->abi.layout;
    if (!words || !strcasecmp(words, "rows"))
        return 0;
    if (!strcasecmp(words, "any")) {
        wants->any_layout = true;
        return 0;
    }
    for (const char *w = words; *(w += strspn(w, " ,"));) {
        char name[PLUGIN_NAME_SIZE];
        size_t n = strcspn(w, " ,");
        snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, w);
        const struct layout *l = n < sizeof name ? layout_named(p, name) : NULL;
        if (!l)
            return err_set(e, HONE_EINPUT, "%s: there is no layout '%s'", what, name);
        if (k->format >= 0 && (int)l->format != k->format)
            return err_set(e, HONE_EINPUT, "%s: it takes %s, and the layout %s is of %s", what, format_word(k->format), name,
                           format_word((int32_t)l->format));
        for (int i = 0; i < k->n_wanted; i++)
            if (k->wanted[i]->format == l->format)
                return err_set(e, HONE_EINPUT, "%s: it names two layouts of %s", what, format_word((int32_t)l->format));
        if (k->n_wanted == PLUGIN_MAX_WANTED)
            return err_set(e, HONE_EINPUT, "%s: it names more than %d layouts", what, PLUGIN_MAX_WANTED);
        k->wanted[k->n_wanted++] = l;
        w += n;
    }
    if (!k->n_wanted)
        return err_set(e, HONE_EINPUT, "%s: its layout is '', which names none", what);
    if (k->n_wanted == 1)
        wants->layout = k->wanted[0];
    return 0; /* several: the slot's layout_for */
}

static int read_activation(struct plugin_kernel *k, const char *what, struct hone_error *e)
{
    if (!k->abi.activation)
        return 0;
    enum format_id format = FORMAT_F32;
    int rc = read_format(k->abi.activation, &format, what, e);
    if (rc)
        return rc;
    enum op op = k->kernel.op;
    if (op != OP_MUL_MAT && op != OP_MUL_MAT_ADD && op != OP_MUL_MAT_GROUP && op != OP_GATE_UP_GLU)
        return err_set(e, HONE_EINPUT,
                       "%s: only mul_mat, mul_mat_add, mul_mat_group and gate_up_glu may want an activation quantised", what);
    if (!format_get(format)->pack)
        return err_set(e, HONE_EINPUT, "%s: hone cannot quantise an activation to %s", what, format_word((int32_t)format));
    k->kernel.wants.quantized = format != FORMAT_F32;
    k->kernel.wants.activation = format;
    return 0;
}

/* The op and variant are those of no kernel that is known. */
static int check_unique(const struct plugin *p, const struct plugin_kernel *k, const struct backend *b, const char *what,
                        struct hone_error *e)
{
    int n;
    const struct kernel *const *known = b->kernels(&n);
    for (int i = 0; i < n; i++)
        if (known[i]->op == k->kernel.op && !strcmp(known[i]->variant, k->variant))
            return err_set(e, HONE_EINPUT, "%s: there is one of this name already", what);
    for (int i = 0; i < p->n_kernels; i++)
        if (p->kernels[i].kernel.op == k->kernel.op && !strcmp(p->kernels[i].variant, k->variant))
            return err_set(e, HONE_EINPUT, "%s: the plug-in has two of this name", what);
    return 0;
}

static int read_op(const char *name, enum op *op, const char *what, struct hone_error *e)
{
    if (!name || !*name)
        return err_set(e, HONE_EINPUT, "%s: it names no op", what);
    if (!op_by_name(name, op) && !op_get(*op)->alias)
        return 0;
    char known[400];
    int n = 0;
    for (int i = 0; i < N_OPS && n < (int)sizeof known; i++)
        if (!op_get((enum op)i)->alias)
            n += snprintf(known + n, sizeof known - (size_t)n, " %s", op_get((enum op)i)->name);
    return err_set(e, HONE_EINPUT, "%s: there is no op '%.40s' that runs; ops:%s", what, name, known);
}

int table_kernel(struct plugin *p, const struct backend *b, int number, int slot, struct hone_error *e)
{
    struct plugin_kernel *k = &p->kernels[p->n_kernels];
    char what[100];
    snprintf(what, sizeof what, "kernel %d", number);
    int rc = read_name(k->variant, k->abi.variant, "_", what, e);
    if (rc)
        return rc;
    snprintf(what, sizeof what, "kernel %d (%s)", number, k->variant);
    enum op op = OP_MUL_MAT;
    if ((rc = read_op(k->abi.op, &op, what, e)))
        return rc;
    snprintf(what, sizeof what, "kernel %s_%s", op_get(op)->name, k->variant);
    k->kernel = (struct kernel){.op = op, .variant = k->variant, .by_name_only = true};
    k->slot = slot;
    k->format = -1;
    if (k->abi.declines && !op_get(op)->fused)
        return err_set(e, HONE_EINPUT, "%s: only kernels of fused ops may decline", what);
    enum format_id format;
    if (k->abi.format) {
        if ((rc = read_format(k->abi.format, &format, what, e)))
            return rc;
        k->format = (int)format;
    }
    if ((rc = read_needs(k->abi.needs, &k->kernel.needs, what, e)) || (rc = read_wanted_layouts(p, k, what, e)) ||
        (rc = read_activation(k, what, e)) || (rc = check_unique(p, k, b, what, e)))
        return rc;
    slot_functions(slot, k->calls, &k->kernel);
    if (k->n_wanted < 2)
        k->kernel.wants.layout_for = NULL;
    p->n_kernels++;
    return 0;
}

static int kernel_read(struct plugin *p, const struct hone_kernel *from, int number, int slot, struct hone_error *e)
{
    struct plugin_kernel *k = &p->kernels[p->n_kernels];
    char what[40 + PLUGIN_NAME_SIZE];
    snprintf(what, sizeof what, "kernel %d", number);
    int rc = table_struct(&k->abi, sizeof k->abi, KERNEL_V1, from, from->size, what, e);
    if (rc)
        return rc;
    k->calls = &host_calls;
    if ((rc = table_kernel(p, backend_by_name("cpu"), number, slot, e)))
        return rc;
    snprintf(what, sizeof what, "kernel %s_%s", op_get(k->kernel.op)->name, k->variant);
    if ((rc = NEED(&k->abi, fits, what, e)) || (rc = NEED(&k->abi, run, what, e)))
        return rc;
    if (!k->abi.scratch)
        k->kernel.scratch = NULL;
    if (!k->abi.declines)
        k->kernel.declines = NULL;
    return 0;
}

/* Entries of a list that ends with NULL, up to `most`. */
static int list_length(const void *const *list, int most)
{
    int n = 0;
    while (list && n <= most && list[n])
        n++;
    return n;
}

static int check_head(const struct hone_plugin *table, size_t symbol_bytes, struct hone_error *e)
{
    if (table->magic != HONE_KERNEL_MAGIC)
        return err_set(e, HONE_EINPUT, "its hone_plugin begins with 0x%08x, not with HONE_PLUGIN_HEAD", table->magic);
    if (table->abi != HONE_KERNEL_ABI)
        return err_set(e, HONE_EINPUT,
                       "it is built for version %u of the plug-in ABI, this hone has version %u: build it with this hone's "
                       "hone_kernel.h",
                       table->abi, HONE_KERNEL_ABI);
    if (table->size > symbol_bytes)
        return err_set(e, HONE_EINPUT, "its hone_plugin has %zu bytes and says %u", symbol_bytes, table->size);
    return 0;
}

int table_read(struct plugin *p, const struct hone_plugin *table, size_t symbol_bytes, int first_slot, struct hone_error *e)
{
    struct hone_plugin abi;
    int rc = check_head(table, symbol_bytes, e);
    if (!rc)
        rc = table_struct(&abi, sizeof abi, PLUGIN_V1, table, table->size, "hone_plugin", e);
    if (!rc)
        rc = read_name(p->name, abi.name, "_-.", "the plug-in", e);
    if (!rc && abi.version)
        rc = read_name(p->version, abi.version, "_-.+", "its version", e);
    if (rc)
        return rc;
    int n_layouts = list_length((const void *const *)abi.layouts, PLUGIN_MAX_LAYOUTS),
        n_kernels = list_length((const void *const *)abi.kernels, PLUGIN_MAX_KERNELS);
    if (!n_kernels)
        return err_set(e, HONE_EINPUT, "it has no kernels");
    if (n_layouts > PLUGIN_MAX_LAYOUTS)
        return err_set(e, HONE_EINPUT, "it has more than %d layouts, or its list does not end with NULL", PLUGIN_MAX_LAYOUTS);
    if (n_kernels > PLUGIN_MAX_KERNELS - first_slot)
        return err_set(e, HONE_EINPUT,
                       "it has more kernels than the %d that are left of %d, or its list does not end with NULL",
                       PLUGIN_MAX_KERNELS - first_slot, PLUGIN_MAX_KERNELS);
    p->layouts = calloc((size_t)n_layouts + 1, sizeof *p->layouts);
    p->kernels = calloc((size_t)n_kernels, sizeof *p->kernels);
    if (!p->layouts || !p->kernels)
        return err_set(e, HONE_ERESOURCE, "no memory for its tables");
    for (int i = 0; i < n_layouts && !rc; i++)
        rc = layout_read(p, abi.layouts[i], i, e);
    for (int i = 0; i < n_kernels && !rc; i++)
        rc = kernel_read(p, abi.kernels[i], i, first_slot + i, e);
    return rc;
}
