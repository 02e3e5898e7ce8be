/* split.c: arithmetic of parts. See split.h.
 *
 * Nothing here knows what a head is. A reshape keeps a part along one axis when the axes before it make whole multiples of what
 * each index stands for; a view keeps it when the dimensions that walk along the axis cover it without gaps. What cannot be
 * kept is a false, never an approximation: the caller then leaves the tensor whole. */
#include "graph/split.h"

#include <stdlib.h>
#include <string.h>

static int by_first(const void *a, const void *b)
{
    int64_t x = ((const struct piece *)a)->first, y = ((const struct piece *)b)->first;
    return x < y ? -1 : x > y;
}

/* Sorts and joins a list in place. */
static void join(struct split *s, struct piece *list, int n, int axis)
{
    int used = 0;
    int64_t count = 0;
    qsort(list, (size_t)n, sizeof *list, by_first);
    for (int i = 0; i < n; i++) {
        struct piece p = list[i];
        if (p.count < 1)
            continue;
        struct piece *last = used ? &list[used - 1] : NULL;
        if (last && p.first <= last->first + last->count) {
            int64_t end = p.first + p.count;
            if (end > last->first + last->count)
                last->count = end - last->first;
        } else {
            list[used++] = p;
        }
    }
    for (int i = 0; i < used; i++)
        count += list[i].count;
    *s = (struct split){axis, used, list, count};
}

bool split_make(struct split *out, struct arena *a, int axis, const struct piece *pieces, int n)
{
    struct piece *list = arena_array(a, (size_t)n + 1, sizeof *list);
    if (!list)
        return false;
    if (n)
        memcpy(list, pieces, (size_t)n * sizeof *list);
    join(out, list, n, axis);
    return true;
}

bool split_union(struct split *out, struct arena *a, const struct split *x, const struct split *y)
{
    struct piece *list = arena_array(a, (size_t)x->n_pieces + (size_t)y->n_pieces + 1, sizeof *list);
    if (!list)
        return false;
    for (int i = 0; i < x->n_pieces; i++) /* one that is empty has no pieces to copy from */
        list[i] = x->pieces[i];
    for (int i = 0; i < y->n_pieces; i++)
        list[x->n_pieces + i] = y->pieces[i];
    join(out, list, x->n_pieces + y->n_pieces, x->axis);
    return true;
}

bool split_equal(const struct split *x, const struct split *y)
{
    bool same = x->axis == y->axis && x->n_pieces == y->n_pieces;
    for (int i = 0; i < x->n_pieces && same; i++)
        same = x->pieces[i].first == y->pieces[i].first && x->pieces[i].count == y->pieces[i].count;
    return same;
}

bool split_scale(struct split *out, struct arena *a, const struct split *x, int axis, int64_t by, int64_t add)
{
    struct piece *list = arena_array(a, (size_t)x->n_pieces + 1, sizeof *list);
    if (!list)
        return false;
    for (int i = 0; i < x->n_pieces; i++)
        list[i] = (struct piece){x->pieces[i].first * by + add, x->pieces[i].count * by};
    join(out, list, x->n_pieces, axis);
    return true;
}

bool split_window(struct split *out, struct arena *a, const struct split *x, int axis, int64_t first, int64_t n, int64_t by)
{
    struct piece *list = arena_array(a, (size_t)x->n_pieces + 1, sizeof *list);
    int used = 0;
    if (!list)
        return false;
    for (int i = 0; i < x->n_pieces; i++) {
        int64_t lo = x->pieces[i].first - first, hi = lo + x->pieces[i].count;
        lo = lo < 0 ? 0 : lo;
        hi = hi > n ? n : hi;
        if (lo >= hi)
            continue;
        if (lo % by || hi % by)
            return false;
        list[used++] = (struct piece){lo / by, (hi - lo) / by};
    }
    join(out, list, used, axis);
    return used > 0;
}

