/* plan.c: choosing kernels. For each node the candidates are the rows of its op, plainest first; the last that fits wins, unless a
 * gate names one. Every candidate that was not taken keeps its reason, so that inspect and trace can answer "why this one".
 * A cost model was the alternative; it hides the order in a number, where the table shows it.
 *
 * Weights claim layouts: the first node that wants a weight packed decides for the plan, later ones that want it otherwise do
 * not fit and say so. References and lookups read any layout and claim nothing. */
#include "graph/plan.h"

#include "base/hash.h"
#include "base/log.h"
#include "graph/fuse.h"
#include "graph/guards.h"
#include "graph/materialise.h"
#include "graph/memory.h"
#include "graph/weights.h"
#include "graph/whole.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

char *kernel_name(const struct backend *b, const struct kernel *k, char *text, size_t size)
{
    snprintf(text, size, "%s_%s_%s", b->name, op_get(k->op)->name, k->variant);
    return text;
}

bool kernel_layout(const struct kernel *k, const struct tensor *w, const struct layout **layout, struct reason *r)
{
    *layout = k->wants.layout_for ? k->wants.layout_for(w->format) : k->wants.layout;
    if (!*layout)
        return true; /* it reads this one in rows (a bias, say), or its `fits` refuses it */
    if ((*layout)->format != w->format)
        return fits_not(r, "the weight is %s, not %s", format_get(w->format)->name, format_get((*layout)->format)->name);
    const char *refusal = (*layout)->refuses ? (*layout)->refuses(w->ne[0], w->ne[1] * w->ne[2] * w->ne[3]) : NULL;
    return !refusal || fits_not(r, "%s: %s", (*layout)->name, refusal);
}

/* A view names bytes of the file's order: a weight that has one in this graph stays in rows. */
static bool weight_viewed(const struct graph *g, const struct tensor *w)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (op_get(g->nodes[i]->op)->alias && g->nodes[i]->out->base == w)
            return true;
    return false;
}

/* Could every weight of n be brought into the layout that k wants, given what the plan's other nodes claim? */
static bool layouts_fit(const struct plan_state *s, const struct kernel *k, const struct node *n, struct reason *r)
{
    if (k->wants.any_layout)
        return true;
    for (int j = 0; j < n->n_src; j++) {
        const struct tensor *w = n->src[j];
        const struct layout *layout;
        if (!w || !weight_is_matrix(w))
            continue;
        if (!kernel_layout(k, w, &layout, r))
            return false;
        if (layout && weight_viewed(s->plan->graph, w))
            return fits_not(r, "%s has views, which need rows", w->name);
        const struct claim *c = claim_find(s, w, n->place);
        if (c && c->layout != layout)
            return fits_not(r, "%s is wanted as %s by %s", w->name, c->layout ? c->layout->name : "rows", c->by->out->name);
        if (!s->options->pool && !s->options->dry && layout != (n->place ? NULL : w->layout))
            return fits_not(r, "%s is not packed as %s", w->name, layout ? layout->name : "rows");
    }
    return true;
}

static bool kernel_fits(const struct plan_state *s, const struct backend *b, const struct kernel *k, const struct node *n,
                        struct reason *r)
{
    unsigned lacking = k->needs & ~b->features(plan_device(s, n));
    if (lacking)
        return fits_not(r, "the device lacks %s", b->feature_name(lacking & -lacking));
    if (s->activations_made && k->wants.quantized && n->src[1]->format != k->wants.activation)
        return fits_not(r, "%s is %s for good", n->src[1]->name, format_get(n->src[1]->format)->name);
    return (!k->fits || k->fits(n, r)) && layouts_fit(s, k, n, r);
}

