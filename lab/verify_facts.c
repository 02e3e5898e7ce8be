/* verify_facts.c: what tells the two sides apart before a token runs: tokenizers, and the weights that a token of decode reads.
 *
 * Bytes come from a decode plan that is only planned (an embedding is read by a row, a tied one also as the head), not from the
 * size of the file. A model that got faster by reading other weights got faster by being another model: that is said whatever
 * the logits say. */
#include "lab/verify.h"

#include "lab/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_weights(struct verify_side *s, const struct node *n)
{
    for (int i = 0; i < n->n_src; i++) {
        const struct tensor *t = n->src[i];
        if (!t || t->kind != TENSOR_WEIGHT)
            continue;
        double bytes = op_stored_bytes(t), rows = (double)tensor_rows(t), read = (double)tensor_rows(n->out);
        if (n->op == OP_GET_ROWS && read < rows)
            bytes *= read / rows;
        s->weights[t->format] += bytes;
        s->weights_all += bytes;
    }
}

/* The weights that the model's graph reads: the same whatever the gates say. What only the side's own process knows (kernels,
 * KV types) comes later. */
static int plan_side(struct verify_side *s, struct hone_error *e)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *session;
    const struct plan *plan;
    p.n_ctx = s->model->model->n_ctx_train < 64 ? s->model->model->n_ctx_train : 64;
    p.n_threads = 1;
    int rc = hone_session_create(&session, s->model, &p, e);
    if (rc)
        return rc;
    session_set_dry(session);
    rc = session_plan(session, 1, 1, &plan, e);
    for (int i = 0; !rc && i < plan->n_steps; i++)
        add_weights(s, plan->steps[i].node);
    snprintf(s->type_k, sizeof s->type_k, "%s", s->arm->set.type_k ? s->arm->set.type_k : "?");
    snprintf(s->type_v, sizeof s->type_v, "%s", s->arm->set.type_v ? s->arm->set.type_v : "?");
    hone_session_free(session);
    return rc;
}

static const char *type_name(const struct gguf_tensor *t)
{
    return t->known ? format_get(t->format)->name : "a type that hone does not know";
}

/* Tensors that went from one type to another: how many, and how many bytes they were and are. */
struct change {
    const char *from, *to;
    const char *first;
    int n;
    double before, after;
};

enum { MAX_CHANGES = 64 };

static void add_change(struct change *list, int *n, const struct gguf_tensor *a, const struct gguf_tensor *b)
{
    int i = 0;
    while (i < *n && (strcmp(list[i].from, type_name(a)) != 0 || strcmp(list[i].to, type_name(b)) != 0))
        i++;
    if (i == MAX_CHANGES)
        return;
    if (i == *n)
        list[(*n)++] = (struct change){.from = type_name(a), .to = type_name(b), .first = a->cname};
    list[i].n++;
    list[i].before += (double)a->bytes;
    list[i].after += (double)b->bytes;
}

static void say(json_t *list, const char *text)
{
    json_array_append_new(list, json_string(text));
}

/* Types and shapes of the weights; whether equal types hold equal bits shows in the logits. */
static json_t *compare_weights(const struct gguf *a, const struct gguf *b)
{
    json_t *list = json_array();
    struct change changes[MAX_CHANGES];
    int n = 0, missing = 0, extra = 0, shapes = 0;
    const char *first = NULL;
    char text[300];
    for (int64_t i = 0; i < a->n_tensors; i++) {
        const struct gguf_tensor *x = &a->tensors[i], *y = gguf_tensor(b, x->cname);
        bool shape = y && memcmp(x->ne, y->ne, sizeof x->ne) != 0;
        missing += !y;
        shapes += shape;
        first = first || (y && !shape) ? first : x->cname;
        if (y && !shape && x->gguf_type != y->gguf_type)
            add_change(changes, &n, x, y);
    }
    for (int64_t i = 0; i < b->n_tensors; i++)
        if (!gguf_tensor(a, b->tensors[i].cname)) {
            first = first ? first : b->tensors[i].cname;
            extra++;
        }
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%d tensor%s (%s%s) from %s to %s: %.0f bytes instead of %.0f", changes[i].n,
                 changes[i].n == 1 ? "" : "s", changes[i].first, changes[i].n == 1 ? "" : ", ...", changes[i].from,
                 changes[i].to, changes[i].after, changes[i].before);
        say(list, text);
    }
    if (missing || extra || shapes) {
        snprintf(text, sizeof text, "%d tensors only in A, %d only in B, %d of another shape; the first is %s", missing, extra,
                 shapes, first);
        say(list, text);
    }
    return list;
}

int verify_facts(struct verify *v, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = plan_side(&v->side[i], e);
        if (rc)
            err_prefix(e, "side %s", i ? "B" : "A");
    }
    if (rc)
        return rc;
    const struct gguf *a = v->side[0].model->model->gguf, *b = v->side[1].model->model->gguf;
    v->tokenizer = a == b ? json_array() : vocabulary_differences(a, b, &v->tokenizer_minor);
    v->weights = a == b ? json_array() : compare_weights(a, b);
    v->synthetic = model_is_synthetic(v->side[0].model) || model_is_synthetic(v->side[1].model);
    return v->tokenizer && v->weights ? 0 : err_set(e, HONE_ERESOURCE, "no memory for what differs");
}