int64_t split_before(const struct split *x, int64_t index)
{
    int64_t n = 0;
    for (int i = 0; i < x->n_pieces && x->pieces[i].first < index; i++) {
        int64_t inside = index - x->pieces[i].first;
        n += inside < x->pieces[i].count ? inside : x->pieces[i].count;
    }
    return n;
}

bool split_aligned(const struct split *x, int64_t grain, int64_t total)
{
    for (int i = 0; i < x->n_pieces; i++) {
        int64_t end = x->pieces[i].first + x->pieces[i].count;
        if (x->pieces[i].first % grain || (end % grain && end != total))
            return false;
    }
    return true;
}

bool split_reshape(struct split *out, struct arena *a, const struct split *x, const struct tensor *from,
                   const struct tensor *to)
{
    int64_t inner = 1, inner_to = 1;
    for (int i = 0; i < x->axis; i++)
        inner *= from->ne[i];
    int64_t span = inner * from->ne[x->axis];
    for (int b = 0; b < MAX_DIMS; b++) {
        int64_t span_to = inner_to * to->ne[b];
        if (span_to == span && to->ne[b] > 1) {
            struct split elements;
            return split_scale(&elements, a, x, b, inner, 0) && split_window(out, a, &elements, b, 0, span, inner_to);
        }
        inner_to = span_to;
    }
    return false;
}

bool walk_read(struct walk *w, const struct tensor *source, const struct tensor *view, uint64_t offset)
{
    *w = (struct walk){0};
    for (int s = MAX_DIMS; s-- > 0;) {
        if (source->ne[s] < 2 || !source->nb[s])
            continue;
        w->start[s] = (int64_t)(offset / source->nb[s]);
        offset %= source->nb[s];
        if (w->start[s] >= source->ne[s])
            return false;
    }
    if (offset)
        return false;
    for (int i = 0; i < MAX_DIMS; i++) {
        w->along[i] = -1;
        if (view->ne[i] < 2)
            continue;
        for (int s = 0; s < MAX_DIMS; s++)
            if (source->ne[s] > 1 && source->nb[s] <= view->nb[i] &&
                (w->along[i] < 0 || source->nb[s] > source->nb[w->along[i]]))
                w->along[i] = s;
        if (w->along[i] < 0 || view->nb[i] % source->nb[w->along[i]])
            return false;
        w->step[i] = (int64_t)(view->nb[i] / source->nb[w->along[i]]);
    }
    return true;
}

/* The view's dimensions along a source's axis: an inner one that goes index by index, and perhaps an outer one that goes on
 * where it ends. *outer -1: none. */
static bool walkers(const struct walk *w, const struct tensor *view, int axis, int *inner, int *outer)
{
    *inner = *outer = -1;
    for (int i = 0; i < MAX_DIMS; i++) {
        if (w->along[i] != axis)
            continue;
        if (*inner < 0)
            *inner = i;
        else if (*outer < 0)
            *outer = i;
        else
            return false;
    }
    return *inner >= 0 && w->step[*inner] == 1 && (*outer < 0 || w->step[*outer] == view->ne[*inner]);
}

bool split_view(struct split *out, struct arena *a, const struct split *x, const struct walk *w, const struct tensor *view,
                bool *whole)
{
    int inner, outer;
    if (!walkers(w, view, x->axis, &inner, &outer))
        return false;
    int64_t by = outer < 0 ? 1 : view->ne[inner], n = view->ne[inner] * (outer < 0 ? 1 : view->ne[outer]);
    int axis = outer < 0 ? inner : outer;
    if (!split_window(out, a, x, axis, w->start[x->axis], n, by))
        return false;
    *whole = out->count == view->ne[axis];
    return true;
}

bool split_view_back(struct split *out, struct arena *a, const struct split *x, const struct walk *w, const struct tensor *view)
{
    int inner, outer, axis = w->along[x->axis];
    if (axis < 0 || !walkers(w, view, axis, &inner, &outer) || x->axis != (outer < 0 ? inner : outer))
        return false;
    return split_scale(out, a, x, axis, outer < 0 ? 1 : view->ne[inner], w->start[axis]);
}