static int claim_layouts(struct plan_state *s, const struct kernel *k, const struct node *n, struct hone_error *e)
{
    for (int j = 0; j < n->n_src && !k->wants.any_layout; j++) {
        struct tensor *w = n->src[j];
        const struct layout *layout;
        struct reason unused;
        if (!w || !weight_is_matrix(w) || claim_find(s, w, n->place) || !kernel_layout(k, w, &layout, &unused))
            continue;
        int rc = claim_add(s, w, layout, n, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* Fills s->kernel, gate and passed. NULL kernel: nothing fits. */
static int step_candidates(struct plan_state *ps, struct step *s, const struct gate *gate, struct hone_error *e)
{
    int n_kernels, n = 0;
    const struct kernel *const *kernels = s->backend->kernels(&n_kernels);
    for (int i = 0; i < n_kernels; i++)
        n += kernels[i]->op == s->node->op;
    s->passed = arena_array(ps->plan->graph->arena, (size_t)n, sizeof *s->passed);
    if (!s->passed)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    for (int i = n_kernels; i-- > 0;) { /* fastest first; the taken one is dropped from the list below */
        const struct kernel *k = kernels[i];
        if (k->op != s->node->op)
            continue;
        struct passed_over *candidate = &s->passed[s->n_passed++];
        candidate->kernel = k;
        bool named = gate && !strcmp(gate->variant, k->variant);
        if (k->by_name_only && !named)
            fits_not(&candidate->reason, "a plug-in's kernel runs only where a gate names it");
        if (candidate->reason.text[0] || !kernel_fits(ps, s->backend, k, s->node, &candidate->reason))
            continue;
        candidate->fits = true;
        if (named && s->gate != gate) {
            s->kernel = k;
            s->gate = gate;
        } else if (!s->kernel) {
            s->kernel = k;
        }
    }
    n = 0;
    for (int i = 0; i < s->n_passed; i++) {
        if (s->passed[i].kernel == s->kernel)
            continue;
        if (!s->passed[i].reason.text[0] && s->kernel)
            snprintf(s->passed[i].reason.text, sizeof s->passed[i].reason.text, "%s %.80s",
                     s->gate ? "the gate names" : "slower than", s->kernel->variant);
        s->passed[n++] = s->passed[i];
    }
    s->n_passed = n;
    return 0;
}

/* A gate's variant did not get the node: an error under strict, else a warning and a count. */
static int gate_unfit(struct plan_state *ps, const struct step *s, const struct gate *gate, struct hone_error *e)
{
    const char *why = "there is no such kernel";
    for (int i = 0; i < s->n_passed; i++)
        if (!strcmp(s->passed[i].kernel->variant, gate->variant))
            why = s->passed[i].reason.text;
    ps->plan->n_gates_unfit++;
    if (ps->options->strict)
        return err_set(e, HONE_EUSAGE, "%s: gate '%s' at node %s: %s", gate->source, gate->text, s->node->out->name, why);
    log_line(LOG_WARN, "gate '%s' passed over at node %s: %s", gate->text, s->node->out->name, why);
    return 0;
}

/* A node to which no kernel of its place's backend fits, or that a gate puts back on the reference, goes to the host. */
static int step_move(struct plan_state *ps, struct step *s, const struct gate *gate, struct hone_error *e)
{
    int n;
    bool asked = gate && !strcmp(gate->variant, "ref");
    const struct reason *why = s->n_passed ? &s->passed[0].reason : NULL;
    char *text = arena_alloc(ps->plan->graph->arena, 256);
    if (!text)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    if (asked)
        snprintf(text, 256, "%s: %.200s", gate->source, gate->text);
    else
        snprintf(text, 256, "%s has no kernel: %s%s%.100s", s->backend->name, why ? s->passed[0].kernel->variant : "none of this op",
                 why ? ": " : "", why ? why->text : "");
    if (!asked && ps->options->strict)
        return err_set(e, HONE_EUSAGE, "node %s (%s): %s", s->node->out->name, op_get(s->node->op)->name, text);
    if (!asked)
        log_line(LOG_INFO, "node %s (%s) runs on the host: %s", s->node->out->name, op_get(s->node->op)->name, text);
    ps->plan->n_moved += !asked;
    s->node->place = 0;
    *s = (struct step){.node = s->node, .backend = backend_list(&n)[0], .moved = text};
    return 0;
}

static int step_choose(struct plan_state *ps, struct step *s, struct hone_error *e)
{
    const struct gate *gate = gates_for_node(ps->options->gates, s->backend->name, s->node);
    bool reference = s->node->place && gate && !strcmp(gate->variant, "ref");
    int rc = reference ? 0 : step_candidates(ps, s, gate, e);
    if (!rc && s->node->place && !s->kernel) {
        rc = step_move(ps, s, gate, e);
        gate = reference ? gate : gates_for_node(ps->options->gates, s->backend->name, s->node);
        rc = rc ? rc : step_candidates(ps, s, gate, e);
    }
    if (rc)
        return rc;
    if (!s->kernel)
        return err_set(e, HONE_EFAULT, "node %s: no kernel of op %s fits, not even the reference", s->node->out->name,
                       op_get(s->node->op)->name);
    rc = claim_layouts(ps, s->kernel, s->node, e);
    return rc ? rc : gate && !s->gate ? gate_unfit(ps, s, gate, e) : 0;
}

/* Whether a kernel faster than the reference, or one that a gate names, would take the fused node. */
static bool fused_runs(struct plan_state *ps, struct node *fused, struct reason *r)
{
    const struct backend *b = plan_backend(ps, fused);
    struct step s = {.node = fused, .backend = b};
    const struct gate *gate = gates_for_node(ps->options->gates, b->name, fused);
    if (gate && !strcmp(gate->variant, "ref")) {
        if (gate->op == (int)fused->op)
            return true; /* asked for by name: the fused node on its reference */
        return fits_not(r, "%s: %.90s", gate->source, gate->text);
    }
    if (step_candidates(ps, &s, gate, NULL))
        return fits_not(r, "no memory");
    if (s.kernel && strcmp(s.kernel->variant, "ref") != 0)
        return true;
    if (s.n_passed)
        return fits_not(r, "%s: %.90s", s.passed[0].kernel->variant, s.passed[0].reason.text);
    return fits_not(r, "no kernel");
}

/* Parts that a gate puts back on the reference keep the whole from fusing: skip=<op> means that op everywhere. */
static bool parts_skipped(const struct plan_state *ps, const struct node *fused, struct reason *r)
{
    const struct backend *b = plan_backend(ps, fused);
    for (int j = 0; j < fused->n_parts; j++) {
        const struct gate *gate = gates_for_node(ps->options->gates, b->name, fused->parts[j]);
        if (gate && gate->op >= 0)
            return !fits_not(r, "%.20s: %.60s names its part %.30s", gate->source, gate->text, fused->parts[j]->out->name);
    }
    return false;
}

/* What the helper will refuse the planner refuses first. */
static bool guarded(const struct plan_state *ps, const struct node *fused, struct reason *r)
{
    return !node_collective(fused) || guards_hold(ps->plan->graph, fused, ps->options->gates, -1, r);
}

/* What may decline: of a fused collective that something more is folded into it stays the collective's. */
static int fusion_of(const struct graph *g, const struct node *fused, int f)
{
    for (int i = 0; i < g->n_nodes && node_collective(fused); i++)
        if (g->nodes[i]->n_parts && g->nodes[i]->parts[0] == fused->parts[0])
            return g->nodes[i]->fusion;
    return f;
}

static int fuse_pass(struct plan_state *ps, enum fuse_stage stage, struct hone_error *e)
{
    struct graph *g = ps->plan->graph;
    for (int f = 0; f < N_FUSIONS; f++) {
        const struct fusion *fusion = fusion_get((enum fusion_id)f);
        struct reason *miss = &ps->plan->fuse_misses[f];
        if (fusion->stage != stage)
            continue;
        if (!gates_fusion(ps->options->gates, GATE_FUSE, f, fusion->on)) {
            fits_not(miss, "off by its gate");
            continue;
        }
        if (ps->options->fuse_off & 1u << f) {
            fits_not(miss, "declined this step");
            continue;
        }
        for (int i = 0; i < g->n_nodes; i++) {
            struct reason r = {""};
            struct node *fused = fuse_try(g, fusion, i, &r);
            if (fused && guarded(ps, fused, &r) && !parts_skipped(ps, fused, &r) && fused_runs(ps, fused, &r)) {
                fused->fusion = fusion_of(g, fused, f);
                fuse_apply(g, fused);
                ps->plan->fuse_hits[f]++;
                i -= fused->n_parts - 1; /* the graph got shorter; alias nodes in between make this a step back at most */
                i = i < 0 ? 0 : i;
            } else if (r.text[0]) {
                *miss = r;
            }
        }
    }
    return graph_error(g, e);
}

static const struct buffer *buffer_of(const struct tensor *t)
{
    return t->base ? t->base->buffer : t->buffer;
}

/* A copy between places: there is one kernel that can. */
static bool step_transfers(const struct plan_state *ps, struct step *s)
{
    if (!ps->copies_made || s->node->op != OP_COPY || !s->node->place)
        return false;
    const struct buffer *from = buffer_of(s->node->src[0]), *to = buffer_of(s->node->out);
    if (from && to && from->backend == to->backend && from->device == to->device)
        return false;
    s->kernel = s->backend->api->transfer;
    return true;
}

/* Steps for the nodes as they are now; those chosen before are taken over. */
static int steps_make(struct plan_state *ps, struct hone_error *e)
{
    struct plan *p = ps->plan;
    struct graph *g = p->graph;
    struct step *old = p->steps, *steps = arena_array(g->arena, (size_t)g->n_nodes, sizeof *steps);
    int n_old = p->n_steps;
    if (!steps)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    p->steps = steps;
    p->n_steps = 0;
    int rc = 0;
    for (int i = 0, o = 0; i < g->n_nodes && !rc; i++) {
        if (op_get(g->nodes[i]->op)->alias)
            continue;
        struct step *s = &p->steps[p->n_steps++];
        *s = (struct step){.node = g->nodes[i], .backend = plan_backend(ps, g->nodes[i])};
        int k = o;
        while (k < n_old && old[k].node != s->node)
            k++;
        if (k < n_old) {
            *s = old[k];
            o = k + 1;
        } else if (!step_transfers(ps, s)) {
            rc = step_choose(ps, s, e);
        }
    }
    return rc;
}

const struct backend *plan_backend(const struct plan_state *s, const struct node *n)
{
    int n_backends;
    return s->options->placement ? s->options->placement->list[n->place].backend : backend_list(&n_backends)[0];
}

int plan_device(const struct plan_state *s, const struct node *n)
{
    return s->options->placement ? s->options->placement->list[n->place].device : 0;
}

/* Also adds what kernels share to the end of each block of values: the most of any node, since they run one after the other. */
static void measure_scratch(struct plan *p)
{
    size_t most[MAX_PLACES] = {0};
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        size_t bytes = s->kernel->scratch ? s->kernel->scratch(s->node) : 0;
        size_t shared = s->kernel->shared ? s->kernel->shared(s->node) : 0;
        p->scratch_bytes = bytes > p->scratch_bytes ? bytes : p->scratch_bytes;
        most[s->node->place] = shared > most[s->node->place] ? shared : most[s->node->place];
    }
    p->shared_offset = (p->value_bytes + 63) / 64 * 64;
    p->value_bytes = p->shared_offset + most[0];
    for (int i = 1; p->placement && i < p->placement->n; i++) {
        struct plan_place *at = &p->places[i];
        at->shared_offset = (at->bytes + 255) / 256 * 256;
        at->bytes = at->shared_offset + most[i];
    }
}

static int find_segments(struct plan *p, struct hone_error *e)
{
    if (!p->placement)
        return 0;
    p->segments = arena_array(p->graph->arena, (size_t)p->n_steps + 1, sizeof *p->segments);
    if (!p->segments)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    for (int i = 0; i < p->n_steps; i++) {
        struct segment *last = p->n_segments ? &p->segments[p->n_segments - 1] : NULL;
        if (last && last->place == p->steps[i].node->place)
            last->n++;
        else
            p->segments[p->n_segments++] = (struct segment){.first = i, .n = 1, .place = p->steps[i].node->place};
    }
    return 0;
}

static void segments_forget(struct plan *p, int place)
{
    for (int i = 0; i < p->n_segments; i++) {
        struct segment *s = &p->segments[i];
        if (!s->place || (place && place != s->place))
            continue;
        const struct place *at = &p->placement->list[s->place];
        at->backend->api->graph_free(at->device, s->graph);
        s->graph = NULL;
        s->runs = 0;
        s->whole_ready = false;
    }
}

void plan_release(struct plan *p)
{
    if (!p)
        return;
    segments_forget(p, 0);
    wholes_release(p);
}

void plan_bind(struct plan *p, void *block)
{
    segments_forget(p, 0);
    p->block = block;
    memory_bind(p);
}

void plan_bind_place(struct plan *p, int place, void *block)
{
    segments_forget(p, place);
    p->places[place].block.data = block;
    memory_bind(p);
}

/* What a plan has at each place. */
static int places_make(struct plan *p, const struct placement *placement, struct hone_error *e)
{
    if (!placement || placement->n < 2)
        return 0;
    p->placement = placement;
    p->places = arena_array(p->graph->arena, (size_t)placement->n, sizeof *p->places);
    if (!p->places)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    for (int i = 1; i < placement->n; i++)
        p->places[i].block = (struct buffer){.backend = placement->list[i].backend, .device = placement->list[i].device};
    return 0;
}

/* Asks the guards of all fused collectives once for all steps, since the answer depends on the plan and the gates alone, and counts the
 * collectives. */
static void ask_guards(struct plan *p, const struct gates *gates)
{
    p->guarded = -1;
    for (int i = p->n_steps; i-- > 0;) {
        const struct node *n = p->steps[i].node;
        p->n_collectives += node_collective(n);
        if (n->place && node_collective(n)) {
            p->n_device_collectives++;
            p->device_collective_bytes += (int64_t)tensor_nbytes(n->src[0]);
        }
        if (n->n_parts && node_collective(n) && !guards_hold(p->graph, n, gates, gates_guard(gates), &p->guarded_why))
            p->guarded = i;
        p->may_decline |= n->n_parts && (p->steps[i].kernel->declines || gates_fusion(gates, GATE_DECLINE, n->fusion, false));
    }
    p->may_decline |= p->guarded >= 0;
}

uint64_t plan_collectives_hash(const struct plan *p)
{
    uint64_t hash = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *n = p->steps[i].node;
        if (!node_collective(n))
            continue;
        struct {
            uint64_t before, bytes;
            char name[NAME_SIZE];
        } one = {hash, n->src[0]->sharding == SHARDING_SPLIT ? 0 : tensor_nbytes(n->src[0]), ""};
        snprintf(one.name, sizeof one.name, "%s", n->out->name);
        hash = hash64(&one, sizeof one);
    }
    return hash;
}

int plan_declines(const struct plan *p, const struct gates *gates, struct reason *r)
{
    for (int i = 0; i < p->n_steps && p->may_decline; i++) {
        const struct step *s = &p->steps[i];
        if (!s->node->n_parts)
            continue;
        if (gates_fusion(gates, GATE_DECLINE, s->node->fusion, false)) {
            fits_not(r, "told to by its decline gate");
            return i;
        }
        if (i == p->guarded) {
            *r = p->guarded_why;
            return i;
        }
        if (s->kernel->declines && s->kernel->declines(s->node, r))
            return i;
    }
    return -1;
}

/* Whether the gate's backend is one that nodes of this plan may be given to. */
static bool backend_here(const struct gate *gate, const struct placement *placement)
{
    const struct backend *b = gate->backend ? backend_by_name(gate->backend) : NULL;
    bool here = !b || b->host;
    for (int i = 1; placement && i < placement->n && !here; i++)
        here = placement->list[i].backend == b;
    return here;
}

static bool node_named(const struct gate *gate, const struct plan *p)
{
    bool met = !gate->glob;
    for (int i = 0; i < p->n_steps && !met; i++) {
        const struct node *n = p->steps[i].node;
        met = !fnmatch(gate->glob, n->out->name, 0);
        for (int j = 0; j < n->n_parts; j++)
            met |= !fnmatch(gate->glob, n->parts[j]->out->name, 0);
    }
    return met;
}

/* A gate that names nodes by a pattern which none of them has is a misspelt one; one about a device that is not there says nothing. */
static int check_gates(const struct plan *p, const struct plan_options *o, struct hone_error *e)
{
    bool all_reference = gates_all_reference(o->gates); /* then nothing is given to a device, whatever its gates say */
    for (int g = 0; g < o->gates->n; g++) {
        const struct gate *gate = &o->gates->list[g];
        bool here = all_reference || backend_here(gate, o->placement);
        if (here && node_named(gate, p))
            continue;
        const char *why = here ? "no node is named so" : "nothing runs on that backend here";
        if (o->strict)
            return err_set(e, HONE_EUSAGE, "%s: gate '%s': %s", gate->source, gate->text, why);
        log_line(LOG_WARN, "%s: gate '%s': %s", gate->source, gate->text, why);
    }
    return 0;
}

/* Whether a step is of few tokens, as its products show. */
static bool are_few(const struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = g->nodes[i];
        for (int j = 0; j < (n->n_parts ? n->n_parts : 1); j++) {
            const struct node *part = n->n_parts ? n->parts[j] : n;
            if (part->op == OP_MUL_MAT && tensor_rows(part->out) > PLAN_FEW)
                return false;
        }
    }
    return true;
}

