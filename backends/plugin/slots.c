/* slots.c: how hone calls a plug-in's kernel: plain views of the node, and functions that know whose they are.
 *
 * hone's kernels are functions of a node alone, so a kernel made at run time needs functions of its own that carry a pointer. C
 * has no closures: there are PLUGIN_MAX_KERNELS sets of functions here, made by macros, each of which knows its number and
 * looks up its plug-in. The alternative, a kernel as one more argument, would change every kernel and every caller for the sake
 * of these; making code at run time needs pages that may be written and run.
 *
 * Views are made anew for each call, on the stack: 0.12 us for a mul_mat, 0.3 us for a fused group of three (a million calls of
 * an empty kernel, on a busy machine), against 20 us and more for the work. Keeping them with the plan was the
 * alternative; addresses change whenever a plan is bound, so each use would have to ask. */
#include "backends/plugin/plugin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct plugin_kernel *slots[PLUGIN_MAX_KERNELS];

/* ---- views */

enum { MAX_PARTS_SEEN = 16, MAX_NODES = MAX_PARTS_SEEN + 1, MAX_VIEWS = 64, MAX_PARAMS_SEEN = 96 };

struct view {
    struct hone_tensor abi; /* first: what the plug-in has is a pointer to a struct view */
    const struct tensor *tensor;
};

struct views {
    int n, n_params;
    bool with_data, full; /* full: there was more than fits */
    struct view tensors[MAX_VIEWS];
    struct hone_node nodes[MAX_NODES];
    const struct hone_tensor *src[MAX_NODES][MAX_SRC];
    const struct hone_tensor *also[MAX_ALSO];
    const struct hone_node *parts[MAX_PARTS_SEEN];
    struct hone_param params[MAX_PARAMS_SEEN];
};

static const struct hone_tensor *view_tensor(struct views *v, const struct tensor *t)
{
    static const char *const kinds[] = {"weight", "input", "state", "value"};
    for (int i = 0; i < v->n; i++)
        if (v->tensors[i].tensor == t)
            return &v->tensors[i].abi;
    if (v->n == MAX_VIEWS) {
        v->full = true;
        return NULL;
    }
    struct view *view = &v->tensors[v->n++];
    const struct format *f = format_get(t->format);
    view->tensor = t;
    struct hone_tensor *abi = &view->abi;
    abi->size = sizeof *abi;
    abi->block = f->block;
    abi->block_bytes = f->bytes;
    abi->packed = t->layout != NULL;
    abi->name = t->name;
    abi->kind = kinds[t->kind];
    abi->format = format_word((int32_t)t->format);
    abi->layout = t->layout ? t->layout->name : "rows";
    for (int i = 0; i < MAX_DIMS; i++) {
        abi->ne[i] = t->ne[i];
        abi->nb[i] = (int64_t)t->nb[i];
    }
    abi->data = v->with_data ? t->data : NULL;
    return abi;
}

static void view_params(struct views *v, const struct node *n, struct hone_node *abi)
{
    const struct op_param *p = op_get(n->op)->params;
    abi->params = &v->params[v->n_params];
    abi->n_params = 0;
    for (; p && p->name; p++) {
        if (v->n_params == MAX_PARAMS_SEEN) {
            v->full = true;
            return;
        }
        float real;
        int32_t whole;
        memcpy(&real, n->params + p->offset, sizeof real);
        memcpy(&whole, n->params + p->offset, sizeof whole);
        v->params[v->n_params++] =
            (struct hone_param){p->name, p->word ? p->word(whole) : NULL, p->real ? (double)real : whole};
        abi->n_params++;
    }
}

/* The view of n as node number i. Parts of parts are not shown: a late fusion takes over the parts of what it swallows. */
static void view_node(struct views *v, const struct node *n, int i)
{
    struct hone_node *abi = &v->nodes[i];
    *abi = (struct hone_node){
        .size = sizeof *abi, .layer = n->layer, .op = op_get(n->op)->name, .n_src = n->n_src, .src = v->src[i]};
    for (int j = 0; j < n->n_src; j++)
        v->src[i][j] = n->src[j] ? view_tensor(v, n->src[j]) : NULL;
    abi->out = view_tensor(v, n->out);
    view_params(v, n, abi);
}

