/* tune.c: round i gives every op its i-th variant and traces a decode and a prefill step, so that the number of rounds is the largest
 * number of variants, not their sum. Measuring kernels alone, on one buffer again and again, was the alternative: it measures
 * the caches, and picks kernels that lose in the graph. Choices within the margin of the table's own stay with the table. */
#include "lab/tune.h"

#include "lab/reference.h"
#include "lab/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tune_choice *choice_of(struct tune *t, const struct node *n)
{
    for (int i = 0; i < t->n; i++)
        if (t->choices[i].op == n->op && t->choices[i].format == n->src[0]->format)
            return &t->choices[i];
    return NULL;
}

static int variant_index(const struct tune_choice *c, const char *variant)
{
    for (int i = 0; i < c->n_variants; i++)
        if (!strcmp(c->variants[i], variant))
            return i;
    return -1;
}

/* The planner does not ask a plug-in's kernel that no gate names; whoever loads one before tuning wants it considered. It is asked about
 * the node as built: an activation that is not quantised yet, a weight that is not packed. */
static bool candidate_fits(const struct passed_over *p, const struct node *n)
{
    struct reason r;
    struct node built = *n;
    struct tensor weight;
    if (!p->kernel->by_name_only)
        return p->fits;
    const struct node *maker = n->n_src > 1 && n->src[1] ? n->src[1]->producer : NULL;
    if (maker && maker->op == OP_QUANTIZE)
        built.src[1] = maker->src[0];
    if (n->src[0] && n->src[0]->layout) {
        weight = *n->src[0];
        weight.layout = NULL;
        weight.data = (void *)(uintptr_t)weight.rows;
        built.src[0] = &weight;
    }
    return !p->kernel->fits || p->kernel->fits(&built, &r);
}

static void keep_common(struct tune_choice *c, const struct step *s)
{
    int n = 0;
    for (int i = 0; i < c->n_variants; i++) {
        bool fits = !strcmp(s->kernel->variant, c->variants[i]);
        for (int j = 0; j < s->n_passed; j++)
            fits |= !strcmp(s->passed[j].kernel->variant, c->variants[i]) && candidate_fits(&s->passed[j], s->node);
        if (fits)
            c->variants[n++] = c->variants[i];
    }
    c->n_variants = n;
}

/* The choices of a plan: every op that runs a fast kernel, with the variants that fit all its nodes. */
static int survey(struct tune *t, const struct plan *p, struct hone_error *e)
{
    t->choices = calloc((size_t)p->n_steps + 1, sizeof *t->choices);
    if (!t->choices)
        return err_set(e, HONE_ERESOURCE, "no memory to tune %d nodes", p->n_steps);
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        struct tune_choice *c = choice_of(t, s->node);
        if (!strcmp(s->kernel->variant, "ref"))
            continue;
        if (!c) {
            c = &t->choices[t->n++];
            *c = (struct tune_choice){.op = s->node->op, .format = s->node->src[0]->format, .n_variants = 1, .variants = {s->kernel->variant}};
            for (int j = 0; j < s->n_passed && c->n_variants < TUNE_MAX_VARIANTS; j++)
                if (strcmp(s->passed[j].kernel->variant, "ref") != 0 && candidate_fits(&s->passed[j], s->node))
                    c->variants[c->n_variants++] = s->passed[j].kernel->variant;
        } else {
            keep_common(c, s);
        }
        c->nodes++;
    }
    return 0;
}

static void gate_text(const struct tune_choice *c, int variant, char *text, size_t size)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, "kernel.%s.%s=%s\n", op_get(c->op)->name, format_get(c->format)->name, c->variants[variant]);
}

static int measure(struct tune *t, struct hone_session *s, const struct hone_model *m, const struct tune_options *o, bool prefill,
                   struct hone_error *e)
{
    struct trace trace;
    struct trace_options to = {.n_tokens = prefill ? o->prefill : 1, .depth = prefill ? 0 : 64, .repeats = o->repeats, .n_threads = o->n_threads};
    int rc = trace_run(&trace, s, m, &to, e);
    if (rc)
        return rc;
    for (int i = 0; i < trace.plan->n_steps; i++) {
        const struct step *step = &trace.plan->steps[i];
        struct tune_choice *c = choice_of(t, step->node);
        int v = c ? variant_index(c, step->kernel->variant) : -1;
        if (v >= 0)
            (prefill ? c->prefill_ns : c->decode_ns)[v] += trace.nodes[i].ns;
    }
    trace_free(&trace);
    return 0;
}

/* A session for what comes next, known to whoever cancels, in place of the one before. */
static int take_session(struct hone_session **s, const struct hone_model *m, const struct hone_session_params *p, const struct tune_options *o,
                        void *user, struct hone_error *e)
{
    int rc = hone_session_create(s, m, p, e);
    if (!rc && o->session_runs)
        o->session_runs(user, *s);
    return rc;
}

