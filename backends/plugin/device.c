/* device.c: a file of device code (include/hone_cuda.h) as kernels of the backend that runs such files.
 *
 * Device code cannot be asked on the host whether it fits, so its table is data: conditions and launch shapes are fields, read
 * once when the file is loaded. Every word of an entry is checked like those of a shared object's table (table.c has what both
 * share). What cannot be checked is what the code does on the device; that is what `hone check` is for, and a fault there ends
 * the step with the device's error, not the process.
 *
 * The alternative was a second function for each kernel, run on the device by one thread when a plan is made, that fits and
 * launches: it can say more, and nobody could list, compare or test what it says without the device. */
#include "backends/plugin/plugin.h"

#include "base/hash.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ANY = -1, PLAIN = -2 }; /* formats: any; f32 or i32 */
enum { ENTRY_V1 = offsetof(struct hone_cuda_kernel, strides) + sizeof(unsigned), MAX_GRID_Y = 65535 };

_Static_assert((int)HONE_CUDA_MAX_SRC >= (int)MAX_SRC && (int)MAX_ALSO <= 4, "a view has room for every node");

/* Whether name ends with one of these words, in any case. */
static bool ends_with(const char *name, const char *suffixes)
{
    size_t n = strlen(name);
    for (const char *w = suffixes; *(w += strspn(w, " "));) {
        size_t size = strcspn(w, " ");
        if (n > size && !strncasecmp(name + n - size, w, size))
            return true;
        w += size;
    }
    return false;
}

const struct backend *device_backend(const char *path)
{
    int n;
    const struct backend *const *list = backend_list(&n);
    for (int i = 0; i < n; i++)
        if (list[i]->api && list[i]->api->modules && ends_with(path, list[i]->api->modules->suffixes))
            return list[i];
    return NULL;
}

/* ---- the table */

/* Room for the words of one list. The word goes into a buffer; NULL: there are no more. */
static const char *next_word(const char **at, char word[PLUGIN_NAME_SIZE])
{
    *at += strspn(*at, " ,");
    size_t n = strcspn(*at, " ,");
    if (!n)
        return NULL;
    snprintf(word, PLUGIN_NAME_SIZE, "%.*s", n < PLUGIN_NAME_SIZE ? (int)n : PLUGIN_NAME_SIZE - 1, *at);
    *at += n;
    return word;
}

static int read_word_format(const char *word, int *format, const char *what, struct hone_error *e)
{
    enum format_id id;
    if (!strcmp(word, "*")) {
        *format = ANY;
        return 0;
    }
    if (format_by_name(word, &id))
        return err_set(e, HONE_EINPUT, "%s: there is no format '%s'", what, word);
    *format = (int)id;
    return 0;
}

static int read_formats(struct plugin_kernel *k, const char *what, struct hone_error *e)
{
    struct device_kernel *d = &k->device;
    const char *at = d->entry.formats;
    char word[PLUGIN_NAME_SIZE];
    int rc = 0, n = 0;
    for (int i = 0; i < HONE_CUDA_MAX_SRC; i++)
        d->formats[i] = PLAIN;
    while (!rc && next_word(&at, word)) {
        if (n == HONE_CUDA_MAX_SRC)
            return err_set(e, HONE_EINPUT, "%s: formats of more than %d sources", what, HONE_CUDA_MAX_SRC);
        rc = read_word_format(word, &d->formats[n++], what, e);
    }
    d->out_format = (int)FORMAT_F32;
    if (!rc && d->entry.out_format[0])
        rc = read_word_format(d->entry.out_format, &d->out_format, what, e);
    if (rc)
        return rc;
    if (d->formats[0] >= 0)
        k->abi.format = format_word(d->formats[0]);
    if (d->formats[1] == (int)FORMAT_A8)
        k->abi.activation = format_word(FORMAT_A8);
    return 0;
}

