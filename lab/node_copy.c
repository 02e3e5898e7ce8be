/* node_copy.c: see node_copy.h. Roots are what memory is given to; a view is its root's memory at the same offset. Weights are
 * not brought from the device: the host has their rows, and that packing is exact is proven elsewhere (arrange.c). */
#include "lab/node_copy.h"

#include "base/mmap.h"
#include "graph/slices.h"

#include <string.h>

enum { MOST = 512 };

struct copying {
    struct arena *arena;
    void (*place)(void *user, struct tensor *copy, const struct tensor *of);
    void *user;
    const struct tensor *of[MOST];
    struct tensor *is[MOST];
    int n;
};

static struct tensor *copy_tensor(struct copying *c, const struct tensor *of)
{
    for (int i = 0; i < c->n; i++)
        if (c->of[i] == of)
            return c->is[i];
    struct tensor *is = c->n < MOST ? arena_alloc(c->arena, sizeof *is) : NULL, *base;
    if (!is)
        return NULL;
    *is = *of;
    c->of[c->n] = of;
    c->is[c->n++] = is;
    if (of->base) {
        base = copy_tensor(c, of->base);
        if (!base)
            return NULL;
        is->base = base;
    }
    c->place(c->user, is, of);
    return is;
}

static struct node *copy_node(struct copying *c, const struct node *n)
{
    struct node *is = arena_alloc(c->arena, sizeof *is);
    struct node **parts = arena_array(c->arena, (size_t)n->n_parts, sizeof *parts);
    if (!is || !parts)
        return NULL;
    *is = *n;
    is->parts = n->n_parts ? parts : NULL;
    is->out = copy_tensor(c, n->out);
    bool whole = is->out;
    for (int i = 0; i < n->n_src; i++)
        whole &= !n->src[i] || (is->src[i] = copy_tensor(c, n->src[i]));
    for (int i = 0; i < n->n_also; i++)
        whole &= (is->also[i] = copy_tensor(c, n->also[i])) != NULL;
    for (int i = 0; i < n->n_parts && whole; i++)
        whole &= (parts[i] = copy_node(c, n->parts[i])) != NULL;
    return whole ? is : NULL;
}

struct node *node_copy(struct arena *arena, const struct node *n,
                       void (*place)(void *user, struct tensor *copy, const struct tensor *of), void *user)
{
    struct arena own = {0};
    struct copying *c = arena_alloc(&own, sizeof *c);
    struct node *is = NULL;
    if (c) {
        c->arena = arena;
        c->place = place;
        c->user = user;
        is = copy_node(c, n);
    }
    arena_free(&own);
    return is;
}

/* ---- the host's picture */

/* A rank's part of a weight may have no rows at the host: they are put together once more. NULL: no memory. */
static void *rows_of(struct mirror *m, const struct tensor *w)
{
    struct hone_error ignored = {0};
    void *rows = NULL, *kept;
    if (w->rows || !w->slice)
        return (void *)(uintptr_t)w->rows;
    if (slice_gather(w, NULL, &rows, &ignored)) {
        m->short_of_memory = true;
        return NULL;
    }
    kept = arena_alloc(&m->arena, w->slice->bytes);
    if (kept)
        memcpy(kept, rows, w->slice->bytes);
    pages_free(rows, w->slice->bytes);
    m->short_of_memory |= !kept;
    return kept;
}

static void place_mirrored(void *user, struct tensor *copy, const struct tensor *of)
{
    struct mirror *m = user;
    const struct tensor *root = of->base ? of->base : of;
    copy->buffer = NULL;
    copy->twin = NULL;
    if (root->kind == TENSOR_WEIGHT) {
        if (!of->base) {
            copy->data = rows_of(m, of);
            copy->layout = NULL;
            copy->packed_bytes = 0;
        } else {
            copy->data = rows_of(m, root);
            if (copy->data)
                copy->data = (char *)copy->data + of->offset;
        }
        return;
    }
    copy->data = NULL;
    if (!of->data)
        return;
    int i = 0;
    while (i < m->n_roots && m->roots[i].root != root)
        i++;
    if (i == MOST)
        return;
    if (i == m->n_roots) {
        size_t size = tensor_nbytes(root);
        m->roots[m->n_roots++] = (struct mirrored){root, arena_alloc(&m->arena, size + 64), size};
    }
    if (m->roots[i].bytes)
        copy->data = m->roots[i].bytes + ((const char *)of->data - (const char *)root->data);
}

int mirror_make(struct mirror *m, const struct node *n, struct hone_error *e)
{
    *m = (struct mirror){0};
    m->roots = arena_array(&m->arena, MOST, sizeof *m->roots);
    m->node = m->roots ? node_copy(&m->arena, n, place_mirrored, m) : NULL;
    bool whole = m->node && !m->short_of_memory;
    for (int i = 0; i < m->n_roots; i++)
        whole &= m->roots[i].bytes != NULL;
    if (whole)
        return 0;
    mirror_free(m);
    return err_set(e, HONE_ERESOURCE, "no memory for what node %s touches", n->out->name);
}

int mirror_load(struct mirror *m, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < m->n_roots && !rc; i++) {
        const struct mirrored *r = &m->roots[i];
        const struct buffer *at = r->root->buffer;
        if (!at) {
            memcpy(r->bytes, r->root->data, r->size);
            continue;
        }
        rc = at->backend->api->copy(at->device, NULL, r->bytes, r->root->data, r->size, e);
        if (!rc)
            rc = at->backend->api->synchronise(at->device, NULL, e);
    }
    return rc;
}

void mirror_free(struct mirror *m)
{
    arena_free(&m->arena);
    *m = (struct mirror){0};
}
