/* memory.c: laying out the values of a step. A value lives from the node that writes it to the last node that reads it or a view
 * of it; inputs and the logits live for the whole step. Offsets are given in running order, best fit among the gaps
 * that dead values left. The block for SmolLM2's decode step is 4 % of what separate buffers would take. An optimal packing
 * (offline, largest first) saves a few per cent more and makes the block's size jump when one shape changes. */
#include "graph/memory.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, DEVICE_ALIGNMENT = 256 };

struct gap {
    size_t offset, size;
};

struct space {
    struct gap *gaps; /* by offset; the last one is open-ended */
    int n;
    size_t high; /* bytes used at most */
};

static size_t space_take(struct space *s, size_t size)
{
    int best = -1;
    for (int i = 0; i < s->n; i++)
        if (s->gaps[i].size >= size && (best < 0 || s->gaps[i].size < s->gaps[best].size))
            best = i;
    struct gap *g = &s->gaps[best]; /* the open-ended gap always fits */
    size_t offset = g->offset;
    g->offset += size;
    g->size -= size;
    if (!g->size) {
        memmove(g, g + 1, (size_t)(s->n - best - 1) * sizeof *g);
        s->n--;
    }
    if (offset + size > s->high)
        s->high = offset + size;
    return offset;
}

static void space_give(struct space *s, size_t offset, size_t size)
{
    int i = 0;
    while (s->gaps[i].offset < offset)
        i++;
    bool joins_before = i > 0 && s->gaps[i - 1].offset + s->gaps[i - 1].size == offset;
    bool joins_after = offset + size == s->gaps[i].offset;
    if (joins_before && joins_after) {
        s->gaps[i - 1].size += size + s->gaps[i].size;
        memmove(&s->gaps[i], &s->gaps[i + 1], (size_t)(s->n - i - 1) * sizeof *s->gaps);
        s->n--;
    } else if (joins_before) {
        s->gaps[i - 1].size += size;
    } else if (joins_after) {
        s->gaps[i].offset = offset;
        s->gaps[i].size += size;
    } else {
        memmove(&s->gaps[i + 1], &s->gaps[i], (size_t)(s->n - i) * sizeof *s->gaps);
        s->gaps[i] = (struct gap){offset, size};
        s->n++;
    }
}

static struct tensor *root(struct tensor *t)
{
    return t->base ? t->base : t;
}

static bool placed_here(const struct tensor *t)
{
    return !t->base && (t->kind == TENSOR_VALUE || t->kind == TENSOR_INPUT);
}

static size_t place_size(const struct tensor *t)
{
    size_t bytes = tensor_nbytes(t);
    return (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT; /* at least one unit, so that no two values share an address */
}

struct lifetime {
    struct tensor *tensor;
    int first, last; /* the steps that touch it first and last */
};

/* Every tensor that a node touches, sources before results; of a fused node those of its parts too, so that its reference, or the parts
 * in its place, can run whenever it could. */
static void node_visit(const struct node *n, void *user, void (*visit)(void *user, struct tensor *t))
{
    for (int j = 0; j < n->n_src; j++)
        if (n->src[j])
            visit(user, n->src[j]);
    for (int j = 0; j < n->n_parts; j++)
        node_visit(n->parts[j], user, visit);
    visit(user, n->out);
}

struct survey {
    struct lifetime *list;
    int n, step;
};

static void survey_tensor(void *user, struct tensor *t)
{
    struct survey *s = user;
    t = root(t);
    if (!placed_here(t))
        return;
    int k = s->n;
    while (k > 0 && s->list[k - 1].tensor != t)
        k--;
    if (k)
        s->list[k - 1].last = s->step;
    else
        s->list[s->n++] = (struct lifetime){t, s->step, s->step};
}

/* What a rank brings to a collective is read by the others where it lies, until the next collective is over (comm/comm.h); of the last one, until
 * the next step's ranks have met. */
static void live_until_read(struct survey *s, const struct plan *p)
{
    struct tensor *brought = NULL; /* to the collective before */
    for (int i = 0; i <= p->n_steps; i++) {
        if (i < p->n_steps && !node_collective(p->steps[i].node))
            continue;
        for (int k = 0; k < s->n && brought; k++)
            if (s->list[k].tensor == brought && s->list[k].last < i)
                s->list[k].last = i;
        if (i < p->n_steps)
            brought = root(p->steps[i].node->src[0]);
    }
}

/* Nodes that run as a whole read and write in one go what they would one behind the other (backend.h): what a node reads must still be
 * there while the next one writes. */
static void live_longer(struct survey *s, const struct plan *p)
{
    for (int k = 0; k < s->n; k++)
        s->list[k].last += s->list[k].last + 1 < p->n_steps;
}

/* Of the tensor's place: 0 is the host. */
static int place_of(const struct plan *p, const struct tensor *t)
{
    for (int i = 1; p->placement && i < p->placement->n; i++)
        if (t->buffer == &p->places[i].block)
            return i;
    return 0;
}

/* Inputs first: they are filled before the step and live through it. At other places they have the same offsets as at the host. */
static void inputs_plan(struct plan *p, struct survey *s, struct space *spaces)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].tensor->kind == TENSOR_INPUT && !place_of(p, s->list[i].tensor))
            s->list[i].tensor->offset = space_take(&spaces[0], place_size(s->list[i].tensor));
    p->input_bytes = spaces[0].high;
    for (int i = 0; i < p->n_inputs; i++)
        for (struct tensor *t = p->inputs[i]->twin; t; t = t->twin)
            t->offset = p->inputs[i]->offset;
    for (int i = 1; p->placement && i < p->placement->n; i++)
        if (p->places[i].reads_inputs)
            space_take(&spaces[i], (p->input_bytes + DEVICE_ALIGNMENT - 1) / DEVICE_ALIGNMENT * DEVICE_ALIGNMENT);
}

