/* verify_judge.c: the verdict. Each way to be different is a reason of its own, all of them are listed, and the class is the
 * best that no reason stands against. What could not be looked at, or proves nothing, is a note and never silently a pass. */
#include "lab/verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void reason(struct verify *v, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (v->n_reasons < VERIFY_REASONS)
        vsnprintf(v->reasons[v->n_reasons++], sizeof *v->reasons, format, ap);
    va_end(ap);
}

__attribute__((format(printf, 2, 3))) static void note(struct verify *v, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (v->n_notes < VERIFY_REASONS)
        vsnprintf(v->notes[v->n_notes++], sizeof *v->notes, format, ap);
    va_end(ap);
}

static void judge_sides(struct verify *v)
{
    int32_t a = hone_model_n_vocab(v->side[0].model), b = hone_model_n_vocab(v->side[1].model);
    if (json_array_size(v->tokenizer))
        reason(v, "another tokenizer: %s", json_string_value(json_array_get(v->tokenizer, 0)));
    if (a != b)
        reason(v, "another vocabulary: %d logits in A, %d in B", a, b);
    for (int i = 0; i < 2; i++) {
        const struct verify_side *s = &v->side[i];
        if (!s->steady)
            reason(v, "%s is not steady: two runs of it gave different %s", i ? "B" : "A",
                   s->has_jobs ? "tokens or logits" : "tokens");
        if (s->shadow_faults > 0)
            reason(v, "%s has %d kernel fault(s) beside the reference: %.200s", i ? "B" : "A", s->shadow_faults,
                   s->shadow_first);
    }
    bool known = strcmp(v->side[0].type_k, "?") != 0 && strcmp(v->side[1].type_k, "?") != 0; /* an older build does not say */
    if (known && (strcmp(v->side[0].type_k, v->side[1].type_k) != 0 || strcmp(v->side[0].type_v, v->side[1].type_v) != 0))
        note(v, "the KV cache is %s/%s in A, %s/%s in B", v->side[0].type_k, v->side[0].type_v, v->side[1].type_k,
             v->side[1].type_v);
    for (size_t i = 0; i < json_array_size(v->tokenizer_minor); i++)
        note(v, "for other programs: %s", json_string_value(json_array_get(v->tokenizer_minor, i)));
    for (size_t i = 0; i < json_array_size(v->weights); i++)
        note(v, "other weights: %s", json_string_value(json_array_get(v->weights, i)));
    if (!v->side[0].has_jobs || !v->side[1].has_jobs)
        note(v, "%s is an older build: every other text was fed as one prefill, the others token by token",
             v->side[0].has_jobs ? "B" : "A");
}

static void judge_nodes(struct verify *v)
{
    const struct verify_node *f = &v->nodes.first;
    if (f->tensor[0] && f->same_inputs && !strcmp(v->nodes.beyond.tensor, f->tensor))
        reason(v,
               "a kernel is wrong: from the same inputs, %s is %.7g in A and %.7g in B at row %lld, column %lld (NMSE %.2g, "
               "tolerance %.2g; %s and %s)",
               f->tensor, f->want, f->got, (long long)f->row, (long long)f->column, f->nmse, f->tolerance, f->kernel[0],
               f->kernel[1]);
    if (v->nodes.why_not[0])
        note(v, "nodes: %s", v->nodes.why_not);
}

/* Teacher-forced. Random weights have no text: there the errors count, not the tokens (comparison_judge_for does the same). */
static void judge_logits(struct verify *v)
{
    const struct comparison *c = &v->logits;
    double change = v->loss[1] - v->loss[0];
    bool errors_within = c->n && !c->nan && c->kl_mean <= v->o.kl_bound && c->nmse <= compare_bound();
    if (c->verdict == CLASS_DIFFERENT && !(v->synthetic && errors_within)) {
        if (v->synthetic && !c->nan && !(c->nmse <= compare_bound()))
            reason(v, "logits err by NMSE %.3g on average; %.3g is allowed", c->nmse, compare_bound());
        else
            reason(v, "%s", c->reason);
    }
    /* Beyond the bound by more than chance gives in 99 of 100 samples of this size. */
    if (!(fabs(change) - 2.33 * v->loss_error <= v->o.loss_bound))
        reason(v, "the loss on A's own text changes by %+.4f +/- %.4f nats; %.4f are allowed", change, v->loss_error,
               v->o.loss_bound);
}

/* Where B's greedy text left A's without having been near it. */
static void judge_departures(struct verify *v)
{
    int n = 0, first = -1;
    for (int i = 0; i < v->o.n_texts; i++) {
        bool left = v->texts[i].first_difference < v->o.n_greedy && !v->texts[i].near_tie;
        first = left && first < 0 ? i : first;
        n += left;
    }
    if (!n)
        return;
    const struct verify_text *t = &v->texts[first];
    reason(v, "%d of %d texts: B says another token where that is no near-tie, first in text %d at token %zu (%d, not %d)", n,
           v->o.n_texts, first, t->first_difference, t->greedy[1][t->first_difference], t->greedy[0][t->first_difference]);
}

