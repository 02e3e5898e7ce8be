/* workload.c: bytes from the plan, not from the file's size: a tied embedding is read whole for the logits and by one row for
 * the token, a packed weight has its layout's bytes, and a window of attention reads no more than the window. Values between
 * nodes are left out: they stay in the caches.
 *
 * Multiplying parameters by bits a weight was the alternative; on a model with a large vocabulary it is wrong by a third. */
#include "lab/workload.h"

#include "graph/fuse.h"
#include "ops/attention.h"

#include <string.h>

/* The share of a weight that a node reads: of a table as many rows as it looks up, of experts no more than tokens were sent to
 * (many tokens may share one: then it is less). */
static double share_read(const struct node *n, const struct tensor *w)
{
    double of = 0, read = 0;
    if (n->op == OP_GET_ROWS) {
        of = (double)tensor_rows(w);
        read = (double)tensor_rows(n->out);
    } else if (n->op == OP_MUL_MAT_ID) {
        of = (double)n->src[0]->ne[2];
        read = (double)(n->out->ne[1] * n->out->ne[2]);
    }
    return of > 0 && read < of ? read / of : 1;
}

static double weight_bytes(const struct node *n)
{
    double sum = 0;
    for (int i = 0; i < n->n_src; i++) {
        const struct tensor *t = n->src[i];
        if (t && (t->base ? t->base : t)->kind == TENSOR_WEIGHT)
            sum += (double)tensor_nbytes(t) * share_read(n, t);
    }
    return sum;
}

/* Of one sequence, in all layers: each step reads it once. */
static double state_bytes(const struct model *m)
{
    double sum = 0;
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer_memory *y = &m->memory[i];
        sum += 4.0 * y->conv_rows * y->conv_channels + 4.0 * y->n_state_head * y->state_dim_k * y->state_dim_v;
    }
    return sum;
}

/* Cells of one KV head that n_tokens tokens behind depth positions read together. */
static int64_t cells_read(const struct node *n, int64_t depth, int64_t n_tokens)
{
    int64_t window = node_params(n, struct attention_params)->window, first = 0;
    if (window && depth + 1 > window)
        first = depth + 1 - window;
    return depth + n_tokens - first;
}

static double cell_bytes(const struct node *n)
{
    const struct tensor *k = n->src[1], *v = n->src[2];
    return (double)k->ne[2] * ((double)format_row_bytes(format_get(k->format), k->ne[0]) +
                               (double)format_row_bytes(format_get(v->format), v->ne[0]));
}

static json_t *row_of(json_t *rows, const char *step, const char *kernel)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (!strcmp(json_string_value(json_object_get(row, "kernel")), kernel) &&
            !strcmp(json_string_value(json_object_get(row, "step")), step))
            return row;
    }
    return NULL;
}

static void count_node(json_t *rows, const char *step, const struct step *s)
{
    char kernel[128];
    kernel_name(s->backend, s->kernel, kernel, sizeof kernel);
    json_t *row = row_of(rows, step, kernel);
    if (row)
        json_object_set_new(row, "nodes", json_integer(json_integer_value(json_object_get(row, "nodes")) + 1));
    else
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:i}", "step", step, "op", op_get(s->node->op)->name, "kernel",
                                              kernel, "nodes", 1));
}

static void list_kernels(struct workload *w, const struct plan *p, const char *step)
{
    w->gates_unfit += p->n_gates_unfit;
    for (int i = 0; i < p->n_steps; i++) {
        count_node(w->kernels, step, &p->steps[i]);
        if (!strcmp(p->steps[i].kernel->variant, "ref")) {
            count_node(w->fallbacks, step, &p->steps[i]);
            w->references++;
        }
    }
}

/* What a rank's plan moves in those steps. */
static void add_rank(const struct plan *p, int32_t n, int64_t depth, int64_t times, int64_t stride, double *weights, double *kv)
{
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *node = p->steps[i].node;
        *weights += weight_bytes(node) * (double)times;
        const struct node *attention = node_part(node, OP_ATTENTION);
        for (int64_t t = 0; attention && t < times; t++)
            *kv += (double)cells_read(attention, depth + t * stride, n) * cell_bytes(attention);
    }
}

static double proportion(double theirs, double own)
{
    return own > 0 ? theirs / own : 0;
}

/* Adds what `times` steps of n tokens move whose first begins at depth, the others each `stride` further. */
static int add_steps(struct workload *w, struct hone_session *s, const struct hone_model *m, int32_t n, int64_t depth,
                     int64_t times, int64_t stride, const char *list, struct hone_error *e)
{
    const struct plan *p;
    int rc = times > 0 ? session_plan(s, n, 1, &p, e) : 0;
    if (rc || times <= 0)
        return rc;
    if (list)
        list_kernels(w, p, list);
    w->state += state_bytes(m->model) * (double)times;
    double weights = 0, kv = 0;
    struct rank_memory own, one;
    add_rank(p, n, depth, times, stride, &weights, &kv);
    session_rank_memory(s, session_rank(s), &own);
    w->weights += weights;
    w->kv += kv;
    for (int rank = session_rank(s) + 1; rank < session_ranks(s); rank++) {
        const struct plan *mine = session_rank_plan(s, p, rank);
        if (mine) {
            add_rank(mine, n, depth, times, stride, &w->weights, &w->kv);
            continue;
        }
        session_rank_memory(s, rank, &one); /* of a rank in another process: as this one's, by what the two have */
        w->weights += weights * proportion(one.weights + one.mirrored, own.weights + own.mirrored);
        w->kv += kv * proportion((double)one.kv, (double)own.kv);
    }
    return 0;
}

int workload_of(struct workload *w, struct hone_session *s, const struct hone_model *m, const struct measure_test *t,
                int32_t step, struct hone_error *e)
{
    *w = (struct workload){.kernels = json_array(), .fallbacks = json_array()};
    int64_t at = t->n_depth;
    int rc = 0;
    const char *list = "prefill";
    for (int64_t left = t->n_prompt; left > 0 && !rc;) { /* a call, whole steps first, then the rest of it */
        int64_t call = left < t->n_batch ? left : t->n_batch, whole = call / step;
        rc = add_steps(w, s, m, step, at, whole, step, list, e);
        if (!rc && call % step)
            rc = add_steps(w, s, m, (int32_t)(call % step), at + whole * step, 1, 0, whole ? NULL : list, e);
        list = NULL;
        at += call;
        left -= call;
    }
    if (!rc)
        rc = add_steps(w, s, m, 1, at, t->n_gen, 1, "decode", e);
    double tokens = (double)t->n_prompt + t->n_gen;
    w->weights /= tokens;
    w->kv /= tokens;
    w->state /= tokens;
    if (rc)
        workload_free(w);
    return rc;
}

void workload_free(struct workload *w)
{
    json_decref(w->kernels);
    json_decref(w->fallbacks);
    *w = (struct workload){0};
}

void workload_declined(const struct hone_session *s, int64_t *counts)
{
    for (int f = 0; f < N_FUSIONS; f++)
        counts[f] = session_declines(s)[f].count;
}

json_t *workload_declines(const struct hone_session *s, const int64_t *before)
{
    json_t *list = json_array();
    for (int f = 0; f < N_FUSIONS; f++) {
        const struct decline *d = &session_declines(s)[f];
        int64_t n = d->count - (before ? before[f] : 0);
        if (n > 0)
            json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "fusion", fusion_get((enum fusion_id)f)->name, "steps",
                                                  (json_int_t)n, "reason", d->reason.text));
    }
    return list;
}
