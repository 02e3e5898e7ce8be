/* graph.c: building. A graph is an array of nodes in running order; the order in which the builder adds them is a valid one, so
 * nothing is sorted. Errors stick in the graph instead of being checked at every call: a builder of forty nodes a layer
 * reads like the formula, and the alternative, a macro that returns on error, hid the control flow. */
#include "graph/graph.h"

#include "ops/permute.h"
#include "ops/reshape.h"
#include "ops/view.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void graph_init(struct graph *g, struct arena *arena)
{
    *g = (struct graph){.arena = arena, .layer = -1};
}

static void *graph_alloc(struct graph *g, size_t n, size_t size)
{
    void *p = g->error.code ? NULL : arena_array(g->arena, n, size);
    if (!p)
        err_set(&g->error, HONE_ERESOURCE, "no memory for a graph of %d nodes", g->n_nodes);
    return p;
}

struct tensor *graph_input(struct graph *g, const char *name, enum format_id format, int n_dims, const int64_t *ne)
{
    struct tensor *t = graph_alloc(g, 1, sizeof *t);
    if (!t)
        return NULL;
    t->kind = TENSOR_INPUT;
    tensor_shape(t, format, n_dims, ne);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static int graph_append(struct graph *g, struct node *n)
{
    if (g->n_nodes == g->cap_nodes) {
        int cap = g->cap_nodes ? 2 * g->cap_nodes : 256;
        struct node **nodes = graph_alloc(g, (size_t)cap, sizeof *nodes);
        if (!nodes)
            return g->error.code;
        if (g->n_nodes)
            memcpy(nodes, g->nodes, (size_t)g->n_nodes * sizeof *nodes);
        g->nodes = nodes;
        g->cap_nodes = cap;
    }
    g->nodes[g->n_nodes++] = n;
    return 0;
}

struct tensor *graph_add(struct graph *g, enum op op, const void *params, struct tensor *const *src, int n_src)
{
    if (g->error.code)
        return NULL;
    const struct op_desc *d = op_get(op);
    INVARIANT(n_src >= d->min_src && n_src <= d->max_src && d->params_size <= PARAMS_SIZE);
    INVARIANT(!params == !d->params_size);
    for (int i = 0; i < d->min_src; i++)
        INVARIANT(src[i]);
    struct node *n = graph_alloc(g, 1, sizeof *n);
    struct tensor *out = graph_alloc(g, 1, sizeof *out);
    if (!n || !out)
        return NULL;
    *n = (struct node){.op = op, .layer = g->layer, .out = out, .n_src = n_src};
    memcpy(n->src, src, (size_t)n_src * sizeof *src);
    if (params)
        memcpy(n->params, params, d->params_size);
    out->kind = TENSOR_VALUE;
    out->producer = n;
    snprintf(out->name, sizeof out->name, "node_%d", g->n_nodes);
    if (d->shape(n, &g->error) || graph_append(g, n))
        return NULL;
    if (out->base)
        out->buffer = out->base->buffer;
    return out;
}

struct node *graph_insert(struct graph *g, int at)
{
    struct node *n = graph_alloc(g, 1, sizeof *n);
    if (!n || graph_append(g, n))
        return NULL;
    memmove(&g->nodes[at + 1], &g->nodes[at], (size_t)(g->n_nodes - 1 - at) * sizeof *g->nodes);
    return g->nodes[at] = n;
}

struct tensor *graph_name(struct graph *g, struct tensor *t, const char *format, ...)
{
    if (!t)
        return NULL;
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->name, sizeof t->name, format, ap);
    va_end(ap);
    if (g->layer >= 0 && n >= 0 && (size_t)n < sizeof t->name)
        snprintf(t->name + n, sizeof t->name - (size_t)n, "-%d", g->layer);
    return t;
}

struct tensor *graph_reshape(struct graph *g, struct tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)
{
    return graph_op(g, OP_RESHAPE, (&(struct reshape_params){.ne = {ne0, ne1, ne2, ne3}}), t);
}

struct tensor *graph_slice(struct graph *g, struct tensor *t, int64_t start, int64_t n)
{
    if (!t)
        return NULL;
    struct view_params p = {.offset = (uint64_t)start / (uint64_t)format_get(t->format)->block * t->nb[0]};
    p.ne[0] = (int32_t)n;
    for (int i = 0; i < MAX_DIMS; i++) {
        if (i)
            p.ne[i] = (int32_t)t->ne[i];
        p.nb[i] = (uint32_t)t->nb[i];
    }
    return graph_op(g, OP_VIEW, &p, t);
}

int graph_error(const struct graph *g, struct hone_error *e)
{
    if (g->error.code && e)
        *e = g->error;
    return g->error.code;
}
