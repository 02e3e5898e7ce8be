/* plan.c: choosing kernels. For each node the candidates are the rows of its op, plainest first; the last that fits wins, unless a
 * gate names one. Every candidate that was not taken keeps its reason, so that inspect and trace can answer "why this one".
 * A cost model was the alternative; it hides the order in a number, where the table shows it. */
#include "graph/plan.h"

#include "base/log.h"
#include "graph/memory.h"

#include <stdio.h>
#include <string.h>

char *kernel_name(const struct backend *b, const struct kernel *k, char *text, size_t size)
{
    snprintf(text, size, "%s_%s_%s", b->name, op_get(k->op)->name, k->variant);
    return text;
}

/* May k run n here? Says why not. */
static bool kernel_fits(const struct backend *b, const struct kernel *k, const struct node *n, struct reason *r)
{
    unsigned lacking = k->needs & ~b->features(0);
    if (lacking)
        return fits_not(r, "the device lacks %s", b->feature_name(lacking & -lacking));
    return !k->fits || k->fits(n, r);
}

/* A gate's variant did not get the node: an error under strict, else a warning and a count. */
static int gate_unfit(struct plan *p, const struct step *s, const struct gate *gate, bool strict, struct hone_error *e)
{
    const char *why = "there is no such kernel";
    for (int i = 0; i < s->n_passed; i++)
        if (!strcmp(s->passed[i].kernel->variant, gate->variant))
            why = s->passed[i].reason.text;
    p->n_gates_unfit++;
    if (strict)
        return err_set(e, HONE_EUSAGE, "%s: gate '%s' at node %s: %s", gate->source, gate->text, s->node->out->name, why);
    log_line(LOG_WARN, "gate '%s' passed over at node %s: %s", gate->text, s->node->out->name, why);
    return 0;
}

static int step_choose(struct plan *p, struct step *s, const struct gates *gates, bool strict, struct hone_error *e)
{
    int n_kernels;
    const struct kernel *const *kernels = s->backend->kernels(&n_kernels);
    const struct gate *gate = gates_for_node(gates, s->backend->name, s->node);
    s->passed = arena_array(p->graph->arena, (size_t)n_kernels, sizeof *s->passed);
    if (!s->passed)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    for (int i = n_kernels; i-- > 0;) { /* fastest first; the taken one is dropped from the list below */
        const struct kernel *k = kernels[i];
        if (k->op != s->node->op)
            continue;
        struct passed_over *candidate = &s->passed[s->n_passed++];
        candidate->kernel = k;
        if (!kernel_fits(s->backend, k, s->node, &candidate->reason))
            continue;
        if (gate && s->gate != gate && !strcmp(gate->variant, k->variant)) {
            s->kernel = k;
            s->gate = gate;
        } else if (!s->kernel) {
            s->kernel = k;
        }
    }
    if (!s->kernel)
        return err_set(e, HONE_EFAULT, "node %s: no kernel of op %s fits, not even the reference", s->node->out->name,
                       op_get(s->node->op)->name);
    int n = 0;
    for (int i = 0; i < s->n_passed; i++) {
        if (s->passed[i].kernel == s->kernel)
            continue;
        if (!s->passed[i].reason.text[0])
            snprintf(s->passed[i].reason.text, sizeof s->passed[i].reason.text, "%s %.80s",
                     s->gate ? "the gate names" : "slower than", s->kernel->variant);
        s->passed[n++] = s->passed[i];
    }
    s->n_passed = n;
    return gate && !s->gate ? gate_unfit(p, s, gate, strict, e) : 0;
}

int plan_create(struct plan **out, struct graph *g, const struct gates *gates, bool strict, struct hone_error *e)
{
    int rc = graph_error(g, e);
    if (rc)
        return rc;
    struct plan *p = arena_alloc(g->arena, sizeof *p);
    struct step *steps = arena_array(g->arena, (size_t)g->n_nodes, sizeof *steps);
    if (!p || !steps)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    *p = (struct plan){.graph = g, .steps = steps};
    int n_backends;
    const struct backend *host = backend_list(&n_backends)[0];
    for (int i = 0; i < g->n_nodes && !rc; i++) {
        if (op_get(g->nodes[i]->op)->alias)
            continue;
        struct step *s = &p->steps[p->n_steps++];
        *s = (struct step){.node = g->nodes[i], .backend = host};
        rc = step_choose(p, s, gates, strict, e);
        if (!rc && s->kernel->scratch) {
            size_t bytes = s->kernel->scratch(s->node);
            if (bytes > p->scratch_bytes)
                p->scratch_bytes = bytes;
        }
    }
    if (!rc)
        rc = memory_plan(p, e);
    if (!rc)
        *out = p;
    return rc;
}