/* with_data: addresses mean something. false: the node is too large to be shown. */
static bool view_make(struct views *v, const struct node *n, bool with_data)
{
    v->n = v->n_params = 0;
    v->with_data = with_data;
    v->full = n->n_parts > MAX_PARTS_SEEN;
    view_node(v, n, 0);
    if (n->n_parts && !v->full) {
        struct hone_node *abi = &v->nodes[0];
        abi->n_parts = n->n_parts;
        abi->parts = v->parts;
        abi->n_also = n->n_also;
        abi->also = v->also;
        for (int i = 0; i < n->n_parts; i++) {
            view_node(v, n->parts[i], i + 1);
            v->parts[i] = &v->nodes[i + 1];
        }
        for (int i = 0; i < n->n_also; i++)
            v->also[i] = view_tensor(v, n->also[i]);
    }
    return !v->full;
}

/* ---- what a running kernel may call */

static const struct tensor *tensor_of(const struct hone_tensor *t)
{
    return ((const struct view *)(const void *)t)->tensor;
}

static void ctx_barrier(const struct hone_ctx *ctx)
{
    worker_barrier(ctx->host);
}

static const float *ctx_read_row(const struct hone_tensor *t, int64_t i1, int64_t i2, int64_t i3, float *room)
{
    const struct tensor *tensor = tensor_of(t);
    if (format_get(tensor->format)->unpack)
        return tensor_read_row(tensor, i1, i2, i3, room);
    for (int64_t i = 0; i < t->ne[0]; i++) /* an i32: no floats here, and a wrong result that shows */
        room[i] = NAN;
    return room;
}

static void ctx_write_row(const struct hone_tensor *t, int64_t i1, int64_t i2, int64_t i3, const float *row)
{
    const struct tensor *tensor = tensor_of(t);
    if (!tensor->layout && format_get(tensor->format)->pack)
        tensor_write_row(tensor, i1, i2, i3, row);
}

/* ---- one slot's functions */

static bool is_matrix(const struct tensor *t)
{
    return t && t->kind == TENSOR_WEIGHT && tensor_rows(t) > 1 && !t->base;
}

/* The layout that the kernel reads matrices of this format in. */
static const struct layout *wanted_layout(const struct plugin_kernel *k, enum format_id format)
{
    for (int i = 0; i < k->n_wanted; i++)
        if (k->wanted[i]->format == format)
            return k->wanted[i];
    return NULL;
}

static uint64_t scratch_of(const struct plugin_kernel *k, struct views *v)
{
    return k->abi.scratch ? k->abi.scratch(&v->nodes[0]) : 0;
}

/* Text from a plug-in, fit for a terminal. */
static bool refuse(struct reason *r, char *why)
{
    why[sizeof r->text - 1] = 0;
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return fits_not(r, "%s", *why ? why : "its plug-in says no, and not why");
}

/* What hone asks for before it asks the plug-in: the format it named, and that what it wants can be brought about. */
static bool host_fits(const struct plugin_kernel *k, const struct node *n, struct reason *r)
{
    const struct tensor *w = n->n_src ? n->src[0] : NULL, *x = n->n_src > 1 ? n->src[1] : NULL;
    const struct wants *wants = &k->kernel.wants;
    if (k->format >= 0 && (!w || (int)w->format != k->format))
        return fits_not(r, "src[0] is %s, not %s", w ? format_word((int32_t)w->format) : "absent", format_word(k->format));
    if (k->n_wanted && !is_matrix(w))
        return fits_not(r, "%s is no matrix of weights that could be packed", w ? w->name : "src[0]");
    if (!wants->quantized || x->format == wants->activation)
        return true;
    const struct format *f = format_get(wants->activation);
    if (x->format != FORMAT_F32 || x->ne[0] % f->block != 0)
        return fits_not(r, "%s rows of %lld cannot be quantised to %s", format_word((int32_t)x->format), (long long)x->ne[0],
                        format_word((int32_t)wants->activation));
    return true;
}

static bool slot_fits(int i, const struct node *n, struct reason *r)
{
    const struct plugin_kernel *k = slots[i];
    struct views v;
    char why[sizeof r->text] = "";
    if (!host_fits(k, n, r))
        return false;
    if (!view_make(&v, n, false))
        return fits_not(r, "the node is larger than a plug-in can be shown");
    if (!k->abi.fits(&v.nodes[0], why, sizeof why))
        return refuse(r, why);
    uint64_t scratch = scratch_of(k, &v);
    if (scratch > PLUGIN_MAX_SCRATCH)
        return fits_not(r, "it asks for %llu bytes of scratch a worker", (unsigned long long)scratch);
    return true;
}