static void leave_session(struct hone_session *s, const struct tune_options *o, void *user)
{
    if (o->session_runs)
        o->session_runs(user, NULL);
    hone_session_free(s);
}

static int round_run(struct tune *t, int round, const struct hone_model *m, const struct tune_options *o, void *user, struct hone_error *e)
{
    char gates[4000];
    snprintf(gates, sizeof gates, "%s", o->base);
    for (int i = 0; i < t->n; i++)
        if (round < t->choices[i].n_variants)
            gate_text(&t->choices[i], round, gates, sizeof gates);
    struct hone_session_params p = o->session;
    p.gates = gates;
    p.recipe = NULL;
    struct hone_session *s = NULL;
    int rc = take_session(&s, m, &p, o, user, e);
    for (int i = 0; i < t->n && !rc; i++) /* what an earlier round left of the table's choice for ops with fewer variants stays */
        if (round < t->choices[i].n_variants)
            t->choices[i].decode_ns[round] = t->choices[i].prefill_ns[round] = 0;
    if (!rc)
        rc = measure(t, s, m, o, false, e);
    if (!rc)
        rc = measure(t, s, m, o, true, e);
    leave_session(s, o, user);
    return rc;
}

static double least(const double *x, int n)
{
    double best = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > 0 && (best == 0 || x[i] < best))
            best = x[i];
    return best;
}

static void choose(struct tune *t, double margin)
{
    for (int i = 0; i < t->n; i++) {
        struct tune_choice *c = &t->choices[i];
        double decode = least(c->decode_ns, c->n_variants), prefill = least(c->prefill_ns, c->n_variants), best = 0, own = 0;
        for (int v = 0; v < c->n_variants; v++) {
            if ((decode > 0 && c->decode_ns[v] == 0) || (prefill > 0 && c->prefill_ns[v] == 0))
                continue; /* it never ran: the planner had a reason */
            double score = (decode > 0 ? c->decode_ns[v] / decode : 0) + (prefill > 0 ? c->prefill_ns[v] / prefill : 0);
            if (v == 0)
                own = best = score;
            if (score < best && score < own * (1 - margin)) {
                best = score;
                c->best = v;
            }
        }
        if (c->best)
            gate_text(c, c->best, t->gates, sizeof t->gates);
    }
}

static int verify(struct tune *t, const struct hone_model *m, const struct tune_options *o, void *user, struct hone_error *e)
{
    struct reference ref;
    struct hone_session *s = NULL;
    struct hone_session_params p = o->session;
    p.gates = t->gates;
    p.recipe = NULL;
    int rc = reference_make(&ref, m, &o->session, 4, 24, 24, NULL, NULL, NULL, e);
    if (rc)
        return rc;
    rc = take_session(&s, m, &p, o, user, e);
    if (!rc)
        rc = reference_compare(&ref, s, &t->right, e);
    if (!rc)
        comparison_judge_for(&t->right, m, 0.01);
    leave_session(s, o, user);
    reference_free(&ref);
    return rc;
}

int tune_run(struct tune *t, const struct hone_model *m, const struct tune_options *o, int (*progress)(void *user, float done), void *user,
             struct hone_error *e)
{
    *t = (struct tune){0};
    struct hone_session *s;
    struct hone_session_params p = o->session;
    if (strlen(o->base) > sizeof t->gates / 4)
        return err_set(e, HONE_EUSAGE, "gates of %zu bytes are more than tune carries", strlen(o->base));
    p.gates = o->base;
    snprintf(t->gates, sizeof t->gates, "%s", o->base);
    const struct plan *plan;
    int rc = hone_session_create(&s, m, &p, e), rounds = 0;
    if (!rc)
        rc = session_plan(s, 1, 1, &plan, e);
    if (!rc)
        rc = survey(t, plan, e);
    hone_session_free(s);
    for (int i = 0; i < t->n; i++)
        rounds = t->choices[i].n_variants > rounds ? t->choices[i].n_variants : rounds;
    for (int r = 0; r < rounds && !rc; r++) {
        rc = round_run(t, r, m, o, user, e);
        if (!rc && progress && progress(user, (float)(r + 1) / (float)(rounds + 1)))
            rc = err_set(e, HONE_ECANCELED, "cancelled");
    }
    if (!rc) {
        choose(t, o->margin);
        rc = verify(t, m, o, user, e);
    }
    if (rc)
        tune_free(t);
    return rc;
}

void tune_free(struct tune *t)
{
    free(t->choices);
    comparison_free(&t->right);
    *t = (struct tune){0};
}