static int read_text(const struct hone_cuda_kernel *entry, const char *what, struct hone_error *e)
{
#define TEXT(field)                                                                                                            \
    {                                                                                                                          \
        entry->field, sizeof entry->field, #field                                                                              \
    }
    const struct {
        const char *text;
        size_t size;
        const char *name;
    } texts[] = {TEXT(op), TEXT(variant), TEXT(function), TEXT(formats), TEXT(out_format), TEXT(layout), TEXT(where)};
#undef TEXT
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!memchr(texts[i].text, 0, texts[i].size))
            return err_set(e, HONE_EINPUT, "%s: its %s has no end", what, texts[i].name);
    for (int i = 0; i < HONE_CUDA_MAX_PARAMS; i++)
        if (!memchr(entry->params[i], 0, sizeof entry->params[i]))
            return err_set(e, HONE_EINPUT, "%s: its params[%d] has no end", what, i);
    for (const char *c = entry->function; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '$')
            return err_set(e, HONE_EINPUT, "%s: its function has the byte 0x%02x in its name", what, (unsigned char)*c);
    return entry->function[0] ? 0 : err_set(e, HONE_EINPUT, "%s: it names no function", what);
}

static int read_launch(struct plugin_kernel *k, const struct device_limits *limits, const char *what, struct hone_error *e)
{
    struct device_kernel *d = &k->device;
    if (limits->rc)
        return err_set(e, limits->rc, "%s: %s", what, limits->message);
    d->max_threads = limits->max_threads;
    d->max_shared = limits->max_shared;
    if (d->entry.threads < 1 || d->entry.threads > (unsigned)d->max_threads)
        return err_set(e, HONE_EINPUT, "%s: blocks of %u threads; 1 to %d are possible", what, d->entry.threads,
                       d->max_threads);
    if (d->entry.shared > d->max_shared)
        return err_set(e, HONE_EINPUT, "%s: %u bytes of shared memory; %zu are possible", what, d->entry.shared, d->max_shared);
    if (d->entry.scratch_a_value > 1 << 20)
        return err_set(e, HONE_EINPUT, "%s: %u bytes of scratch a value; 1 MiB is possible", what, d->entry.scratch_a_value);
    return 0;
}

static const struct slot_calls device_calls;

static int entry_read(struct plugin *p, const struct backend *b, void *module, const struct device_facts *f, size_t size,
                      int number, int slot, struct hone_error *e)
{
    struct plugin_kernel *k = &p->kernels[p->n_kernels];
    struct hone_cuda_kernel *entry = &k->device.entry;
    char what[40 + PLUGIN_NAME_SIZE];
    snprintf(what, sizeof what, "kernel %d", number);
    int rc = table_struct(entry, sizeof *entry, ENTRY_V1, (const char *)f->table + (size_t)number * size, size, what, e);
    if (!rc && entry->abi != HONE_CUDA_ABI)
        rc = err_set(e, HONE_EINPUT, "%s: it is built for version %u of hone_cuda.h, this hone has version %u", what,
                     entry->abi, HONE_CUDA_ABI);
    if (!rc)
        rc = read_text(entry, what, e);
    if (rc)
        return rc;
    k->calls = &device_calls;
    k->device.api = b->api->modules;
    k->device.module = module;
    k->abi =
        (struct hone_kernel){.op = entry->op, .variant = entry->variant, .layout = entry->layout[0] ? entry->layout : NULL};
    if ((rc = read_formats(k, what, e)) || (rc = read_launch(k, &f->functions[number], what, e)))
        return rc;
    rc = table_kernel(p, b, number, slot, e);
    if (!rc && !entry->scratch_a_value)
        k->kernel.shared = NULL;
    return rc;
}

/* The file's name without folder and ending, for messages and records. */
static void name_of(const char *path, char name[PLUGIN_NAME_SIZE])
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *dot = strrchr(base, '.');
    int n = 0;
    for (const char *c = base; *c && c != dot && n < PLUGIN_NAME_SIZE - 1; c++)
        name[n++] = isalnum((unsigned char)*c) || strchr("_-.", *c) ? *c : '_';
    name[n] = 0;
}

static int table_entries(struct plugin *p, const struct backend *b, void *module, const struct device_facts *f, int first_slot,
                         struct hone_error *e)
{
    size_t n = f->n, size = n ? f->bytes / n : 0;
    if (n > (size_t)(PLUGIN_MAX_KERNELS - first_slot))
        return err_set(e, HONE_EINPUT, "it has %zu kernels; %d are left of %d", n, PLUGIN_MAX_KERNELS - first_slot,
                       PLUGIN_MAX_KERNELS);
    p->kernels = calloc(n, sizeof *p->kernels);
    if (!p->kernels)
        return err_set(e, HONE_ERESOURCE, "no memory for its table");
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        unsigned own;
        memcpy(&own, (const char *)f->table + i * size, sizeof own);
        rc = own == size
                 ? entry_read(p, b, module, f, size, (int)i, first_slot + (int)i, e)
                 : err_set(e, HONE_EINPUT, "kernel %zu: its size is given as %u bytes, that of the first as %zu", i, own, size);
    }
    return rc;
}