static void values_plan(struct plan *p, const struct survey *s, struct space *spaces)
{
    const struct tensor *logits = p->graph->logits ? root(p->graph->logits) : NULL;
    /* The list is in order of first appearance, which for a value is the step that writes it. */
    for (int i = 0, next = 0; i < p->n_steps; i++) {
        for (; next < s->n && s->list[next].first == i; next++)
            if (s->list[next].tensor->kind == TENSOR_VALUE)
                s->list[next].tensor->offset =
                    space_take(&spaces[place_of(p, s->list[next].tensor)], place_size(s->list[next].tensor));
        for (int k = 0; k < next; k++)
            if (s->list[k].last == i && s->list[k].tensor->kind == TENSOR_VALUE && s->list[k].tensor != logits)
                space_give(&spaces[place_of(p, s->list[k].tensor)], s->list[k].tensor->offset, place_size(s->list[k].tensor));
    }
}

int memory_plan(struct plan *p, struct hone_error *e)
{
    size_t n_max = 1 + PLAN_INPUTS;
    int n_places = p->placement ? p->placement->n : 1, rc = 0;
    for (int i = 0; i < p->n_steps; i++)
        n_max += (size_t)(p->steps[i].node->n_parts + 1) * (MAX_SRC + 1);
    struct survey s = {.list = calloc(n_max, sizeof *s.list)};
    struct space spaces[MAX_PLACES] = {{0}};
    bool room = s.list;
    for (int i = 0; i < n_places; i++) {
        spaces[i] = (struct space){.gaps = calloc(n_max + 1, sizeof *spaces[i].gaps), .n = 1};
        room &= spaces[i].gaps != NULL;
    }
    if (!room) {
        rc = err_set(e, HONE_ERESOURCE, "no memory to lay out %d steps", p->n_steps);
        goto done;
    }
    for (int i = 0; i < n_places; i++)
        spaces[i].gaps[0] = (struct gap){0, SIZE_MAX / 2};
    for (int i = 0; i < p->n_inputs; i++) /* maybe read at other places alone; filled at the host in any case */
        survey_tensor(&s, p->inputs[i]);
    for (s.step = 0; s.step < p->n_steps; s.step++)
        node_visit(p->steps[s.step].node, &s, survey_tensor);
    live_until_read(&s, p);
    if (p->wholes)
        live_longer(&s, p);
    inputs_plan(p, &s, spaces);
    values_plan(p, &s, spaces);
    p->value_bytes = spaces[0].high;
    for (int i = 1; i < n_places; i++)
        p->places[i].bytes = spaces[i].high;
done:
    free(s.list);
    for (int i = 0; i < n_places; i++)
        free(spaces[i].gaps);
    return rc;
}

static void bind_tensor(void *user, struct tensor *t)
{
    const struct plan *p = user;
    struct tensor *r = root(t);
    char *block = r->buffer ? r->buffer->data : p->block; /* NULL: that place is bound later */
    if (placed_here(r))
        r->data = block ? block + r->offset : NULL;
    if (t->base)
        t->data = r->data ? (char *)r->data + t->offset : NULL;
}

void memory_bind(struct plan *p)
{
    p->shared = (char *)p->block + p->shared_offset;
    for (int i = 0; i < p->n_inputs; i++)
        bind_tensor(p, p->inputs[i]);
    for (int i = 0; i < p->n_steps; i++)
        node_visit(p->steps[i].node, p, bind_tensor);
}