static void note_degenerate(struct verify *v, int side)
{
    char list[260] = "";
    size_t at = 0;
    for (int i = 0; i < v->o.n_texts && at < sizeof list; i++) {
        char text[100];
        if (v->texts[i].degenerate[side].kind)
            at += (size_t)snprintf(list + at, sizeof list - at, "%stext %d %s", at ? ", " : "", i,
                                   degenerate_text(&v->texts[i].degenerate[side], text, sizeof text));
    }
    if (at)
        note(v, "%s: %s", side ? "proves nothing in B" : "proves nothing in A", list);
}

static void judge_arrays(struct verify *v)
{
    if (v->synthetic) {
        note(v, "random weights: the text says nothing, so the verdict is by logit errors on random tokens");
        return;
    }
    judge_departures(v);
    note_degenerate(v, 0);
    note_degenerate(v, 1);
}

/* What the tokens prove: half of the texts at least have to be texts. */
static bool texts_prove(const struct verify *v)
{
    return !v->synthetic && 2 * v->n_degenerate <= v->o.n_texts;
}

static enum verify_class classify(const struct verify *v)
{
    const struct comparison *c = &v->logits;
    bool arrays = v->arrays_equal == v->o.n_texts, tokens = c->equal == c->n && arrays;
    const struct verify_nodes *n = &v->nodes;
    if (v->n_reasons)
        return VERIFY_DIFFERENT;
    if (c->bits_equal && arrays)
        return VERIFY_BIT_IDENTICAL;
    if (tokens && n->looked && n->first.tensor[0] && !n->beyond.tensor[0])
        return VERIFY_WITHIN_TOLERANCE;
    return tokens && texts_prove(v) ? VERIFY_TOKEN_IDENTICAL : VERIFY_QUALITY_EQUAL;
}

void verify_judge(struct verify *v)
{
    judge_sides(v);
    if (v->compared) {
        judge_nodes(v);
        judge_logits(v);
        judge_arrays(v);
        if (!texts_prove(v) && !v->synthetic)
            note(v, "%d of %d texts are degenerate: equal tokens prove nothing here, the verdict rests on the logits",
                 v->n_degenerate, v->o.n_texts);
    } else if (!v->n_reasons) {
        reason(v, "nothing was compared");
    }
    v->verdict = classify(v);
}

static double figure(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* The teacher-forced part: whether the figures themselves are beyond their bounds, whatever was concluded from them. */
static bool logits_differ(const json_t *recorded, bool synthetic)
{
    const json_t *logits = json_object_get(recorded, "logits"), *loss = json_object_get(recorded, "loss"),
                 *bounds = json_object_get(recorded, "bounds");
    const char *class = json_string_value(json_object_get(logits, "verdict"));
    bool kl = figure(logits, "kl_mean") <= figure(bounds, "kl");
    bool wrong = !class || !strcmp(class, compare_class_name(CLASS_DIFFERENT)) || figure(logits, "wrong") > 0;
    if (!kl || (wrong && !(synthetic && figure(logits, "nmse") <= compare_bound())))
        return true;
    return !(fabs(figure(loss, "b") - figure(loss, "a")) - 2.33 * figure(loss, "difference_error") <= figure(bounds, "loss"));
}

enum verify_class verify_rederive(const json_t *recorded)
{
    const json_t *logits = json_object_get(recorded, "logits"), *nodes = json_object_get(recorded, "nodes"),
                 *texts = json_object_get(recorded, "texts");
    struct verify v = {.n_reasons = (int)json_array_size(json_object_get(recorded, "reasons")),
                       .synthetic = json_is_true(json_object_get(recorded, "random_weights")),
                       .n_degenerate = (int)figure(recorded, "texts_degenerate"),
                       .o.n_texts = (int)json_array_size(texts)};
    size_t i;
    json_t *text;
    json_array_foreach((json_t *)texts, i, text)
    {
        const json_t *b = json_object_get(text, "b");
        v.arrays_equal += !b || json_equal(b, json_object_get(text, "a"));
    }
    v.logits.n = (size_t)figure(logits, "positions");
    v.logits.equal = (size_t)figure(logits, "top1_equal");
    v.logits.bits_equal = json_is_null(json_object_get(recorded, "first_different_bits"));
    v.nodes.looked = json_is_object(nodes);
    v.nodes.first.tensor[0] = json_is_object(json_object_get(nodes, "first"));
    v.nodes.beyond.tensor[0] = json_is_object(json_object_get(nodes, "first_beyond_tolerance"));
    v.n_reasons += !logits || logits_differ(recorded, v.synthetic);
    return classify(&v);
}
