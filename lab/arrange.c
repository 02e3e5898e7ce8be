/* arrange.c: a specimen as one kernel reads it, and what the reference leaves there. See specimen.h.
 *
 * What the planner materialises is made here by hand: by pack and by the format's own quantisation, never by a kernel, so that
 * one kernel's fault does not show as another's. Packing is proven each time: pack in pieces equals pack at once, restore_row
 * gives the file's bytes, unpack_row the format's values.
 *
 * The reference runs on the arrangement and not on the specimen, for it reads the quantised activation that the kernel reads
 * (rule 6); packed weights it may read in either form, since packing was proven row by row before. */
#include "lab/specimen.h"

#include "comm/comm.h"
#include "graph/materialise.h"

#include <stdlib.h>
#include <string.h>

static void load_specimen(const struct specimen *s, int data)
{
    for (int i = 0; i < s->n_regions; i++)
        region_load(&s->regions[i], data, REGION_NOTHING);
}

/* A tensor of the arrangement's own that stands for `from`. */
static struct tensor *own_tensor(struct arrangement *a, const struct tensor *from)
{
    struct tensor *t = arena_alloc(&a->arena, sizeof *t);
    if (t)
        *t = *from;
    return t;
}

static int own_region(struct arrangement *a, struct tensor *t, size_t nbytes)
{
    struct region *r = &a->regions[a->n_regions++];
    return region_place(r, &a->arena, t, REGION_SOURCE, 2 * REGION_GUARD + nbytes, REGION_GUARD, nbytes);
}

static int no_memory(const struct specimen *s, struct hone_error *e)
{
    return err_set(e, HONE_ERESOURCE, "no memory to arrange case %s", s->name);
}

/* src becomes dst in the node and its parts: everywhere, or (activation) where a product reads it. */
static void replace(struct node *n, const struct tensor *from, struct tensor *to, bool activation)
{
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] == from && (!activation || i == 1))
            n->src[i] = to;
    for (int p = 0; p < n->n_parts; p++)
        if (!activation || n->parts[p]->op == OP_MUL_MAT)
            replace(n->parts[p], from, to, activation);
}

static int copy_nodes(struct arrangement *a, const struct node *n)
{
    a->node = arena_alloc(&a->arena, sizeof *a->node);
    struct node **parts = arena_array(&a->arena, (size_t)n->n_parts, sizeof *parts);
    if (!a->node || !parts)
        return -1;
    *a->node = *n;
    for (int i = 0; i < n->n_parts; i++) {
        parts[i] = arena_alloc(&a->arena, sizeof *parts[i]);
        if (!parts[i])
            return -1;
        *parts[i] = *n->parts[i];
    }
    a->node->parts = n->n_parts ? parts : NULL;
    return 0;
}

static int quantise(struct arrangement *a, const struct specimen *s, enum format_id format, struct hone_error *e)
{
    struct tensor *x = a->node->src[1], *q = own_tensor(a, x);
    if (x->format != FORMAT_F32 || !format_get(format)->pack || !tensor_shape_fits(format, x->ne))
        return err_set(e, HONE_EFAULT, "case %s: its activation, %s, cannot become %s", s->name, format_get(x->format)->name,
                       format_get(format)->name);
    float *row = malloc(sizeof *row * (size_t)(x->ne[0] + 1));
    if (q) {
        tensor_shape(q, format, MAX_DIMS, x->ne);
        q->base = NULL;
        q->offset = 0;
        q->kind = TENSOR_VALUE;
    }
    if (!row || !q || own_region(a, q, tensor_nbytes(q))) {
        free(row);
        return no_memory(s, e);
    }
    for (int d = 0; d < s->n_data; d++) {
        load_specimen(s, d);
        for (int64_t r = 0; r < tensor_rows(x); r++) {
            int64_t i[3];
            tensor_row_index(x, r, i);
            tensor_write_row(q, i[0], i[1], i[2], tensor_read_row(x, i[0], i[1], i[2], row));
        }
        struct region *own = &a->regions[a->n_regions - 1];
        memcpy(own->before[d], own->bytes, own->size);
    }
    free(row);
    replace(a->node, x, q, true);
    a->activation = (int)format;
    return 0;
}

