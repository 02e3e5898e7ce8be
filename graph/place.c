/* place.c: see place.h.
 *
 * Layers first, kernels then: a node goes where its layer's weights and cells are, and only what no kernel there can do moves
 * to the host. Choosing places by what copies would cost was the alternative; with whole layers as the unit the cheapest cut is
 * at a layer's edge anyway, and a user who asks for 20 layers on a device wants 20.
 *
 * A state that is written away from home (its op has no kernel on the device) goes to the host and back within the step, whole.
 * That is slow and shows in every trace; it is there so that one missing kernel does not keep a model from running.
 *
 * A copy moves the span of a root tensor as it is, gaps included: views of the copy then have the offsets of the original's. */
#include "graph/place.h"

#include "graph/materialise.h"
#include "graph/weights.h"
#include "ops/copy.h"

#include <stdio.h>
#include <string.h>

static struct tensor *root(struct tensor *t)
{
    return t->base ? t->base : t;
}

bool place_holds(const struct place *p, const struct tensor *t)
{
    if (!t->buffer)
        return p->backend->host;
    return t->buffer->backend == p->backend && t->buffer->device == p->device;
}

char *place_name(const struct placement *s, int place, char *text, size_t size)
{
    if (!place)
        snprintf(text, size, "host");
    else
        snprintf(text, size, "%s%d", s->list[place].backend->name, s->list[place].device);
    return text;
}

/* The place that t lies at; -1: none of the plan's. */
static int place_of(const struct placement *s, const struct tensor *t)
{
    for (int i = 0; i < s->n; i++)
        if (place_holds(&s->list[i], t))
            return i;
    return -1;
}

/* ---- before kernels are chosen */

/* A state whose memory is at one place alone; the map of the KV cells has a twin at each. */
static bool is_bound(const struct tensor *t)
{
    return t->kind == TENSOR_STATE && !t->twin;
}

void place_nodes(struct plan_state *s)
{
    const struct placement *p = s->options->placement;
    struct graph *g = s->plan->graph;
    bool layers = false;
    for (int i = 0; i < g->n_nodes; i++) {
        struct node *n = g->nodes[i];
        layers |= n->layer >= 0;
        n->place = 0;
        if (!p)
            continue;
        n->place = n->layer >= 0 && n->layer < p->n_layer ? p->layer[n->layer] : layers ? p->last : p->first;
        if (p->meets_at_host && op_get(n->op)->collective)
            n->place = 0;
        for (int j = 0; j < n->n_src; j++)
            if (n->src[j] && is_bound(root(n->src[j])))
                n->place = place_of(p, root(n->src[j])) > 0 ? place_of(p, root(n->src[j])) : 0;
    }
}

/* ---- once they are */

/* What stands for a tensor at a place. */
struct moved {
    const struct tensor *of;
    int place;
    struct tensor *is;
};

struct moving {
    struct plan_state *s;
    const struct placement *p;
    struct graph *g;
    struct moved *list; /* of the graph's arena */
    int n, cap;
    int at; /* the node at hand: copies go before it */
    struct hone_error *e;
};

static int no_memory(struct moving *m)
{
    return err_set(m->e, HONE_ERESOURCE, "no memory for the plan");
}

static struct tensor *moved_find(const struct moving *m, const struct tensor *of, int place)
{
    for (int i = m->n; i-- > 0;)
        if (m->list[i].of == of && m->list[i].place == place)
            return m->list[i].is;
    return NULL;
}

static int moved_add(struct moving *m, const struct tensor *of, int place, struct tensor *is)
{
    if (m->n == m->cap) {
        int cap = m->cap ? 2 * m->cap : 64;
        struct moved *list = arena_array(m->g->arena, (size_t)cap, sizeof *list);
        if (!list)
            return no_memory(m);
        if (m->n)
            memcpy(list, m->list, (size_t)m->n * sizeof *list);
        m->list = list;
        m->cap = cap;
    }
    m->list[m->n++] = (struct moved){of, place, is};
    return 0;
}

