/* host.c: how hone calls the kernel of a shared object: with plain views of the node.
 *
 * Views are made anew for each call, on the stack: 0.12 us for a mul_mat, 0.3 us for a fused group of three (a million calls of
 * an empty kernel, on a busy machine), against 20 us and more for the work. Keeping them with the plan was the
 * alternative; addresses change whenever a plan is bound, so each use would have to ask. */
#include "backends/plugin/plugin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* ---- a kernel's functions */

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

static bool host_fits(const struct plugin_kernel *k, const struct node *n, struct reason *r)
{
    struct views v;
    char why[sizeof r->text] = "";
    if (!wanted_fits(k, n, r))
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

static size_t host_scratch(const struct plugin_kernel *k, const struct node *n)
{
    struct views v;
    if (!view_make(&v, n, false))
        return 0;
    uint64_t bytes = scratch_of(k, &v);
    return bytes > PLUGIN_MAX_SCRATCH ? SIZE_MAX >> 20 : bytes; /* more than it said when asked first: no memory will do */
}

static int host_run(const struct plugin_kernel *k, const struct exec *x, const struct node *n)
{
    struct views v;
    if (!wanted_done(k, n) || !view_make(&v, n, true))
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

static bool host_declines(const struct plugin_kernel *k, const struct node *n, struct reason *r)
{
    struct views v;
    char why[sizeof r->text] = "";
    if (!view_make(&v, n, true))
        return !fits_not(r, "the node is larger than a plug-in can be shown");
    return k->abi.declines(&v.nodes[0], why, sizeof why) && !refuse(r, why);
}

const struct slot_calls host_calls = {.fits = host_fits, .scratch = host_scratch, .run = host_run, .declines = host_declines};