/* restore_row gives the file's bytes, unpack_row the format's values. */
static int prove_rows(const struct tensor *w, const struct layout *l, const void *packed, struct hone_error *e)
{
    const struct format *f = format_get(w->format);
    size_t bytes = format_row_bytes(f, w->ne[0]), n = (size_t)w->ne[0];
    unsigned char *restored = malloc(bytes + 1);
    float *values = malloc(2 * n * sizeof *values + 1);
    int rc = restored && values ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a row of a weight");
    for (int64_t r = 0; r < tensor_rows(w) && !rc; r++) {
        const unsigned char *row = (const unsigned char *)w->rows + (size_t)r * bytes;
        memset(restored, REGION_NOTHING, bytes);
        l->restore_row(packed, restored, w->ne[0], tensor_rows(w), r);
        for (size_t i = 0; i < bytes && !rc; i++)
            if (restored[i] != row[i])
                rc = err_set(e, HONE_ECHECK, "layout %s: packing is not exact: row %lld comes back with another byte %zu",
                             l->name, (long long)r, i);
        l->unpack_row(packed, values, w->ne[0], tensor_rows(w), r);
        f->unpack(row, values + n, w->ne[0]);
        for (size_t i = 0; i < n && !rc; i++)
            if (memcmp(&values[i], &values[n + i], sizeof *values) != 0)
                rc = err_set(e, HONE_ECHECK, "layout %s: unpack_row reads row %lld, column %zu as %g, not %g", l->name,
                             (long long)r, i, (double)values[i], (double)values[n + i]);
    }
    free(restored);
    free(values);
    return rc;
}

/* Packs in three pieces, as threads do, and at once: into the region, and into memory that is thrown away. */
static int pack_twice(const struct tensor *w, const struct layout *l, struct region *to, struct hone_error *e)
{
    int64_t rows = tensor_rows(w), lo, hi;
    l->pack(w->rows, to->bytes + to->first, w->ne[0], rows, 0, rows);
    unsigned char *pieces = malloc(to->span + 1);
    if (!pieces)
        return err_set(e, HONE_ERESOURCE, "no memory to pack a weight of %zu bytes", to->span);
    memcpy(pieces, to->bytes + to->first, to->span); /* what lies behind the last row may be anything */
    for (int ith = 2; ith >= 0; ith--) {
        worker_range(&(struct worker){.ith = ith, .nth = 3}, rows, l->grain, &lo, &hi);
        if (lo < hi)
            l->pack(w->rows, pieces, w->ne[0], rows, lo, hi - lo);
    }
    int rc = 0;
    if (memcmp(pieces, to->bytes + to->first, to->span) != 0)
        rc =
            err_set(e, HONE_ECHECK, "layout %s: packed in pieces of %d rows it differs from packed at once", l->name, l->grain);
    for (size_t i = 0; i < to->size && !rc; i++)
        if ((i < to->first || i >= to->first + to->span) && to->bytes[i] != REGION_NOTHING)
            rc = err_set(e, HONE_ECHECK, "layout %s: packing writes byte %lld of a copy of %zu bytes", l->name,
                         (long long)i - (long long)to->first, to->span);
    free(pieces);
    return rc;
}

static int pack(struct arrangement *a, const struct specimen *s, struct tensor *w, const struct layout *l, struct hone_error *e)
{
    struct tensor *packed = own_tensor(a, w);
    size_t bytes = l->bytes(w->ne[0], tensor_rows(w));
    if (!packed || own_region(a, packed, bytes))
        return no_memory(s, e);
    packed->layout = l;
    packed->packed_bytes = bytes;
    struct region *r = &a->regions[a->n_regions - 1];
    int rc = 0;
    for (int d = 0; d < s->n_data && !rc; d++) {
        load_specimen(s, d);
        memset(r->bytes, REGION_NOTHING, r->size);
        memset(r->bytes + r->first, 0, r->span); /* as fresh pages are */
        rc = pack_twice(w, l, r, e);
        if (!rc)
            rc = prove_rows(w, l, packed->data, e);
        memcpy(r->before[d], r->bytes, r->size);
    }
    replace(a->node, w, packed, false);
    return rc;
}

