/* persistent_find.c: recognises a decode step of one token among a plan's nodes: norms that are quantised, the products that
 * read them, attention and the product behind it. What it does not know ends a stretch and is named; the longest stretch is
 * taken.
 *
 * What a phase makes on the way, a norm's row as A8 or attention's result, is nowhere in memory when it is done: so nobody else
 * may read it, and that is asked of all nodes of the plan. What nodes leave for others beside their result (node->also) is not
 * made, but for the products of a group. */
#include "backends/cuda/persistent_find.h"

#include "ops/glu.h"

#include <string.h>

static const struct tensor *root(const struct tensor *t)
{
    return t->base ? t->base : t;
}

static bool node_reads(const struct node *n, const struct tensor *t)
{
    for (int j = 0; j < n->n_src; j++)
        if (n->src[j] && root(n->src[j]) == root(t))
            return true;
    return false;
}

/* Nobody but `reader` reads what n makes. */
static bool is_private(const struct node *const *nodes, int n_all, const struct node *n, const struct node *reader,
                       struct reason *r)
{
    if (n->n_also)
        return fits_not(r, "%.60s is read beside %.30s", n->also[0]->name, n->out->name);
    for (int i = 0; i < n_all; i++)
        if (nodes[i] != reader && nodes[i] != n && !op_get(nodes[i]->op)->alias && node_reads(nodes[i], n->out))
            return fits_not(r, "%.60s is read by %.40s too", n->out->name, nodes[i]->out->name);
    return true;
}

static bool is_product(const struct node *n)
{
    return n->op == OP_MUL_MAT || n->op == OP_MUL_MAT_ADD || n->op == OP_MUL_MAT_GROUP || n->op == OP_GATE_UP_GLU_QUANTIZE;
}

void persist_product_of(const struct node *n, struct persist_product *p)
{
    memset(p, 0, sizeof *p);
    p->out = n->out;
    if (!n->n_parts) {
        p->matrix[p->n++] = n;
        return;
    }
    for (int i = 0; i < n->n_parts && p->n < 4; i++) {
        if (n->parts[i]->op == OP_MUL_MAT)
            p->matrix[p->n++] = n->parts[i];
        else if (n->parts[i]->op == OP_GLU)
            p->glu = n->parts[i];
    }
    if (n->op == OP_MUL_MAT_ADD)
        p->add = n->src[2];
    if (!p->glu)
        return;
    p->quantized = n->out;
    if (p->glu->src[0] != p->matrix[0]->out) {
        const struct node *up = p->matrix[0];
        p->matrix[0] = p->matrix[1];
        p->matrix[1] = up;
    }
}

static bool is_row(const struct tensor *t, enum format_id format)
{
    return t->format == format && tensor_rows(t) == 1 && tensor_contiguous(t);
}

static bool product_fits(const struct node *n, struct reason *r)
{
    struct persist_product p;
    persist_product_of(n, &p);
    if (n->n_also && n->op != OP_MUL_MAT_GROUP) /* whose other products stand there */
        return fits_not(r, "%.60s is read beside %.30s", n->also[0]->name, n->out->name);
    for (int i = 0; i < p.n; i++) {
        const struct tensor *w = p.matrix[i]->src[0], *x = p.matrix[i]->src[1];
        if (w->kind != TENSOR_WEIGHT || w->ne[2] != 1 || w->ne[3] != 1 || !tensor_contiguous(w))
            return fits_not(r, "the weights of %.60s are no plain matrix", p.matrix[i]->out->name);
        if (!is_row(x, FORMAT_A8))
            return fits_not(r, "what %.60s multiplies is not one row of A8", p.matrix[i]->out->name);
        if (!p.glu && !is_row(p.matrix[i]->out, FORMAT_F32))
            return fits_not(r, "%.60s is not one row", p.matrix[i]->out->name);
    }
    if (p.add && !is_row(p.add, FORMAT_F32))
        return fits_not(r, "what is added to %.60s is not one row", n->out->name);
    if (!is_row(p.out, p.glu ? FORMAT_A8 : FORMAT_F32))
        return fits_not(r, "%.60s is not one row", p.out->name);
    return !p.glu || glu_is_plain(node_params(p.glu, struct glu_params)) || fits_not(r, "%.60s limits its input", n->out->name);
}

static bool norm_fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[0], *w = n->src[1];
    if (!is_row(x, FORMAT_F32) || !is_row(w, FORMAT_F32) || w->ne[0] != x->ne[0] || !is_row(n->out, FORMAT_A8))
        return fits_not(r, "%.60s is not one row under a weight", n->out->name);
    return true;
}

/* The phases that begin with node `at`: how many nodes they take, 0 where they are not known; *n_items grows by them. */
static int take(const struct node *const *nodes, int n_all, int at, int end, struct persist_item *items, int *n_items,
                struct reason *r)
{
    const struct node *n = nodes[at], *next = at + 1 < end ? nodes[at + 1] : NULL;
    bool before_product = next && is_product(next) && (next->n_parts ? next->parts[0] : next)->src[1] == n->out;
    if (n->op == OP_RMS_NORM_MUL_QUANTIZE || n->op == OP_ROPE_KV_ATTENTION_QUANTIZE) {
        bool attends = n->op == OP_ROPE_KV_ATTENTION_QUANTIZE;
        if (!before_product)
            return fits_not(r, "no product stands behind %.60s", n->out->name);
        if (!is_private(nodes, n_all, n, next, r) || (!attends && !norm_fits(n, r)) || !product_fits(next, r))
            return 0;
        if (attends)
            items[(*n_items)++] = (struct persist_item){.attention = n};
        items[(*n_items)++] =
            (struct persist_item){.norm = attends ? NULL : n, .attention = attends ? n : NULL, .product = next};
        return 2;
    }
    if (!is_product(n))
        return fits_not(r, "%.40s (%s) is no part of a phase", n->out->name, op_get(n->op)->name);
    if (!product_fits(n, r))
        return 0;
    items[(*n_items)++] = (struct persist_item){.product = n};
    return 1;
}

int persist_find(const struct node *const *nodes, int n_all, int from, int end, struct persist_item *items, int *first, int *n,
                 struct reason *r)
{
    int n_items = 0, start = from, kept = 0; /* of the stretch at hand, behind the longest so far, which items begins with */
    struct reason why;
    *first = from;
    *n = 0;
    r->text[0] = 0;
    for (int i = from; i <= end;) {
        why.text[0] = 0;
        int taken = i < end ? take(nodes, n_all, i, end, items + kept, &n_items, &why) : 0;
        if (taken) {
            i += taken;
            continue;
        }
        if (n_items > kept) { /* room: both together are of different nodes, and an item has at least one */
            memmove(items, items + kept, (size_t)n_items * sizeof *items);
            kept = n_items;
            *first = start;
            *n = i - start;
            *r = why;
        } else if (!kept) {
            *r = why;
        }
        n_items = 0;
        start = ++i;
    }
    return kept;
}