int device_open(struct plugin *p, const struct backend *b, const char *path, int first_slot, bool *known, struct hone_error *e)
{
    const struct module_api *api = b->api->modules;
    struct sha256 sum;
    struct device_facts f = {0};
    *p = (struct plugin){0};
    *known = false;
    int rc = hash_sha256_file(&sum, path, NULL, NULL, e);
    if (rc)
        return HONE_EINPUT;
    const struct plugin *other;
    for (int i = 0; (other = plugin_get(i)); i++)
        *known |= !strcmp(other->sha256, sum.hex);
    if (*known)
        return 0;
    name_of(path, p->name);
    p->modules = api;
    rc = api->load(path, &p->module, e);
    if (!rc)
        rc = device_facts_read(&f, api, p->module, e);
    if (!rc)
        rc = table_entries(p, b, p->module, &f, first_slot, e);
    device_facts_free(&f);
    return rc;
}

/* ---- one kernel */

/* A parameter of the node's op, or of the first of its parts that has one of this name. */
static const struct op_param *find_param(const struct node *n, const char *name, const void **params)
{
    for (int i = -1; i < n->n_parts; i++) {
        const struct node *it = i < 0 ? n : n->parts[i];
        for (const struct op_param *p = op_get(it->op)->params; p && p->name; p++)
            if (!strcmp(p->name, name)) {
                *params = it->params + p->offset;
                return p;
            }
    }
    return NULL;
}

static double param_value(const struct op_param *p, const void *at)
{
    float real;
    int32_t whole;
    memcpy(&real, at, sizeof real);
    memcpy(&whole, at, sizeof whole);
    return p->real ? (double)real : whole;
}

static bool fits_params(const struct hone_cuda_kernel *entry, const struct node *n, struct reason *r)
{
    const void *at;
    for (int i = 0; i < HONE_CUDA_MAX_PARAMS && entry->params[i][0]; i++)
        if (!find_param(n, entry->params[i], &at))
            return fits_not(r, "the op has no parameter '%s'", entry->params[i]);
    const char *words = entry->where;
    for (char word[PLUGIN_NAME_SIZE]; next_word(&words, word);) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = 0;
        const struct op_param *p = find_param(n, word, &at);
        if (!p || !p->word || !value)
            return fits_not(r, "the op has no choice '%s'", word);
        int32_t whole;
        memcpy(&whole, at, sizeof whole);
        const char *is = p->word(whole);
        if (!is || strcmp(is, value) != 0)
            return fits_not(r, "%s is %s, not %s", word, is ? is : "unknown", value);
    }
    return true;
}

static bool fits_tensor(const struct device_kernel *d, const struct tensor *t, int format, struct reason *r)
{
    if (format == PLAIN ? t->format != FORMAT_F32 && t->format != FORMAT_I32 : format != ANY && (int)t->format != format)
        return fits_not(r, "%.40s is %s, not %s", t->name, format_word((int32_t)t->format),
                        format == PLAIN ? "f32 or i32" : format_word(format));
    if (!d->entry.strides && !t->layout && !tensor_contiguous(t))
        return fits_not(r, "%.40s has gaps, and its table says nothing of strides", t->name);
    return true;
}

/* grid[0] counts the values of out and what else the node leaves, grid[1] the rows of out. */
static bool launch_shape(const struct hone_cuda_kernel *entry, const struct node *n, unsigned grid[2])
{
    int64_t rows = tensor_rows(n->out), values = n->out->ne[0];
    for (int i = 0; i < n->n_also; i++)
        values += n->also[i]->ne[0];
    int64_t x = entry->values ? (values + entry->values - 1) / entry->values : values > 0;
    int64_t y = entry->rows ? (rows + entry->rows - 1) / entry->rows : rows > 0;
    if (x > INT32_MAX || y > MAX_GRID_Y)
        return false;
    grid[0] = (unsigned)x;
    grid[1] = (unsigned)y;
    return true;
}