int plan_create(struct plan **out, struct graph *g, const struct plan_options *o, struct hone_error *e)
{
    int rc = graph_error(g, e);
    if (rc)
        return rc;
    struct plan *p = arena_alloc(g->arena, sizeof *p);
    struct plan_options options = *o;
    if (o->placement && o->placement->n < 2)
        options.placement = NULL;
    struct plan_state ps = {.plan = p, .options = &options};
    if (p)
        *p = (struct plan){.graph = g,
                           .fuse_hits = arena_array(g->arena, N_FUSIONS, sizeof *p->fuse_hits),
                           .fuse_misses = arena_array(g->arena, N_FUSIONS, sizeof *p->fuse_misses)};
    if (!p || !p->fuse_hits || !p->fuse_misses)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    rc = places_make(p, options.placement, e);
    place_nodes(&ps);
    if (!rc)
        rc = fuse_pass(&ps, FUSE_EARLY, e);
    if (!rc)
        rc = steps_make(&ps, e);
    if (!rc && !o->dry)
        rc = materialise_weights(&ps, e);
    if (!rc)
        rc = materialise_activations(&ps, e);
    ps.activations_made = true;
    if (!rc)
        rc = fuse_pass(&ps, FUSE_LATE, e);
    if (!rc)
        rc = steps_make(&ps, e);
    if (!rc && options.placement) {
        rc = place_copies(&ps, e);
        ps.copies_made = true;
        rc = rc ? rc : steps_make(&ps, e);
    }
    p->wholes = wholes_wanted(p, o->gates);
    if (!rc)
        rc = memory_plan(p, e);
    if (!rc)
        rc = check_gates(p, o, e);
    if (!rc)
        rc = find_segments(p, e);
    if (!rc && p->wholes)
        rc = wholes_claim(p, o->gates, e);
    if (rc) {
        wholes_release(p);
        return rc;
    }
    measure_scratch(p);
    wholes_measure(p);
    p->few = are_few(g);
    ask_guards(p, o->gates);
    p->generation = weights_generation();
    *out = p;
    return 0;
}