/* The layout in which k gets weight w; NULL: rows. */
static const struct layout *layout_for(const struct kernel *k, const struct tensor *w, const struct layout *any)
{
    const struct layout *l = any;
    struct reason r;
    if (!k->wants.any_layout)
        return kernel_layout(k, w, &l, &r) ? l : NULL;
    return l && l->format == w->format && !(l->refuses && l->refuses(w->ne[0], tensor_rows(w))) ? l : NULL;
}

int specimen_arrange(struct arrangement *a, const struct specimen *s, const struct kernel *k, const struct layout *layout,
                     struct hone_error *e)
{
    memset(a, 0, sizeof *a);
    a->activation = -1;
    const struct node *n = s->node;
    int rc = copy_nodes(a, n) ? no_memory(s, e) : 0;
    for (int i = 0; i < n->n_src && !rc; i++) {
        struct tensor *w = n->src[i];
        const struct layout *l = w && weight_is_matrix(w) && a->node->src[i] == w ? layout_for(k, w, layout) : NULL;
        if (l)
            rc = pack(a, s, w, l, e);
    }
    if (!rc && k->wants.quantized && n->n_src > 1 && n->src[1]->format != k->wants.activation)
        rc = quantise(a, s, k->wants.activation, e);
    if (rc)
        arrangement_free(a);
    return rc;
}

void arrangement_free(struct arrangement *a)
{
    regions_free(a->regions, a->n_regions);
    arena_free(&a->arena);
    memset(a, 0, sizeof *a);
}

/* ---- the reference */

struct reference_job {
    const struct node *node;
    struct pool *pool;
    char *scratch;
    size_t stride;
    struct comm *comm;
};

int specimen_group(struct comm **c, const struct node *n, const struct pool *pool, struct hone_error *e)
{
    struct comm_params p = {.n_workers = pool_size(pool)};
    *c = NULL;
    return node_collective(n) ? comm_rehearsal_create(c, SPECIMEN_RANKS, &p, e) : 0;
}

static void reference_worker(void *arg, int ith, int nth)
{
    const struct reference_job *r = arg;
    struct worker w = {ith, nth, r->pool, r->scratch + (size_t)ith * r->stride, r->stride, r->comm};
    node_reference(r->node, &w);
}

int reference_run(const struct node *n, struct pool *pool, struct hone_error *e)
{
    struct reference_job r = {.node = n, .pool = pool, .stride = (node_scratch(n) + 127) / 64 * 64};
    r.scratch = aligned_alloc(64, r.stride * (size_t)pool_size(pool));
    if (!r.scratch)
        return err_set(e, HONE_ERESOURCE, "no memory for the reference of %s", op_get(n->op)->name);
    int rc = specimen_group(&r.comm, n, pool, e);
    if (!rc)
        pool_run(pool, reference_worker, &r);
    comm_free(r.comm);
    free(r.scratch);
    return rc;
}

int specimen_expect(struct specimen *s, struct pool *pool, const struct arrangement *a, struct hone_error *e)
{
    int activation = a->activation >= 0 ? a->activation : N_FORMATS; /* N_FORMATS: as it is */
    if (s->expected_for == activation)
        return 0;
    int rc = 0;
    for (int d = 0; d < s->n_data && !rc; d++) {
        load_specimen(s, d);
        for (int i = 0; i < a->n_regions; i++)
            memcpy(a->regions[i].bytes, a->regions[i].before[d], a->regions[i].size);
        rc = reference_run(a->node, pool, e);
        for (int i = 0; i < s->n_regions && !rc; i++)
            if (s->regions[i].element)
                memcpy(s->regions[i].expected[d], s->regions[i].bytes, s->regions[i].size);
    }
    s->expected_for = rc ? -1 : activation;
    return rc;
}