static size_t shared_memory(const struct hone_cuda_kernel *entry, const struct node *n)
{
    const struct tensor *x = n->n_src > 1 && n->src[1] ? n->src[1] : n->n_src ? n->src[0] : n->out;
    return entry->shared + (size_t)entry->shared_a_value * (size_t)x->ne[0];
}

static bool device_fits(const struct plugin_kernel *k, const struct node *n, struct reason *r)
{
    const struct device_kernel *d = &k->device;
    const struct hone_cuda_kernel *entry = &d->entry;
    unsigned grid[2];
    if (!wanted_fits(k, n, r))
        return false;
    for (int i = 0; i < n->n_src; i++) {
        bool quantized = i == 1 && k->kernel.wants.quantized;
        if (n->src[i] && !fits_tensor(d, n->src[i], quantized ? ANY : d->formats[i], r))
            return false;
    }
    if (!fits_tensor(d, n->out, d->out_format, r) || !fits_params(entry, n, r))
        return false;
    if (entry->k_multiple && n->n_src && n->src[0]->ne[0] % entry->k_multiple)
        return fits_not(r, "rows of %lld values are no multiple of %u", (long long)n->src[0]->ne[0], entry->k_multiple);
    if (entry->max_rows && tensor_rows(n->out) > entry->max_rows)
        return fits_not(r, "%lld rows, and it takes up to %u", (long long)tensor_rows(n->out), entry->max_rows);
    if (!launch_shape(entry, n, grid))
        return fits_not(r, "more blocks than a launch has");
    if (shared_memory(entry, n) > d->max_shared)
        return fits_not(r, "%zu bytes of shared memory; %zu are possible", shared_memory(entry, n), d->max_shared);
    return true;
}

static size_t device_scratch(const struct plugin_kernel *k, const struct node *n)
{
    return (size_t)k->device.entry.scratch_a_value * (size_t)(tensor_rows(n->out) * n->out->ne[0]);
}

static struct hone_cuda_tensor view(const struct tensor *t)
{
    struct hone_cuda_tensor v = {0};
    if (!t)
        return v;
    const struct format *f = format_get(t->format);
    v.data = t->data;
    v.block = f->block;
    v.block_bytes = f->bytes;
    for (int i = 0; i < MAX_DIMS; i++) {
        v.ne[i] = t->ne[i];
        v.nb[i] = (long long)t->nb[i];
    }
    return v;
}

static int device_run(const struct plugin_kernel *k, const struct exec *x, const struct node *n)
{
    struct device_kernel *d = (struct device_kernel *)(uintptr_t)&k->device; /* `function` alone is written */
    struct hone_cuda_node arg = {.out = view(n->out), .scratch = x->shared, .n_src = n->n_src, .n_also = n->n_also};
    unsigned grid[2];
    if (!wanted_done(k, n) || !launch_shape(&d->entry, n, grid)) {
        d->api->tell("its sources are not as its table wants them, or it would take more blocks than a launch has");
        return HONE_EFAULT;
    }
    if (!grid[0] || !grid[1])
        return 0; /* an empty tensor */
    for (int i = 0; i < n->n_src; i++)
        arg.src[i] = view(n->src[i]);
    for (int i = 0; i < n->n_also; i++)
        arg.also[i] = view(n->also[i]);
    for (int i = 0; i < HONE_CUDA_MAX_PARAMS && d->entry.params[i][0]; i++) {
        const void *at;
        const struct op_param *p = find_param(n, d->entry.params[i], &at);
        arg.param[i] = p ? param_value(p, at) : 0;
    }
    void *function = atomic_load(&d->function);
    if (!function) { /* the first launch of this process; every thread that comes here finds the same */
        struct hone_error e = {0};
        int threads, rc = d->api->function(d->module, d->entry.function, sizeof arg, &function, &threads, &(size_t){0}, &e);
        if (rc) {
            d->api->tell(e.message);
            return rc;
        }
        atomic_store(&d->function, function);
    }
    return d->api->launch(x, function, grid, (int)d->entry.threads, shared_memory(&d->entry, n), &arg);
}

static const struct slot_calls device_calls = {.fits = device_fits, .shared = device_scratch, .run = device_run};
