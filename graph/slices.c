/* slices.c: see slices.h. Gathering copies runs of whole blocks, and gives the whole weight's mapped pages back to the system:
 * a rank keeps its own part in memory and nothing else. A packing routine that reads rows through a list of runs was the
 * alternative: each of the packed layouts would have to know of it, to save a copy that lives for one weight at a time. */
#include "graph/slices.h"

#include "base/mmap.h"

#include <stdio.h>
#include <string.h>

/* Runs along the last axis that has any length lie together in the file. */
static bool lies_together(const struct tensor *whole, const struct split *split)
{
    for (int i = split->axis + 1; i < MAX_DIMS; i++)
        if (whole->ne[i] != 1)
            return false;
    return split->n_pieces == 1;
}

static size_t bytes_along(const struct tensor *whole, int axis, int64_t n)
{
    return axis ? (size_t)n * whole->nb[axis] : (size_t)(n / format_get(whole->format)->block) * whole->nb[0];
}

void slice_init(struct tensor *t, struct slice *s, const struct tensor *whole, const struct split *split)
{
    int64_t ne[MAX_DIMS];
    memcpy(ne, whole->ne, sizeof ne);
    ne[split->axis] = split->count;
    *t = (struct tensor){.kind = TENSOR_WEIGHT, .slice = s};
    tensor_shape(t, whole->format, MAX_DIMS, ne);
    snprintf(t->name, sizeof t->name, "%s", whole->name);
    *s = (struct slice){.whole = whole, .split = *split, .bytes = tensor_nbytes(t)};
    if (lies_together(whole, split)) {
        t->rows = (const char *)whole->rows + bytes_along(whole, split->axis, split->pieces[0].first);
        t->data = (void *)(uintptr_t)t->rows;
    }
}

struct gathering {
    const struct tensor *t;
    char *to;
};

/* Index of the whole tensor along its axis of the i-th that the part has. */
static int64_t index_of(const struct split *s, int64_t i)
{
    int p = 0;
    while (i >= s->pieces[p].count)
        i -= s->pieces[p++].count;
    return s->pieces[p].first + i;
}

static void gather_row(const struct tensor *t, char *to, const int64_t at[3])
{
    const struct slice *s = t->slice;
    const struct tensor *whole = s->whole;
    int64_t from[3] = {at[0], at[1], at[2]};
    if (s->split.axis)
        from[s->split.axis - 1] = index_of(&s->split, at[s->split.axis - 1]);
    const char *row = (const char *)whole->rows + (size_t)from[0] * whole->nb[1] + (size_t)from[1] * whole->nb[2] +
                      (size_t)from[2] * whole->nb[3];
    if (s->split.axis) {
        memcpy(to, row, t->nb[1]);
        return;
    }
    for (int i = 0; i < s->split.n_pieces; i++) {
        size_t n = bytes_along(whole, 0, s->split.pieces[i].count);
        memcpy(to, row + bytes_along(whole, 0, s->split.pieces[i].first), n);
        to += n;
    }
}

static void gather_share(void *arg, int ith, int nth)
{
    const struct gathering *g = arg;
    int64_t lo, hi;
    worker_range(&(struct worker){.ith = ith, .nth = nth}, tensor_rows(g->t), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        int64_t at[3];
        tensor_row_index(g->t, row, at);
        gather_row(g->t, g->to + (size_t)row * g->t->nb[1], at);
    }
}

int slice_gather(const struct tensor *t, struct pool *pool, void **rows, struct hone_error *e)
{
    const struct slice *s = t->slice;
    struct gathering g = {t, pages_alloc(s->bytes)};
    if (!g.to)
        return err_set(e, HONE_ERESOURCE, "no memory for a part of weight %s: %.1f MiB", t->name, (double)s->bytes / 0x1p20);
    if (pool)
        pool_run(pool, gather_share, &g);
    else
        gather_share(&g, 0, 1);
    const struct tensor *whole = s->whole;
    pages_forget(whole->rows, format_row_bytes(format_get(whole->format), whole->ne[0]) * (size_t)tensor_rows(whole));
    *rows = g.to;
    return 0;
}
