/* verify_json.c: all of a verification as JSON: what was asked, who the sides were, every figure that the verdict rests on. */
#include "lab/verify.h"

#include <math.h>

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *weights_json(const struct verify_side *s)
{
    json_t *types = json_object();
    for (int f = 0; f < N_FORMATS; f++)
        if (s->weights[f] > 0)
            json_object_set_new(types, format_get((enum format_id)f)->name, json_integer((json_int_t)s->weights[f]));
    return json_pack("{s:I, s:o}", "bytes", (json_int_t)s->weights_all, "by_type", types);
}

static json_t *side_json(const struct verify_side *s)
{
    json_t *j = json_pack("{s:s, s:s?, s:s, s:s, s:s, s:o, s:b, s:s, s:s}", "arm", s->arm->spec, "model", s->arm->set.model,
                          "build", s->build, "type_k", s->type_k, "type_v", s->type_v, "weights_per_token", weights_json(s),
                          "steady", s->steady, "tokens_sha256", s->tokens_sha, "text_sha256", s->text_sha);
    if (j && s->kernels)
        json_object_set(j, "kernels", s->kernels);
    if (j && s->shadow_faults >= 0)
        json_object_set_new(j, "shadow_faults", json_integer(s->shadow_faults));
    return j;
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *text_json(const struct verify *v, const struct verify_text *t)
{
    char a[100], b[100];
    bool equal = t->first_difference == v->o.n_greedy;
    json_t *j = json_pack("{s:o, s:o, s:b, s:s, s:s}", "prompt", ids_json(t->ids, t->n_prompt), "a",
                          ids_json(t->greedy[0], v->o.n_greedy), "equal", equal, "degenerate_a",
                          degenerate_text(&t->degenerate[0], a, sizeof a), "degenerate_b",
                          degenerate_text(&t->degenerate[1], b, sizeof b));
    if (j && !equal) {
        json_object_set_new(j, "b", ids_json(t->greedy[1], v->o.n_greedy));
        json_object_set_new(j, "first_difference", json_integer((json_int_t)t->first_difference));
        json_object_set_new(j, "near_tie", json_boolean(t->near_tie));
    }
    return j;
}

static json_t *node_json(const struct verify_node *n)
{
    if (!n->tensor[0])
        return json_null();
    return json_pack("{s:s, s:[s,s], s:[s,s], s:I, s:I, s:o, s:o, s:o, s:f, s:b}", "tensor", n->tensor, "ops", n->op[0],
                     n->op[1], "kernels", n->kernel[0], n->kernel[1], "row", (json_int_t)n->row, "column",
                     (json_int_t)n->column, "b", number(n->got), "a", number(n->want), "nmse", number(n->nmse), "tolerance",
                     n->tolerance, "same_inputs", n->same_inputs);
}

static json_t *nodes_json(const struct verify_nodes *n)
{
    return json_pack("{s:i, s:I, s:I, s:i, s:i, s:o, s:o, s:s}", "text", n->text, "position", (json_int_t)n->position, "step",
                     (json_int_t)n->step, "common", n->n_common, "different", n->n_different, "first", node_json(&n->first),
                     "first_beyond_tolerance", node_json(&n->beyond), "why_not", n->why_not);
}

static json_t *place_json(const struct verify *v, size_t compared)
{
    int text;
    size_t position;
    if (compared >= v->logits.n)
        return json_null();
    verify_place(v, compared, &text, &position);
    return json_pack("{s:i, s:I}", "text", text, "position", (json_int_t)position);
}

static json_t *sentences(const char (*list)[300], int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_string(list[i]));
    return a;
}

json_t *verify_json(const struct verify *v)
{
    json_t *texts = json_array();
    for (int i = 0; v->compared && i < v->o.n_texts; i++)
        json_array_append_new(texts, text_json(v, &v->texts[i]));
    json_t *j = json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:O, s:O, s:b, s:o, s:i, s:i}", "schema_version", 1, "verdict",
                          verify_class_name(v->verdict), "reasons", sentences(v->reasons, v->n_reasons), "notes",
                          sentences(v->notes, v->n_notes), "a", side_json(&v->side[0]), "b", side_json(&v->side[1]),
                          "tokenizer_differences", v->tokenizer, "weights_differences", v->weights, "random_weights",
                          v->synthetic, "texts", texts, "texts_equal", v->arrays_equal, "texts_degenerate", v->n_degenerate);
    if (!j || !v->compared)
        return j;
    json_object_set_new(j, "logits", comparison_json(&v->logits));
    json_object_set_new(j, "loss",
                        json_pack("{s:o, s:o, s:o}", "a", number(v->loss[0]), "b", number(v->loss[1]), "difference_error",
                                  number(v->loss_error)));
    json_object_set_new(j, "first_different_bits", place_json(v, v->first_bits));
    json_object_set_new(j, "first_different_token", place_json(v, v->first_token));
    json_object_set_new(j, "bounds", json_pack("{s:f, s:f}", "kl", v->o.kl_bound, "loss", v->o.loss_bound));
    if (v->nodes.looked || v->nodes.why_not[0])
        json_object_set_new(j, "nodes", nodes_json(&v->nodes));
    return j;
}