static size_t slot_scratch(int i, const struct node *n)
{
    struct views v;
    if (!view_make(&v, n, false))
        return 0;
    uint64_t bytes = scratch_of(slots[i], &v);
    return bytes > PLUGIN_MAX_SCRATCH ? SIZE_MAX >> 20 : bytes; /* more than it said when asked first: no memory will do */
}

/* Sources are as they were promised; a plan that is run against them would have the plug-in read the wrong bytes. */
static bool as_promised(const struct plugin_kernel *k, const struct node *n)
{
    const struct wants *wants = &k->kernel.wants;
    for (int j = 0; j < n->n_src && !wants->any_layout; j++) {
        const struct tensor *t = n->src[j];
        if (t && (t->layout || is_matrix(t) || (j == 0 && k->n_wanted)) && t->layout != wanted_layout(k, t->format))
            return false;
    }
    return !wants->quantized || n->src[1]->format == wants->activation;
}

static int slot_run(int i, const struct exec *x, const struct node *n)
{
    const struct plugin_kernel *k = slots[i];
    struct views v;
    if (!as_promised(k, n) || !view_make(&v, n, true))
        return HONE_EFAULT;
    struct hone_ctx ctx = {.size = sizeof ctx,
                           .scratch = x->worker.scratch,
                           .scratch_bytes = x->worker.scratch_size,
                           .stream = x->stream,
                           .host = &x->worker,
                           .barrier = ctx_barrier,
                           .read_row = ctx_read_row,
                           .write_row = ctx_write_row};
    return k->abi.run(&ctx, &v.nodes[0], x->worker.ith, x->worker.nth) ? HONE_EINPUT : 0;
}

static bool slot_declines(int i, const struct node *n, struct reason *r)
{
    struct views v;
    char why[sizeof r->text] = "";
    if (!view_make(&v, n, true))
        return !fits_not(r, "the node is larger than a plug-in can be shown");
    return slots[i]->abi.declines(&v.nodes[0], why, sizeof why) && !refuse(r, why);
}

static const struct layout *slot_layout(int i, enum format_id format)
{
    return wanted_layout(slots[i], format);
}

/* ---- the sets of functions */

#define SLOT(i)                                                                                                                \
    static bool fits_##i(const struct node *n, struct reason *r)                                                               \
    {                                                                                                                          \
        return slot_fits(i, n, r);                                                                                             \
    }                                                                                                                          \
    static size_t scratch_##i(const struct node *n)                                                                            \
    {                                                                                                                          \
        return slot_scratch(i, n);                                                                                             \
    }                                                                                                                          \
    static int run_##i(const struct exec *x, const struct node *n)                                                             \
    {                                                                                                                          \
        return slot_run(i, x, n);                                                                                              \
    }                                                                                                                          \
    static bool declines_##i(const struct node *n, struct reason *r)                                                           \
    {                                                                                                                          \
        return slot_declines(i, n, r);                                                                                         \
    }                                                                                                                          \
    static const struct layout *layout_##i(enum format_id format)                                                              \
    {                                                                                                                          \
        return slot_layout(i, format);                                                                                         \
    }
#define SIXTEEN(F, h)                                                                                                          \
    F(h##0)                                                                                                                    \
    F(h##1) F(h##2) F(h##3) F(h##4) F(h##5) F(h##6) F(h##7) F(h##8) F(h##9) F(h##a) F(h##b) F(h##c) F(h##d) F(h##e) F(h##f)
#define ALL(F)                                                                                                                 \
    SIXTEEN(F, 0x0)                                                                                                            \
    SIXTEEN(F, 0x1) SIXTEEN(F, 0x2) SIXTEEN(F, 0x3) SIXTEEN(F, 0x4) SIXTEEN(F, 0x5) SIXTEEN(F, 0x6) SIXTEEN(F, 0x7)

ALL(SLOT)

#define ROW(i)                                                                                                                 \
    {.fits = fits_##i, .scratch = scratch_##i, .run = run_##i, .declines = declines_##i, .wants.layout_for = layout_##i},
static const struct kernel functions[] = {ALL(ROW)};
_Static_assert(sizeof functions / sizeof *functions == PLUGIN_MAX_KERNELS, "one row a slot");

void slot_functions(int i, struct kernel *k)
{
    k->fits = functions[i].fits;
    k->scratch = functions[i].scratch;
    k->run = functions[i].run;
    k->declines = functions[i].declines;
    k->wants.layout_for = functions[i].wants.layout_for;
}

void slot_fill(int i, const struct plugin_kernel *k)
{
    slots[i] = k;
}
