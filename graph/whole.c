/* whole.c: asks the backends which stretches of a plan's segments they run in one launch, and keeps what they need. */
#include "graph/whole.h"

#include "base/log.h"

#include <stdio.h>

enum { WHOLE_ALIGN = 256 };

static const struct whole_api *api_of(const struct plan *p, const struct segment *g)
{
    return g->place ? p->placement->list[g->place].backend->api->wholes : NULL;
}

bool wholes_wanted(const struct plan *p, const struct gates *g)
{
    for (int i = 1; p->placement && i < p->placement->n; i++) {
        const struct backend *b = p->placement->list[i].backend;
        if (b->api->wholes && gates_persistent(g, b->name))
            return true;
    }
    return false;
}

int wholes_claim(struct plan *p, const struct gates *gates, struct hone_error *e)
{
    const struct node **nodes = arena_array(p->graph->arena, (size_t)p->n_steps, sizeof *nodes);
    const struct kernel **kernels = arena_array(p->graph->arena, (size_t)p->n_steps, sizeof *kernels);
    bool meets = false;
    if (!nodes || !kernels)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    for (int i = 0; i < p->n_steps; i++) {
        nodes[i] = p->steps[i].node;
        kernels[i] = p->steps[i].kernel;
        meets |= node_collective(nodes[i]);
    }
    int rc = 0;
    for (int i = 0; i < p->n_segments && !rc; i++) {
        struct segment *g = &p->segments[i];
        const struct whole_api *api = api_of(p, g);
        if (!api || !gates_persistent(gates, p->placement->list[g->place].backend->name))
            continue;
        if (meets)
            fits_not(&g->whole_why, "ranks meet in this plan");
        else
            rc = api->claim(p->graph->arena, nodes, kernels, p->n_steps, g->first, g->first + g->n,
                            p->placement->list[g->place].device, &g->whole, &g->whole_first, &g->whole_n, &g->whole_why, e);
    }
    return rc;
}

void wholes_measure(struct plan *p)
{
    for (int i = 0; i < p->n_segments; i++) {
        struct segment *g = &p->segments[i];
        if (!g->whole)
            continue;
        struct plan_place *at = &p->places[g->place];
        g->whole_offset = (at->bytes + WHOLE_ALIGN - 1) / WHOLE_ALIGN * WHOLE_ALIGN;
        at->bytes = g->whole_offset + api_of(p, g)->bytes(g->whole);
    }
}

void whole_prepare(const struct plan *p, struct segment *g)
{
    struct hone_error why = {0};
    if (!g->whole || g->whole_ready)
        return;
    const struct place *at = &p->placement->list[g->place];
    if (!api_of(p, g)->prepare(g->whole, at->device, at->stream, (char *)p->places[g->place].block.data + g->whole_offset,
                               &why)) {
        g->whole_ready = true;
        return;
    }
    log_line(LOG_WARN, "%s: %d nodes do not run as a whole: %s", at->backend->name, g->whole_n, why.message);
    snprintf(g->whole_why.text, sizeof g->whole_why.text, "%.120s", why.message);
    api_of(p, g)->release(g->whole);
    g->whole = NULL;
}

int wholes_check(const struct plan *p, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < p->n_segments && !rc; i++) {
        struct segment *g = &p->segments[i];
        if (!g->whole || !g->whole_ready)
            continue;
        rc = api_of(p, g)->check(g->whole, e);
        g->whole_ready = !rc;
    }
    return rc;
}

void wholes_release(struct plan *p)
{
    for (int i = 0; i < p->n_segments; i++) {
        struct segment *g = &p->segments[i];
        if (g->whole)
            api_of(p, g)->release(g->whole);
        g->whole = NULL;
    }
}