static int settle(const struct node *n, struct pool *pool, struct hone_error *e)
{
    int rc = 0;
    for (int j = 0; j < n->n_src && !rc; j++) {
        struct tensor *w = n->src[j] && n->src[j]->base ? n->src[j]->base : n->src[j];
        if (w && w->kind == TENSOR_WEIGHT && w->slice && !w->buffer)
            rc = weight_settle(w, pool, e);
    }
    for (int j = 0; j < n->n_parts && !rc; j++)
        rc = settle(n->parts[j], pool, e);
    return rc;
}

int plan_settle(const struct plan *p, struct pool *pool, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < p->n_steps && !rc; i++)
        if (!p->steps[i].node->place)
            rc = settle(p->steps[i].node, pool, e);
    return rc;
}

bool plan_current(const struct plan *p)
{
    return p->generation == weights_generation();
}

bool plan_stale(struct plan *p)
{
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        for (int j = 0; j < s->node->n_src && !s->kernel->wants.any_layout; j++) {
            const struct tensor *w = s->node->src[j];
            const struct layout *layout;
            struct reason r;
            if (w && weight_is_matrix(w) && (!kernel_layout(s->kernel, w, &layout, &r) || layout != w->layout))
                return true;
        }
    }
    segments_forget(p, 0); /* a twin may have been packed to and fro, at another address */
    p->generation = weights_generation();
    return false;
}