static struct buffer *block_of(const struct moving *m, int place)
{
    return place ? &m->s->plan->places[place].block : NULL;
}

/* A new tensor as `like`, at a place, named after both. */
static struct tensor *tensor_at(struct moving *m, const struct tensor *like, enum tensor_kind kind, int place)
{
    struct tensor *t = arena_alloc(m->g->arena, sizeof *t);
    char where[16];
    if (!t)
        return NULL;
    *t = (struct tensor){.kind = kind, .format = like->format, .layout = like->layout, .buffer = block_of(m, place)};
    memcpy(t->ne, like->ne, sizeof t->ne);
    memcpy(t->nb, like->nb, sizeof t->nb);
    place_name(m->p, place, where, sizeof where);
    snprintf(t->name, sizeof t->name, "%.*s@%s", NAME_SIZE - 18, like->name, where);
    return t;
}

/* A copy node from -> to, in the list before number `at`. */
static int copy_add(struct moving *m, struct tensor *from, struct tensor *to, int place, int layer, int at)
{
    struct graph *g = m->g;
    struct copy_params params = {.format = (int32_t)from->format};
    struct node *n = graph_insert(g, at);
    if (!n)
        return graph_error(g, m->e);
    *n = (struct node){.op = OP_COPY, .layer = layer, .out = to, .src = {from}, .n_src = 1, .place = place};
    memcpy(n->params, &params, sizeof params);
    to->producer = n;
    m->s->plan->n_copies++;
    return 0;
}

/* An input lies at the same offset in the block of each place that reads it (memory.c). */
static struct tensor *input_twin(struct moving *m, struct tensor *t, int place)
{
    struct tensor *twin = tensor_at(m, t, TENSOR_INPUT, place);
    struct plan *p = m->s->plan;
    bool known = false;
    for (int i = 0; i < p->n_inputs; i++)
        known |= p->inputs[i] == t;
    if (!twin || (!known && p->n_inputs == PLAN_INPUTS)) {
        no_memory(m);
        return NULL;
    }
    if (!known)
        p->inputs[p->n_inputs++] = t;
    twin->twin = t->twin;
    t->twin = twin;
    p->places[place].reads_inputs = true;
    return twin;
}

/* Root r where `place` has it; NULL with the error set. */
static struct tensor *bring_root(struct moving *m, struct tensor *r, int place)
{
    struct tensor *is = moved_find(m, r, place);
    if (is)
        return is;
    for (struct tensor *t = r->twin; t && !is; t = t->twin)
        if (place_holds(&m->p->list[place], t))
            is = t;
    if (!is && r->kind == TENSOR_WEIGHT) {
        if (m->s->options->dry)
            return r;
        if (weight_place(r, m->p->list[place].backend, m->p->list[place].device, NULL, m->s->options->pool, &is, m->e))
            return NULL;
    } else if (!is && r->kind == TENSOR_INPUT) {
        is = input_twin(m, r, place);
    } else if (!is) {
        is = tensor_at(m, r, TENSOR_VALUE, place);
        int from = place_of(m->p, r);
        INVARIANT(from >= 0);
        if (!is)
            no_memory(m);
        else if (copy_add(m, r, is, place ? place : from, m->g->nodes[m->at < m->g->n_nodes ? m->at : m->at - 1]->layer, m->at))
            return NULL;
        m->at++;
    }
    return is && !moved_add(m, r, place, is) ? is : NULL;
}

static struct tensor *bring(struct moving *m, struct tensor *t, int place)
{
    struct tensor *r = root(t), *is;
    if (place_holds(&m->p->list[place], r))
        return t;
    if (t == r)
        return bring_root(m, r, place);
    is = moved_find(m, t, place);
    if (is)
        return is;
    r = bring_root(m, r, place);
    is = r ? arena_alloc(m->g->arena, sizeof *is) : NULL;
    if (!is)
        return NULL;
    *is = *t;
    is->base = r;
    is->buffer = r->buffer;
    return moved_add(m, t, place, is) ? NULL : is;
}

