/* materialise.c: quantised activations are nodes, not a cache in a kernel keyed on a pointer (rule 1): three products of one
 * activation are three readers of one quantize node, whatever the addresses are. Packing happens here and nowhere else. */
#include "graph/materialise.h"

#include "graph/weights.h"
#include "ops/quantize.h"

#include <stdio.h>
#include <string.h>

const struct claim *claim_find(const struct plan_state *s, const struct tensor *weight, int place)
{
    for (int i = s->n_claims; i-- > 0;)
        if (s->claims[i].weight == weight && s->claims[i].place == place)
            return &s->claims[i];
    return NULL;
}

int claim_add(struct plan_state *s, struct tensor *weight, const struct layout *layout, const struct node *by, struct hone_error *e)
{
    if (s->n_claims == s->cap_claims) {
        int cap = s->cap_claims ? 2 * s->cap_claims : 256;
        struct claim *claims = arena_array(s->plan->graph->arena, (size_t)cap, sizeof *claims);
        if (!claims)
            return err_set(e, HONE_ERESOURCE, "no memory for the plan");
        if (s->n_claims)
            memcpy(claims, s->claims, (size_t)s->n_claims * sizeof *claims);
        s->claims = claims;
        s->cap_claims = cap;
    }
    s->claims[s->n_claims++] = (struct claim){weight, layout, by, by->place};
    return 0;
}

int materialise_weights(struct plan_state *s, struct hone_error *e)
{
    for (int i = 0; i < s->n_claims; i++) {
        const struct claim *c = &s->claims[i];
        if (c->place) {
            const struct place *at = &s->options->placement->list[c->place];
            struct tensor *twin;
            int rc = weight_place(c->weight, at->backend, at->device, c->layout, s->options->pool, &twin, e);
            if (rc)
                return rc;
            continue;
        }
        if (c->weight->layout == c->layout)
            continue;
        INVARIANT(s->options->pool); /* else no kernel that wants another layout fitted */
        int rc = weight_set_layout(c->weight, c->layout, s->options->pool, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* The graph's quantize node of t in this format at this place, or NULL. */
static struct node *quantized_find(const struct graph *g, const struct tensor *t, enum format_id format, int place)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == OP_QUANTIZE && g->nodes[i]->src[0] == t && g->nodes[i]->out->format == format &&
            g->nodes[i]->place == place)
            return g->nodes[i];
    return NULL;
}

/* A new quantize node right before `reader`. */
static struct node *quantized_add(struct graph *g, struct tensor *t, enum format_id format, const struct node *reader)
{
    struct quantize_params params = {.format = (int32_t)format};
    g->layer = reader->layer;
    struct tensor *out = graph_add(g, OP_QUANTIZE, &params, (struct tensor *[]){t}, 1); /* appended at the end */
    if (!out)
        return NULL;
    snprintf(out->name, sizeof out->name, "%.*s.%s", NAME_SIZE - 12, t->name, format_get(format)->name);
    out->producer->place = reader->place;
    int at = 0;
    while (g->nodes[at] != reader)
        at++;
    memmove(&g->nodes[at + 1], &g->nodes[at], (size_t)(g->n_nodes - 1 - at) * sizeof *g->nodes);
    return g->nodes[at] = out->producer;
}

static void read_instead(struct node *n, const struct tensor *from, struct tensor *to)
{
    if (n->n_src > 1 && n->src[1] == from)
        n->src[1] = to;
    for (int j = 0; j < n->n_parts; j++)
        if (n->parts[j]->op == OP_MUL_MAT)
            read_instead(n->parts[j], from, to);
}

int materialise_activations(struct plan_state *s, struct hone_error *e)
{
    struct graph *g = s->plan->graph;
    for (int i = 0; i < s->plan->n_steps; i++) {
        struct step *step = &s->plan->steps[i];
        const struct wants *w = &step->kernel->wants;
        if (!w->quantized || step->node->src[1]->format == w->activation)
            continue;
        struct tensor *x = step->node->src[1];
        struct node *q = quantized_find(g, x, w->activation, step->node->place);
        if (!q)
            q = quantized_add(g, x, w->activation, step->node);
        if (!q)
            return graph_error(g, e);
        read_instead(step->node, x, q->out);
    }
    return 0;
}