static int bring_sources(struct moving *m, struct node *n, int place)
{
    for (int j = 0; j < n->n_src; j++) {
        struct tensor *t = n->src[j] ? bring(m, n->src[j], place) : NULL;
        if (n->src[j] && !t)
            return m->e && m->e->code ? m->e->code : no_memory(m);
        n->src[j] = t;
    }
    for (int j = 0; j < n->n_parts; j++) {
        int rc = bring_sources(m, n->parts[j], place);
        if (rc)
            return rc;
    }
    return 0;
}

/* What n (or a part) has written into a copy of a state goes back home behind the node at hand. */
static int bring_home(struct moving *m, struct node *n, int place)
{
    int rc = 0;
    for (int j = 0; j < n->n_parts && !rc; j++)
        rc = bring_home(m, n->parts[j], place);
    struct tensor *written = node_updates(n), *out = n->out;
    struct tensor *state = out->base && out->base->kind == TENSOR_STATE ? out->base : NULL;
    if (!rc && state && !place_holds(&m->p->list[place], state)) { /* out is a view of the state: now of its copy */
        out->base = moved_find(m, state, place);
        INVARIANT(out->base);
        written = out;
    }
    for (int i = 0; written && !rc && i < m->n; i++) {
        struct tensor *copy = m->list[i].is, *home = (struct tensor *)(uintptr_t)m->list[i].of;
        if (copy != root(written) || m->list[i].place != place || home->kind != TENSOR_STATE || home->base)
            continue;
        struct tensor *back = tensor_at(m, home, TENSOR_VALUE, place_of(m->p, home));
        if (!back)
            return no_memory(m);
        back->base = home;
        back->buffer = home->buffer;
        rc = copy_add(m, copy, back, place ? place : place_of(m->p, home), n->layer, m->at + 1);
        break;
    }
    return rc;
}

/* Where the values of a node, and of its parts, are written. */
static void results_at(struct moving *m, struct node *n, int place)
{
    if (!n->out->base && n->out->kind == TENSOR_VALUE)
        n->out->buffer = block_of(m, place);
    for (int j = 0; j < n->n_parts; j++)
        results_at(m, n->parts[j], place);
}

static bool reads(const struct node *n, const struct tensor *t)
{
    bool found = false;
    for (int j = 0; j < n->n_src; j++)
        found |= n->src[j] && root(n->src[j]) == t;
    for (int j = 0; j < n->n_parts; j++)
        found |= reads(n->parts[j], t);
    return found;
}

/* Logits of one token, from a kernel that writes to the host's memory as it goes: they need no copy, which nothing would run beside. */
static bool logits_straight(const struct plan *p, const struct tensor *logits)
{
    if (logits->base || logits->kind != TENSOR_VALUE || tensor_rows(logits) != 1)
        return false;
    for (int i = 0; i < p->graph->n_nodes; i++)
        if (reads(p->graph->nodes[i], logits))
            return false;
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].node->out == logits)
            return p->steps[i].kernel->writes_host;
    return false;
}

int place_copies(struct plan_state *s, struct hone_error *e)
{
    struct graph *g = s->plan->graph;
    struct moving m = {.s = s, .p = s->options->placement, .g = g, .e = e};
    if (!m.p)
        return 0;
    int rc = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (!op_get(g->nodes[i]->op)->alias)
            results_at(&m, g->nodes[i], g->nodes[i]->place);
    for (m.at = 0; m.at < g->n_nodes && !rc; m.at++) {
        struct node *n = g->nodes[m.at];
        if (op_get(n->op)->alias || (n->op == OP_COPY && n->out->base))
            continue;
        rc = bring_sources(&m, n, n->place);
        if (!rc)
            rc = bring_home(&m, n, n->place);
    }
    if (!rc && g->logits && logits_straight(s->plan, g->logits))
        g->logits->buffer = NULL;
    if (!rc && g->logits) {
        struct tensor *logits = bring(&m, g->logits, 0);
        rc = logits ? 0 : m.e && m.e->code ? m.e->code : no_memory(&m);
        g->logits = logits;
    }
    return rc;
}
